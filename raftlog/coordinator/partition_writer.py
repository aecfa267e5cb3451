"""The partition's journal for groups: appends records as one batch, in a transaction if required."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.base.errors import KafkaError
from raftlog.coordinator.group import GroupRecord, TransactionalOffsetCommitted
from raftlog.coordinator.group_records import encode_all
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.transactional_offsets import TransactionalWriter

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; a KafkaError means no append."""


class PartitionWriter:
    """`last_error`: the error of the last failed append; callers that want to see it clear it before."""

    def __init__(self, append: Append, transactions: TransactionalWriter) -> None:
        self.last_error: KafkaError | None = None
        self._append = append
        self._transactions = transactions

    def append(self, records: tuple[GroupRecord, ...]) -> int:
        """Append the records of one decision; return the end offset. Raise KafkaError without an append."""
        first = records[0]
        try:
            if isinstance(first, TransactionalOffsetCommitted):
                producer = (first.producer_id, first.producer_epoch)
                return self._transactions.append_transactional(encode_all(records), *producer)
            return self._append(encode_all(records))
        except KafkaError as error:
            self.last_error = error
            raise
