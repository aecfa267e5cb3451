"""The partition's journal as groups see it: their records as one batch, in a transaction if they belong to one."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.base.errors import KafkaError
from raftlog.coordinator.group import GroupRecord, TransactionalOffsetCommitted
from raftlog.coordinator.group_records import KeyValue, encode_all
from raftlog.coordinator.transactional_offsets import TransactionalWriter

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; on KafkaError nothing is appended."""


class PartitionWriter:
    """`last_error`: why it took no records, when it last took none; whoever wants to know clears it before."""

    def __init__(self, append: Append, transactions: TransactionalWriter) -> None:
        self.last_error: KafkaError | None = None
        self._append = append
        self._transactions = transactions

    def append(self, records: tuple[GroupRecord, ...]) -> int:
        """Append the records of one decision; returns the end offset. Raises KafkaError with nothing appended."""
        first = records[0]
        try:
            if isinstance(first, TransactionalOffsetCommitted):
                producer = (first.producer_id, first.producer_epoch)
                return self._transactions.append_transactional(encode_all(records), *producer)
            return self._append(encode_all(records))
        except KafkaError as error:
            self.last_error = error
            raise
