"""Records of `__share_group_state`: keys and values byte for byte Apache Kafka's.

The version at the head of a key is the type of its record: 0 is a snapshot, 1 an update. Keys of other types are
skipped, not refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.record_fields import (
    I16,
    I32,
    I64,
    FieldReader,
    KeyValue,
    compact_array,
    string,
    tagged,
)
from raftlog.coordinator.share_state.share_state import (
    NO_COUNT,
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
)
from raftlog.sharing.dead_letter import DeadLetters, decode_dead_letters
from raftlog.sharing.delivery import DeliveryState, StateBatch

SNAPSHOT: Final = 0
UPDATE: Final = 1
VALUE_VERSION: Final = 0

_BATCH: Final = Struct(">qqbhx")
"""A batch without tagged fields."""

COMPLETE_COUNT_TAG: Final = 0
"""The number of completed records (KIP-1226)."""

LETTERS_TAG: Final = 0x7261
"""The dead letters: raftlog's own field, far from Kafka's. Readers skip tags that they do not know (KIP-482)."""


def encode(record: ShareRecord) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    if isinstance(record, ShareUpdate):
        return _key(UPDATE, record.key), _update(record)
    return _key(SNAPSHOT, record.key), None if record.state is None else _snapshot(record.state)


def encode_all(records: Sequence[ShareRecord]) -> tuple[KeyValue, ...]:
    return tuple(map(encode, records))


def decode(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    """Return the record, or None for an unknown type. Raise CorruptMessage."""
    if key is None:
        return None
    fields = FieldReader(key)
    kind = fields.int16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    found = SharePartitionKey(fields.string(), fields.uuid(), fields.int32())
    if kind == SNAPSHOT:
        return ShareSnapshot(found, None if value is None else _read_snapshot(value))
    return None if value is None else _read_update(found, value)


def _key(kind: int, key: SharePartitionKey) -> bytes:
    return I16.pack(kind) + string(key.group_id) + key.topic_id.bytes + I32.pack(key.partition)


def _snapshot(state: ShareState) -> bytes:
    return b"".join(
        (
            I16.pack(VALUE_VERSION),
            I32.pack(state.snapshot_epoch),
            I32.pack(state.state_epoch),
            I32.pack(state.leader_epoch),
            I64.pack(state.start_offset),
            I64.pack(state.create_timestamp_ms),
            I64.pack(state.write_timestamp_ms),
            compact_array(state.batches, _batch),
            _tags(state.delivery_complete_count, state.letters),
        )
    )


def _update(record: ShareUpdate) -> bytes:
    return b"".join(
        (
            I16.pack(VALUE_VERSION),
            I32.pack(record.snapshot_epoch),
            I32.pack(record.leader_epoch),
            I64.pack(record.start_offset),
            compact_array(record.batches, _batch),
            _tags(record.delivery_complete_count, record.letters),
        )
    )


def _batch(batch: StateBatch) -> bytes:
    return _BATCH.pack(*batch)


def _tags(delivery_complete_count: int, letters: DeadLetters | None) -> bytes:
    """Return the tagged fields; a field with its default value is left out, as in Kafka."""
    return tagged(
        {
            COMPLETE_COUNT_TAG: b""
            if delivery_complete_count == NO_COUNT
            else I32.pack(delivery_complete_count),
            LETTERS_TAG: b"" if letters is None else letters.encode(),
        }
    )


def _value_reader(value: bytes) -> FieldReader:
    fields = FieldReader(value)
    if (version := fields.int16()) != VALUE_VERSION:
        raise CorruptMessage(f"version {version} of a share state record is unknown")
    fields.flexible = True
    return fields


def _read_snapshot(value: bytes) -> ShareState:
    fields = _value_reader(value)
    snapshot_epoch, state_epoch, leader_epoch = fields.int32(), fields.int32(), fields.int32()
    start_offset, create_timestamp_ms, write_timestamp_ms = fields.int64(), fields.int64(), fields.int64()
    batches = tuple(_read_batches(fields))
    complete_count, letters = _read_tags(fields)
    return ShareState(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        batches,
        complete_count,
        create_timestamp_ms,
        write_timestamp_ms,
        letters=letters,
    )


def _read_update(key: SharePartitionKey, value: bytes) -> ShareUpdate:
    fields = _value_reader(value)
    snapshot_epoch, leader_epoch, start_offset = fields.int32(), fields.int32(), fields.int64()
    batches = tuple(_read_batches(fields))
    return ShareUpdate(key, snapshot_epoch, leader_epoch, start_offset, batches, *_read_tags(fields))


def _read_batches(fields: FieldReader) -> Iterator[StateBatch]:
    for _ in range(fields.count()):
        first_offset, last_offset, state, count = (
            fields.int64(),
            fields.int64(),
            fields.int8(),
            fields.int16(),
        )
        fields.tagged()
        try:
            yield StateBatch(first_offset, last_offset, DeliveryState(state), count)
        except ValueError as error:
            raise CorruptMessage(f"delivery state {state} is unknown") from error


def _read_tags(fields: FieldReader) -> tuple[int, DeadLetters | None]:
    tags = fields.tagged()
    count = FieldReader(tags[COMPLETE_COUNT_TAG]).int32() if COMPLETE_COUNT_TAG in tags else NO_COUNT
    return count, decode_dead_letters(bytes(tags.get(LETTERS_TAG, b"")))
