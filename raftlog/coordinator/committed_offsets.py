"""A group's offsets while records are applied to them: committed offsets, and offsets pending in open transactions
(KIP-98).

It alone decides which of two commits for a partition wins: the later record, whenever the transaction of either ends.
So a replaced offset is dropped at once, and a marker needs no comparison. Replay and `group.apply` both use this, so
that a new coordinator has the state of the old.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from raftlog.coordinator.partition_map import PartitionKey, PartitionMap

Offset = TypeVar("Offset")


class PendingOffset(NamedTuple, Generic[Offset]):
    """An offset that counts once its transaction commits. `number` orders a group's pending offsets by their
    records.
    """

    committed: Offset
    number: int


class GroupOffsets(Generic[Offset]):
    """A working copy; `offsets`, `pending` (by producer id) and `next_pending_number` make a new Group.

    It shares unchanged parts with the former state: a group may have a million offsets.
    """

    __slots__ = ("_own", "next_pending_number", "offsets", "pending")

    def __init__(
        self,
        offsets: PartitionMap[Offset] | None = None,
        pending: Mapping[int, PartitionMap[PendingOffset[Offset]]] | None = None,
        pended: int = 0,
    ) -> None:
        self.offsets: PartitionMap[Offset] = PartitionMap(offsets)
        self.pending: dict[int, PartitionMap[PendingOffset[Offset]]] = dict(pending or {})
        self._own: set[int] = set()
        """Producers with partitions that no other state shares."""
        self.next_pending_number = pended

    def put(self, tp: PartitionKey, committed: Offset | None) -> None:
        """Store an offset outside any transaction; None removes it. It replaces earlier pending offsets."""
        if committed is None:
            self.offsets.pop(tp, None)
        else:
            self.offsets[tp] = committed
        if self.pending:
            self._forget_pending(tp, before=self.next_pending_number)

    def put_pending(self, producer_id: int, tp: PartitionKey, committed: Offset) -> None:
        """Put an offset in the open transaction of a producer."""
        self._owned(producer_id)[tp] = PendingOffset(committed, self.next_pending_number)
        self.next_pending_number += 1

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the transaction's marker: its offsets count from now on, or never."""
        ended = self.pending.pop(producer_id, None)
        self._own.discard(producer_id)
        if commit and ended:
            for tp, pending in ended.items():
                self.offsets[tp] = pending.committed
                self._forget_pending(tp, before=pending.number)

    def _forget_pending(self, tp: PartitionKey, *, before: int) -> None:
        for producer_id, offsets in tuple(self.pending.items()):
            if tp in offsets and offsets[tp].number < before:
                left = self._owned(producer_id)
                del left[tp]
                if not left:
                    del self.pending[producer_id]
                    self._own.discard(producer_id)

    def _owned(self, producer_id: int) -> PartitionMap[PendingOffset[Offset]]:
        if producer_id not in self._own:
            self._own.add(producer_id)
            self.pending[producer_id] = PartitionMap(self.pending.get(producer_id))
        return self.pending[producer_id]
