"""Counts of the outcomes of transactions: counted where they are decided, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlog.coordinator.transactions.transaction import (
    PREPARED_STATES,
    Transaction,
    TransactionState,
)


def _always(*asked: int) -> bool:
    return True


class TransactionCapacity(NamedTuple):
    """The capacity left in the broker: for one more id, and more partitions in open transactions."""

    may_add: Callable[[], bool] = _always
    may_open: Callable[[int], bool] = _always


@dataclass(slots=True)
class OutcomeCounts:
    """Since this process began, over all coordinators. Aborted includes fenced and timed out."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    """Aborted because another producer took the id."""


@dataclass(slots=True)
class TransactionCounts:
    """The ids of one coordinator by state, and since when (wall clock ms) each transaction is open or being ended."""

    states: Counter[TransactionState] = field(default_factory=Counter)
    open_since: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    """In all transactions that are open or being ended."""

    def update(self, before: Transaction, after: Transaction) -> None:
        """Update an id after a decision or its load."""
        self.partitions += len(after.partitions) - len(before.partitions)
        if before.state is not after.state:
            self.states[before.state] -= 1
            self.states[after.state] += 1
            if after.state is TransactionState.ONGOING or after.state in PREPARED_STATES:
                self.open_since.setdefault(after.transactional_id, after.start_ms)
            else:
                self.open_since.pop(after.transactional_id, None)
