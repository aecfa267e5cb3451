"""Records of `__transaction_state`: keys and values byte for byte Apache Kafka's.

It writes TransactionLogKey v0 and TransactionLogValue v1, as Kafka does from transaction.version 1 on, and also reads
values of version 0. A key of an unknown type is skipped, not refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from raftlog.coordinator.record_fields import (
    I8,
    I16,
    I32,
    I64,
    NO_TAGS,
    FieldReader,
    KeyValue,
    compact_array,
    compact_string,
    string,
    tagged,
    varint,
)
from raftlog.coordinator.transactions.transaction import (
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
    TransactionChanged,
    TransactionState,
)
from raftlog.records.batch import Buffer, iter_headers, iter_records, skip_headers

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
FIRST_FLEXIBLE_VERSION: Final = 1

PREVIOUS_ID_TAG, NEXT_ID_TAG, CLIENT_VERSION_TAG = 0, 1, 2
LAST_EPOCH_TAG = 4
"""Apache Kafka's `LastProducerEpoch` (KAFKA-20357). Tag 3 is for transactions of two phases (KIP-939)."""

_STATUS: Final = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
    TransactionState.DEAD: 6,
    TransactionState.PREPARE_EPOCH_FENCE: 7,
}
_STATES: Final = {status: state for state, status in _STATUS.items()}
_NO_PARTITIONS: Final = b"\x00"


def encode(record: TransactionChanged) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    key = I16.pack(KEY_VERSION) + string(record.transactional_id)
    return key, None if record.transaction is None else _value(record.transaction)


def encode_all(records: Sequence[TransactionChanged]) -> tuple[KeyValue, ...]:
    return tuple(map(encode, records))


def decode(key: bytes | None, value: bytes | None) -> TransactionChanged | None:
    """Return the record, or None for an unknown type. Raise CorruptMessage."""
    if key is None:
        return None
    fields = FieldReader(key)
    if fields.int16() != KEY_VERSION:
        return None
    transactional_id = fields.string()
    return TransactionChanged(transactional_id, None if value is None else _read(transactional_id, value))


def _value(transaction: Transaction) -> bytes:
    return b"".join(
        (
            I16.pack(VALUE_VERSION),
            I64.pack(transaction.producer.producer_id),
            I16.pack(transaction.producer.epoch),
            I32.pack(transaction.timeout_ms),
            I8.pack(_STATUS[transaction.state]),
            _partitions(transaction),
            I64.pack(transaction.update_ms),
            I64.pack(transaction.start_ms),
            _tags(transaction),
        )
    )


def _partitions(transaction: Transaction) -> bytes:
    if transaction.state is TransactionState.EMPTY:
        return _NO_PARTITIONS
    topics = groupby(sorted(transaction.partitions), key=lambda each: each.topic)
    return compact_array(topics, _topic)


def _topic(topic: tuple[str, Iterable[TopicPartition]]) -> bytes:
    name, partitions = topic
    indexes = [I32.pack(each.partition) for each in partitions]
    return compact_string(name) + varint(len(indexes) + 1) + b"".join(indexes) + NO_TAGS


def _tags(transaction: Transaction) -> bytes:
    """Empty tags are left out, as in Kafka."""
    version = transaction.client_version.value
    return tagged(
        {
            PREVIOUS_ID_TAG: _id(transaction.previous_id),
            NEXT_ID_TAG: _id(transaction.next_id),
            CLIENT_VERSION_TAG: I16.pack(version) if version else b"",
            LAST_EPOCH_TAG: b"" if transaction.last_epoch == NO_EPOCH else I16.pack(transaction.last_epoch),
        }
    )


def _id(producer_id: int) -> bytes:
    return b"" if producer_id == NO_PRODUCER_ID else I64.pack(producer_id)


def _read(transactional_id: str, value: bytes) -> Transaction:
    fields = FieldReader(value)
    version = fields.int16()
    if not 0 <= version <= VALUE_VERSION:
        raise CorruptMessage(f"version {version} of a transaction record is unknown")
    fields.flexible = version >= FIRST_FLEXIBLE_VERSION
    producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
    state = _STATES.get(status := fields.int8())
    if state is None or state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise CorruptMessage(f"a transaction record cannot have status {status}")
    partitions = frozenset(_read_partitions(fields))
    update_ms, start_ms = fields.int64(), fields.int64()
    tags = fields.tagged()
    return Transaction(
        transactional_id,
        ProducerIdAndEpoch(producer_id, epoch),
        state,
        timeout_ms,
        partitions,
        start_ms,
        update_ms,
        last_epoch=FieldReader(tags[LAST_EPOCH_TAG]).int16() if LAST_EPOCH_TAG in tags else NO_EPOCH,
        previous_id=_read_id(tags, PREVIOUS_ID_TAG),
        next_id=_read_id(tags, NEXT_ID_TAG),
        client_version=_read_version(tags),
    )


def _read_partitions(fields: FieldReader) -> Iterable[TopicPartition]:
    for _ in range(fields.count()):
        topic = fields.string()
        for _ in range(fields.count()):
            yield TopicPartition(topic, fields.int32())
        fields.tagged()


def _read_id(tags: dict[int, bytes], tag: int) -> int:
    return FieldReader(tags[tag]).int64() if tag in tags else NO_PRODUCER_ID


def _read_version(tags: dict[int, bytes]) -> ClientTransactionVersion:
    if CLIENT_VERSION_TAG not in tags:
        return ClientTransactionVersion.TV_0
    number = FieldReader(tags[CLIENT_VERSION_TAG]).int16()
    try:
        return ClientTransactionVersion(number)
    except ValueError as error:
        raise CorruptMessage(f"client transaction version {number} is unknown") from error


class TransactionReplay:
    """Replays a partition of `__transaction_state`, batch by batch: the last record of each transactional id counts.

    Damaged or unknown records are counted and skipped.
    """

    __slots__ = ("_transactions", "next_offset", "skipped")

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Apply whole batches as a log returns them; return the offset to continue from.

        Only the last record of each id is decoded, since a busy id has very many.
        """
        view = memoryview(batches)
        values_by_key: dict[bytes | None, list[bytes | None]] = {}
        for position, header in iter_headers(view):
            if not header.is_control:
                for record in iter_records(
                    view[position : position + header.length], read_headers=skip_headers
                ):
                    values_by_key.setdefault(record.key, []).append(record.value)
            self.next_offset = header.end_offset
        for key, values in values_by_key.items():
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
