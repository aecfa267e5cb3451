"""Group records as the keys and values of `__consumer_offsets`, byte for byte Apache Kafka's.

Written, as by Apache Kafka 4.1 and later: OffsetCommitKey v1 with OffsetCommitValue v4 (v1 where an expiry is named),
GroupMetadataKey v2 with GroupMetadataValue v3. Read: value versions 0 … 4. Consumer groups have
`consumer.consumer_group_records`, share groups `share.share_group_records`. A key type of a coordinator that does not
exist here is skipped, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_EPOCH
from raftlog.coordinator.consumer import consumer_group_records as consumer_records
from raftlog.coordinator.consumer.consumer_membership import ConsumerRecord
from raftlog.coordinator.group import (
    CommittedOffset,
    GroupChanged,
    GroupRecord,
    Member,
    Membership,
    OffsetCommitted,
    ReadRecord,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from raftlog.coordinator.record_fields import (
    I16,
    I32,
    I64,
    NO_TAGS,
    FieldReader,
    KeyValue,
    compact_string,
    raw_bytes,
    string,
    tagged,
)

OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
SHARE_TYPES: Final = range(10, 16)
"""The types of share groups' records."""

OFFSET_VALUE_VERSION: Final = 4
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
"""Only this version has an expiry; it has neither a leader epoch nor a topic id."""

GROUP_VALUE_VERSION: Final = 3
FIRST_FLEXIBLE_VERSION: Final = 4

TOPIC_ID_TAG: Final = 0
UUID_BYTES: Final = 16
TOPIC_ID_FIELD: Final = tagged({TOPIC_ID_TAG: bytes(UUID_BYTES)})[:-UUID_BYTES]
"""The field before a topic's id in a value."""

NO_METADATA: Final = compact_string("")
_OFFSET_HEAD = Struct(">hqi")
KNOWN_TOPIC_IDS: Final = 10_000
"""This many topic ids are shared objects in all offsets; beyond it offsets take more memory."""

BATCH_BYTES: Final = 61
RECORD_BYTES: Final = 20
"""The size of a batch and a record in it at most, beside keys and values."""

MAX_STRING_BYTES: Final = 32_767
"""The largest group id, member's names or offset's text that a record can hold."""


def is_metadata_too_large(metadata: str, most: int) -> bool:
    """Return whether an offset's text is longer than `offset.metadata.max.bytes`, or than a record can hold.

    In spite of its name the setting counts UTF-16 code units, as Java's String.length does.
    """
    return len(metadata.encode("utf-16-le")) // 2 > most or len(metadata.encode()) > MAX_STRING_BYTES


def encode(record: GroupRecord) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    if isinstance(record, GroupChanged):
        return _group_key(record.group_id), None if record.membership is None else _group_value(
            record.membership
        )
    assert not isinstance(record, TransactionEnded), "a marker is a batch of its own"
    if isinstance(record, OffsetCommitted | TransactionalOffsetCommitted):
        return _offset_key(record), None if record.committed is None else _offset_value(record.committed)
    if isinstance(record, ConsumerRecord):
        return consumer_records.encode(record)
    from raftlog.coordinator.share import share_group_records  # few clusters have share groups

    return share_group_records.encode(record)


def decode(key: bytes | None, value: bytes | None) -> ReadRecord | None:
    """Return the record, or None for an unknown type. Raise CorruptMessage."""
    if key is None:
        return None
    fields = FieldReader(key)
    kind = fields.int16()
    if kind in OFFSET_KEY_VERSIONS:
        group_id, topic, partition = fields.string(), fields.string(), fields.int32()
        return OffsetCommitted(group_id, topic, partition, None if value is None else _read_offset(value))
    if kind == GROUP_KEY_VERSION:
        return GroupChanged(fields.string(), None if value is None else _read_group(value))
    if kind in consumer_records.TYPES:
        return consumer_records.decode(kind, fields, value)
    if kind in SHARE_TYPES:
        from raftlog.coordinator.share import share_group_records

        return share_group_records.decode(kind, fields, value)
    return None


def encode_all(records: Sequence[GroupRecord]) -> tuple[KeyValue, ...]:
    return tuple(map(encode, records))


def batch_bytes(records: Sequence[GroupRecord]) -> int:
    """Return the largest size of a batch of these."""
    encoded = encode_all(records)
    return BATCH_BYTES + sum(RECORD_BYTES + len(key) + len(value or b"") for key, value in encoded)


# -- writing ---------------------------------------------------------------------------------------------


def _offset_key(record: OffsetCommitted | TransactionalOffsetCommitted) -> bytes:
    return _offset_key_head(record.group_id, record.topic) + I32.pack(record.partition)


@lru_cache(maxsize=1_000)
def _offset_key_head(group_id: str, topic: str) -> bytes:
    """Cached, since all keys of a topic share it: a commit may have ten thousand partitions."""
    return I16.pack(1) + string(group_id) + string(topic)


def _offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_timestamp_ms >= 0:
        return b"".join(
            (
                I16.pack(EXPIRING_OFFSET_VALUE_VERSION),
                I64.pack(committed.offset),
                string(committed.metadata),
                I64.pack(committed.commit_timestamp_ms),
                I64.pack(committed.expire_timestamp_ms),
            )
        )
    head = _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
    metadata = compact_string(committed.metadata) if committed.metadata else NO_METADATA
    time = I64.pack(committed.commit_timestamp_ms)
    if committed.topic_id is None:
        return head + metadata + time + NO_TAGS
    return head + metadata + time + TOPIC_ID_FIELD + committed.topic_id.bytes


def _group_key(group_id: str) -> bytes:
    return I16.pack(GROUP_KEY_VERSION) + string(group_id)


def _group_value(membership: Membership) -> bytes:
    parts = [
        I16.pack(GROUP_VALUE_VERSION),
        string(membership.protocol_type or ""),
        I32.pack(membership.generation),
        string(membership.protocol),
        string(membership.leader),
        I64.pack(membership.since_ms),
        I32.pack(len(membership.members)),
    ]
    for member in membership.members.values():
        parts += (
            string(member.member_id),
            string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            I32.pack(member.rebalance_timeout_ms),
            I32.pack(member.session_timeout_ms),
            raw_bytes(member.subscription),
            raw_bytes(member.assignment),
        )
    return b"".join(parts)


# -- reading ---------------------------------------------------------------------------------------------


def _value_reader(value: bytes) -> tuple[FieldReader, int]:
    fields = FieldReader(value)
    version = fields.int16()
    if not 0 <= version <= FIRST_FLEXIBLE_VERSION:
        raise CorruptMessage(f"version {version} of a group record is unknown")
    fields.flexible = version >= FIRST_FLEXIBLE_VERSION
    return fields, version


def _read_offset(value: bytes) -> CommittedOffset:
    """Decode the value of an offset commit.

    Version 0 has offset, metadata and timestamp. Version 1 adds an expiry, and version 3 replaces it by the leader
    epoch. Version 4 is flexible, and has the topic's id since Apache Kafka 4.1.
    """
    fields, version = _value_reader(value)
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    metadata, committed_ms = fields.string(), fields.int64()
    expires_ms = fields.int64() if version == EXPIRING_OFFSET_VALUE_VERSION else -1
    topic_id = _topic_id(fields.tagged().get(TOPIC_ID_TAG, b"")) if fields.flexible else None
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)


@lru_cache(KNOWN_TOPIC_IDS)
def _topic_id(field: bytes) -> UUID | None:
    """Return the id; None without an id, or for the zero id."""
    if len(field) not in (0, UUID_BYTES):
        raise CorruptMessage("a topic's id has 16 bytes")
    return UUID(bytes=field) if any(field) else None


def _read_group(value: bytes) -> Membership:
    """Versions: 1 adds rebalance timeouts, 2 the state's timestamp, 3 static members; 4 is flexible."""
    fields, version = _value_reader(value)
    protocol_type, generation = fields.string(), fields.int32()
    protocol, leader = fields.nullable_string(), fields.nullable_string()
    since_ms = fields.int64() if version >= 2 else -1
    members = [_read_member(fields, version) for _ in range(fields.count())]
    return Membership(
        protocol_type or None,
        generation,
        protocol,
        leader,
        since_ms,
        {each.member_id: each for each in members},
    )


def _read_member(fields: FieldReader, version: int) -> Member:
    member_id = fields.string()
    group_instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    subscription, assignment = fields.raw_bytes(), fields.raw_bytes()
    fields.tagged()
    return Member(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
