"""What became of transactions, in numbers: counted where it is decided, for whoever shows them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from raftlog.coordinator.transactions.transaction import PREPARING, State, Transaction


@dataclass(slots=True)
class Ended:
    """Since this process began, over all coordinators. Fenced and timed out ones are among the aborted."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    """Aborted because another producer took the id."""


@dataclass(slots=True)
class Census:
    """The ids of one coordinator by state, and since when (wall clock ms) each transaction is open or being ended."""

    states: Counter[State] = field(default_factory=Counter)
    open_since: dict[str, int] = field(default_factory=dict)

    def changed(self, before: State, after: Transaction) -> None:
        """An id is what it is after a decision, or after it was read back."""
        if before is not after.state:
            self.states[before] -= 1
            self.states[after.state] += 1
            if after.state is State.ONGOING or after.state in PREPARING:
                self.open_since.setdefault(after.transactional_id, after.start_ms)
            else:
                self.open_since.pop(after.transactional_id, None)
