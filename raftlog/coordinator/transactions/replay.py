"""Read a partition of `__transaction_state` back: the last word on each transactional id counts."""

from __future__ import annotations

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.transactions.records import decode
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.records.batch import Buffer, iter_headers, iter_records


class TransactionReplay:
    """Collects records batch by batch; damaged or unknown records are counted and left out."""

    __slots__ = ("_transactions", "next_offset", "skipped")

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Take whole batches as a log returns them; returns the offset to read on from."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            if not header.is_control:
                self._feed_batch(view[position : position + header.length])
            self.next_offset = header.end_offset
        return self.next_offset

    def _feed_batch(self, batch: memoryview) -> None:
        for record in iter_records(batch):
            try:
                change = decode(record.key, record.value)
            except CorruptMessage:
                change = None
            if change is None:
                self.skipped += 1
            elif change.transaction is None:
                self._transactions.pop(change.transactional_id, None)
            else:
                self._transactions[change.transactional_id] = change.transaction

    def transactions(self) -> list[Transaction]:
        """Return every transactional id that is known, in the order in which they were first heard of."""
        return list(self._transactions.values())
