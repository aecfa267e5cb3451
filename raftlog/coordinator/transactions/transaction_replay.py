"""Replays a partition of `__transaction_state`: the last record of each transactional id counts."""

from __future__ import annotations

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.coordinator.transactions.transaction_records import decode
from raftlog.records.batch import Buffer, iter_headers, iter_records


class TransactionReplay:
    """Collects records batch by batch; damaged or unknown records are counted and skipped."""

    __slots__ = ("_transactions", "next_offset", "skipped")

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Apply whole batches as a log returns them; return the offset to continue from.

        Only the last record of each id is decoded: a few busy ids have very many.
        """
        view = memoryview(batches)
        words: dict[bytes | None, list[bytes | None]] = {}
        for position, header in iter_headers(view):
            if not header.is_control:
                for record in iter_records(view[position : position + header.length]):
                    words.setdefault(record.key, []).append(record.value)
            self.next_offset = header.end_offset
        for key, values in words.items():
            self._take_last(key, values)
        return self.next_offset

    def _take_last(self, key: bytes | None, values: list[bytes | None]) -> None:
        """Apply the last record that can be decoded."""
        for value in reversed(values):
            try:
                change = decode(key, value)
            except CorruptMessage:
                change = None
            if change is None:
                self.skipped += 1
            elif change.transaction is None:
                self._transactions.pop(change.transactional_id, None)
                return
            else:
                self._transactions[change.transactional_id] = change.transaction
                return

    def transactions(self) -> list[Transaction]:
        """Return every known transactional id, in the order of their first records."""
        return list(self._transactions.values())
