"""Group records as the keys and values of `__consumer_offsets`, byte for byte Apache Kafka's.

Written: OffsetCommitKey v1 with OffsetCommitValue v3 (v1 where an expiry is named), GroupMetadataKey v2 with
GroupMetadataValue v3. Read: those, and the older and newer value versions (0 … 4). A key type of a coordinator that is
not built here is skipped, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_EPOCH
from raftlog.coordinator.group import (
    CommittedOffset,
    GroupChanged,
    GroupRecord,
    Member,
    Membership,
    OffsetCommitted,
)

KeyValue = tuple[bytes, bytes | None]

OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
"""The only one that can say when an offset expires; it cannot tell a leader epoch."""

GROUP_VALUE_VERSION: Final = 3
FIRST_FLEXIBLE_VERSION: Final = 4

LONGEST_STRING_BYTES: Final = 32_767
"""What a record can hold of a group id, a member's names or an offset's text."""

_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")


def encode(record: GroupRecord) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    if isinstance(record, GroupChanged):
        return _group_key(record.group_id), None if record.membership is None else _group_value(
            record.membership
        )
    return _offset_key(record), None if record.committed is None else _offset_value(record.committed)


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """Return the record, or None for one of an unknown type. Raises CorruptMessage."""
    if key is None:
        return None
    fields = _Reader(key)
    kind = fields.int16()
    if kind in OFFSET_KEY_VERSIONS:
        group_id, topic, partition = fields.string(), fields.string(), fields.int32()
        return OffsetCommitted(group_id, topic, partition, None if value is None else _read_offset(value))
    if kind == GROUP_KEY_VERSION:
        return GroupChanged(fields.string(), None if value is None else _read_group(value))
    return None


def encode_all(records: Sequence[GroupRecord]) -> tuple[KeyValue, ...]:
    return tuple(map(encode, records))


# -- writing ---------------------------------------------------------------------------------------------


def _string(text: str | None) -> bytes:
    if text is None:
        return _I16.pack(-1)
    encoded = text.encode()
    return _I16.pack(len(encoded)) + encoded


def _bytes(content: bytes) -> bytes:
    return _I32.pack(len(content)) + content


def _offset_key(record: OffsetCommitted) -> bytes:
    return b"".join(
        (_I16.pack(1), _string(record.group_id), _string(record.topic), _I32.pack(record.partition))
    )


def _offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_timestamp_ms >= 0:
        return b"".join(
            (
                _I16.pack(EXPIRING_OFFSET_VALUE_VERSION),
                _I64.pack(committed.offset),
                _string(committed.metadata),
                _I64.pack(committed.commit_timestamp_ms),
                _I64.pack(committed.expire_timestamp_ms),
            )
        )
    return b"".join(
        (
            _I16.pack(OFFSET_VALUE_VERSION),
            _I64.pack(committed.offset),
            _I32.pack(committed.leader_epoch),
            _string(committed.metadata),
            _I64.pack(committed.commit_timestamp_ms),
        )
    )


def _group_key(group_id: str) -> bytes:
    return _I16.pack(GROUP_KEY_VERSION) + _string(group_id)


def _group_value(membership: Membership) -> bytes:
    parts = [
        _I16.pack(GROUP_VALUE_VERSION),
        _string(membership.protocol_type or ""),
        _I32.pack(membership.generation),
        _string(membership.protocol),
        _string(membership.leader),
        _I64.pack(membership.since_ms),
        _I32.pack(len(membership.members)),
    ]
    for member in membership.members.values():
        parts += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


# -- reading ---------------------------------------------------------------------------------------------


class _Reader:
    """Fields one after the other; `flexible` ones have compact lengths and tagged fields (KIP-482)."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptMessage("a group record is cut off")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _number(self, layout: Struct) -> int:
        try:
            number: int = layout.unpack_from(self._data, self._position)[0]
        except StructError as error:
            raise CorruptMessage("a group record is cut off") from error
        self._position += layout.size
        return number

    def int16(self) -> int:
        return self._number(_I16)

    def int32(self) -> int:
        return self._number(_I32)

    def int64(self) -> int:
        return self._number(_I64)

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
            if shift > 28:
                raise CorruptMessage("a length in a group record is too long")

    def _length(self, layout: Struct) -> int:
        return self.varint() - 1 if self.flexible else self._number(layout)

    def nullable_string(self) -> str | None:
        size = self._length(_I16)
        try:
            return None if size < 0 else self._take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptMessage("text in a group record is not UTF-8") from error

    def string(self) -> str:
        return self.nullable_string() or ""

    def bytes(self) -> bytes:
        return self._take(self._length(_I32))

    def count(self) -> int:
        """An array's length; every element takes at least one byte."""
        size = self._length(_I32)
        if size > len(self._data) - self._position:
            raise CorruptMessage("a group record is cut off")
        return max(size, 0)

    def tagged(self) -> None:
        """Skip tagged fields, if there can be any."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self._take(self.varint())


def _value_reader(value: bytes) -> tuple[_Reader, int]:
    fields = _Reader(value)
    version = fields.int16()
    if not 0 <= version <= FIRST_FLEXIBLE_VERSION:
        raise CorruptMessage(f"version {version} of a group record is unknown")
    fields.flexible = version >= FIRST_FLEXIBLE_VERSION
    return fields, version


def _read_offset(value: bytes) -> CommittedOffset:
    """Versions: 0 offset, metadata, timestamp; 1 adds an expiry; 3 replaces it by the leader epoch; 4 is flexible."""
    fields, version = _value_reader(value)
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    metadata, committed_ms = fields.string(), fields.int64()
    expires_ms = fields.int64() if version == EXPIRING_OFFSET_VALUE_VERSION else -1
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms)


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


def _read_member(fields: _Reader, version: int) -> Member:
    member_id = fields.string()
    group_instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    subscription, assignment = fields.bytes(), fields.bytes()
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
