"""The partition's journal as groups see it: their records as one batch, in a transaction if they belong to one."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.base.errors import KafkaError
from raftlog.coordinator.group import GroupRecord, OffsetPending
from raftlog.coordinator.pending import TransactionalJournal
from raftlog.coordinator.records import KeyValue, encode_all

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; on KafkaError nothing is appended."""


class Journal:
    """`refusal`: why it took no records, when it last took none; whoever wants to know clears it before."""

    def __init__(self, append: Append, transactions: TransactionalJournal) -> None:
        self.refusal: KafkaError | None = None
        self._append = append
        self._transactions = transactions

    def append(self, records: tuple[GroupRecord, ...]) -> int:
        """Append the records of one decision; returns the end offset. Raises KafkaError with nothing appended."""
        first = records[0]
        try:
            if isinstance(first, OffsetPending):
                producer = (first.producer_id, first.producer_epoch)
                return self._transactions.append_in(encode_all(records), *producer)
            return self._append(encode_all(records))
        except KafkaError as error:
            self.refusal = error
            raise
