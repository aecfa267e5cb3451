"""A group's offsets while records are applied to them: what is committed, and what hangs on open transactions (KIP-98).

The one place that knows which of two commits for a partition stands: the one whose record came later, whenever the
transaction of either ends. So what a later record replaced is forgotten at once, and nothing has to be compared when a
marker comes. Replay and `group.apply` both stand on this, so that a new coordinator knows what the old one did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

Offset = TypeVar("Offset")

Place = tuple[str, int]
"""A topic's name and a partition of it."""


class Pending(NamedTuple, Generic[Offset]):
    """An offset that counts once its transaction commits. `number` orders those of a group by their records."""

    committed: Offset
    number: int


class Positions(Generic[Offset]):
    """A working copy; `offsets`, `pending` (by producer id) and `pended` are what a new Group is made of."""

    __slots__ = ("offsets", "pended", "pending")

    def __init__(
        self,
        offsets: Mapping[Place, Offset] | None = None,
        pending: Mapping[int, Mapping[Place, Pending[Offset]]] | None = None,
        pended: int = 0,
    ) -> None:
        self.offsets: dict[Place, Offset] = dict(offsets or {})
        self.pending: dict[int, dict[Place, Pending[Offset]]] = {
            producer_id: dict(places) for producer_id, places in (pending or {}).items()
        }
        self.pended = pended

    def put(self, place: Place, committed: Offset | None) -> None:
        """An offset outside any transaction; None removes it. It replaces what pends from earlier."""
        if committed is None:
            self.offsets.pop(place, None)
        else:
            self.offsets[place] = committed
        if self.pending:
            self._forget_pending(place, before=self.pended)

    def pend(self, producer_id: int, place: Place, committed: Offset) -> None:
        """An offset in the open transaction of a producer."""
        self.pending.setdefault(producer_id, {})[place] = Pending(committed, self.pended)
        self.pended += 1

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The transaction's marker: its offsets count from now on, or never."""
        ended = self.pending.pop(producer_id, {})
        if commit:
            for place, pending in ended.items():
                self.offsets[place] = pending.committed
                self._forget_pending(place, before=pending.number)

    def _forget_pending(self, place: Place, *, before: int) -> None:
        for producer_id, places in tuple(self.pending.items()):
            if place in places and places[place].number < before:
                del places[place]
                if not places:
                    del self.pending[producer_id]
