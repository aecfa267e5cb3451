"""Records of share groups as keys and values of `__consumer_offsets`, byte for byte Apache Kafka's.

Types 10 to 15, all of value version 0. They hold less than a consumer group's: members have neither an instance id nor
a regular expression, and no partitions to give up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from raftlog.coordinator.consumer.consumer_group_records import (
    VERSION,
    RecordFormat,
    partitions_field,
    read_array,
    read_partitions,
    read_value,
    record_key,
)
from raftlog.coordinator.consumer.consumer_membership import CurrentAssignment, MemberMetadata
from raftlog.coordinator.record_fields import (
    I8,
    I32,
    I64,
    NO_TAGS,
    FieldReader,
    KeyValue,
    compact_array,
    compact_string,
)
from raftlog.coordinator.share.share_membership import (
    ShareRecord,
    ShareStates,
    ShareStatesChanged,
    ShareTopic,
)

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATES = range(10, 16)


def encode(share: ShareRecord) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    record = share.record
    if isinstance(record, ShareStatesChanged):
        value = None if record.states is None else _states(record.states)
        return record_key(STATES, record.group_id), value
    return FORMAT.encode(record)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ShareRecord:
    """Return the record of a kind that is among these; `key` excludes the type. Raise CorruptMessage."""
    group_id = key.string()
    if kind == STATES:
        return ShareRecord(ShareStatesChanged(group_id, read_value(value, _read_states)))
    return ShareRecord(FORMAT.decode(kind, group_id, key, value))


# -- writing ---------------------------------------------------------------------------------------------


def _epoch(epoch: int, metadata_hash: int) -> bytes:
    return VERSION + I32.pack(epoch) + I64.pack(metadata_hash) + NO_TAGS


def _member(it: MemberMetadata) -> bytes:
    return b"".join(
        (
            VERSION,
            compact_string(it.rack_id),
            compact_string(it.client_id),
            compact_string(it.client_host),
            compact_array(it.topics, compact_string),
            NO_TAGS,
        )
    )


def _current(current: CurrentAssignment) -> bytes:
    epochs = I32.pack(current.epoch) + I32.pack(current.previous_epoch) + I8.pack(current.state)
    return VERSION + epochs + partitions_field(current.assigned) + NO_TAGS


def _states(states: ShareStates) -> bytes:
    def deleting(each: tuple[UUID, str]) -> bytes:
        return each[0].bytes + compact_string(each[1]) + NO_TAGS

    return b"".join(
        (
            VERSION,
            _topics(states.initializing),
            _topics(states.initialized),
            compact_array(sorted(states.deleting.items(), key=_number), deleting),
            NO_TAGS,
        )
    )


def _topics(topics: Mapping[UUID, ShareTopic]) -> bytes:
    def topic(each: tuple[UUID, ShareTopic]) -> bytes:
        topic_id, it = each
        indexes = compact_array(sorted(it.partitions), I32.pack)
        return topic_id.bytes + compact_string(it.name) + indexes + NO_TAGS

    return compact_array(sorted(topics.items(), key=_number), topic)


def _number(each: tuple[UUID, object]) -> int:
    """Return what a topic is sorted by: its id, as a number, since ids take long to compare."""
    return each[0].int


# -- reading ---------------------------------------------------------------------------------------------


def _read_epoch(fields: FieldReader) -> tuple[int, int]:
    epoch, metadata_hash = fields.int32(), fields.int64()
    fields.tagged()
    return epoch, metadata_hash


def _read_member(fields: FieldReader) -> MemberMetadata:
    rack_id, client_id, client_host = fields.nullable_string(), fields.string(), fields.string()
    topics = fields.strings()
    fields.tagged()
    return MemberMetadata(rack_id=rack_id, client_id=client_id, client_host=client_host, topics=topics)


def _read_current(fields: FieldReader) -> CurrentAssignment:
    epoch, previous, _ = fields.int32(), fields.int32(), fields.int8()
    assigned = read_partitions(fields)
    fields.tagged()
    return CurrentAssignment(epoch, previous, assigned=assigned)


def _read_states(fields: FieldReader) -> ShareStates:
    initializing, initialized = _read_topics(fields), _read_topics(fields)
    deleting = read_array(fields, lambda: (fields.uuid(), fields.string()))
    fields.tagged()
    return ShareStates(initializing, initialized, dict(deleting))


def _read_topics(fields: FieldReader) -> dict[UUID, ShareTopic]:
    def topic() -> tuple[UUID, ShareTopic]:
        topic_id, name = fields.uuid(), fields.string()
        return topic_id, ShareTopic(name, frozenset(fields.int32() for _ in range(fields.count())))

    return dict(read_array(fields, topic))


FORMAT: Final = RecordFormat(
    EPOCH,
    MEMBER,
    TARGET_EPOCH,
    TARGET,
    CURRENT,
    write_epoch=_epoch,
    write_member=_member,
    write_current=_current,
    read_epoch=_read_epoch,
    read_member=_read_member,
    read_current=_read_current,
)
