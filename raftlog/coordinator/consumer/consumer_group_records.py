"""Records of consumer groups as keys and values of `__consumer_offsets`, byte for byte Apache Kafka's.

Types 3, 5 … 8 and 16, all of value version 0. Type 4 (ConsumerGroupPartitionMetadata) is obsolete: since 4.1 the
epoch's record holds a hash instead (KIP-1101), so it is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.consumer.consumer_membership import (
    NEW_MEMBER,
    ClassicProtocols,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    MemberChanged,
    MemberMetadata,
    MemberState,
    Partitions,
    RegexResolved,
    ResolvedRegex,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
)
from raftlog.coordinator.record_fields import (
    I8,
    I16,
    I32,
    I64,
    NO_TAGS,
    FieldReader,
    KeyValue,
    compact_array,
    compact_bytes,
    compact_string,
    string,
    tagged,
)

EPOCH: Final = 3
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16
TYPES: Final = frozenset({EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX})

ASSIGNMENT_EPOCHS_TAG: Final = 0

VERSION: Final = I16.pack(0)
_PRESENT: Final = I8.pack(1)

Element = TypeVar("Element")


class RecordFormat(NamedTuple):
    """The records that groups of a kind have in common with other kinds: their types and the encoding of values."""

    epoch: int
    member: int
    target_epoch: int
    target: int
    current: int
    write_epoch: Callable[[int, int], bytes]
    write_member: Callable[[MemberMetadata], bytes]
    write_current: Callable[[CurrentAssignment], bytes]
    read_epoch: Callable[[FieldReader], tuple[int, int]]
    read_member: Callable[[FieldReader], MemberMetadata]
    read_current: Callable[[FieldReader], CurrentAssignment]

    def encode(self, record: ConsumerRecord) -> KeyValue:
        """Return a record's key and value; the value None is a tombstone."""
        value: bytes | None
        match record:
            case GroupEpochChanged():
                value = None if record.epoch is None else self.write_epoch(record.epoch, record.metadata_hash)
                return record_key(self.epoch, record.group_id), value
            case TargetAssignmentEpochChanged():
                value = None if record.epoch is None else VERSION + I32.pack(record.epoch) + NO_TAGS
                return record_key(self.target_epoch, record.group_id), value
            case MemberChanged():
                value = None if record.metadata is None else self.write_member(record.metadata)
                return record_key(self.member, record.group_id, record.member_id), value
            case TargetAssignmentChanged():
                partitions = record.partitions
                value = None if partitions is None else VERSION + partitions_field(partitions) + NO_TAGS
                return record_key(self.target, record.group_id, record.member_id), value
            case CurrentAssignmentChanged():
                value = None if record.current is None else self.write_current(record.current)
                return record_key(self.current, record.group_id, record.member_id), value
        raise AssertionError(f"{type(record).__name__} has a format of its own")

    def decode(self, kind: int, group_id: str, key: FieldReader, value: bytes | None) -> ConsumerRecord:
        """Return the record of a kind that is among these; `key` begins after the group. Raise CorruptMessage."""
        if kind == self.epoch:
            return GroupEpochChanged(group_id, *(read_value(value, self.read_epoch) or (None,)))
        if kind == self.target_epoch:
            return TargetAssignmentEpochChanged(group_id, read_value(value, _read_target_epoch))
        member_id = key.string()
        if kind == self.member:
            return MemberChanged(group_id, member_id, read_value(value, self.read_member))
        if kind == self.target:
            return TargetAssignmentChanged(group_id, member_id, read_value(value, _read_target))
        return CurrentAssignmentChanged(group_id, member_id, read_value(value, self.read_current))


def encode(record: ConsumerRecord) -> KeyValue:
    """Return a record's key and value; the value None is a tombstone."""
    if isinstance(record, RegexResolved):
        value = None if record.resolved is None else _resolved(record.resolved)
        return record_key(REGEX, record.group_id, record.regex), value
    return FORMAT.encode(record)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ConsumerRecord:
    """Return the record of a kind in TYPES; `key` excludes the type. Raise CorruptMessage."""
    group_id = key.string()
    if kind == REGEX:
        return RegexResolved(group_id, key.string(), read_value(value, _read_resolved))
    return FORMAT.decode(kind, group_id, key, value)


# -- writing ---------------------------------------------------------------------------------------------


def record_key(kind: int, *names: str) -> bytes:
    return I16.pack(kind) + b"".join(map(string, names))


def _epoch(epoch: int, metadata_hash: int) -> bytes:
    return VERSION + I32.pack(epoch) + tagged({0: I64.pack(metadata_hash) if metadata_hash else b""})


def _subscriber(it: MemberMetadata) -> bytes:
    return b"".join(
        (
            VERSION,
            compact_string(it.instance_id),
            compact_string(it.rack_id),
            compact_string(it.client_id),
            compact_string(it.client_host),
            compact_array(it.topics, compact_string),
            compact_string(it.regex),
            I32.pack(it.rebalance_timeout_ms),
            compact_string(it.assignor),
            tagged({0: b"" if it.classic is None else _classic(it.classic)}),
        )
    )


def _classic(classic: ClassicProtocols) -> bytes:
    def protocol(each: tuple[str, bytes]) -> bytes:
        return compact_string(each[0]) + compact_bytes(each[1]) + NO_TAGS

    timeout = I32.pack(classic.session_timeout_ms)
    return _PRESENT + timeout + compact_array(classic.protocols, protocol) + NO_TAGS


def partitions_field(partitions: Partitions, current: CurrentAssignment = NEW_MEMBER) -> bytes:
    """Encode partitions; `current` has the epochs in which they were assigned. A topic without epochs has the record's,
    so equal epochs are not written.
    """
    epochs: dict[bytes, dict[int, int]] = {}
    for epoch, assigned in current.since:
        for topic_id, indexes in assigned.items():
            epochs.setdefault(topic_id.bytes, {}).update(dict.fromkeys(indexes, epoch))

    def topic(each: tuple[bytes, frozenset[int]]) -> bytes:
        topic_id, indexes = each[0], sorted(each[1])
        known = epochs.get(topic_id, {})
        tags = NO_TAGS
        if not known.keys().isdisjoint(indexes):
            of_each = [known.get(index, current.default_epoch) for index in indexes]
            tags = tagged({ASSIGNMENT_EPOCHS_TAG: compact_array(of_each, I32.pack)})
        return topic_id + compact_array(indexes, I32.pack) + tags

    return compact_array(sorted((topic.bytes, indexes) for topic, indexes in partitions.items()), topic)


def _current(current: CurrentAssignment) -> bytes:
    epochs = I32.pack(current.epoch) + I32.pack(current.previous_epoch) + I8.pack(current.state)
    hands = partitions_field(current.assigned, current) + partitions_field(current.revoking, current)
    return VERSION + epochs + hands + NO_TAGS


def _resolved(resolved: ResolvedRegex) -> bytes:
    topics = compact_array(resolved.topics, compact_string)
    return VERSION + topics + I64.pack(0) + I64.pack(resolved.timestamp_ms) + NO_TAGS


# -- reading ---------------------------------------------------------------------------------------------


def read_value(value: bytes | None, read: Callable[[FieldReader], Element]) -> Element | None:
    """Read a whole value, including its tagged fields; None for a tombstone."""
    if value is None:
        return None
    fields = FieldReader(value)
    version = fields.int16()
    if version != 0:
        raise CorruptMessage(f"version {version} of a consumer group's record is unknown")
    fields.flexible = True
    return read(fields)


def _read_epoch(fields: FieldReader) -> tuple[int, int]:
    epoch, tags = fields.int32(), fields.tagged()
    return epoch, FieldReader(tags[0]).int64() if 0 in tags else 0


def _read_target_epoch(fields: FieldReader) -> int:
    epoch, _ = fields.int32(), fields.tagged()
    return epoch


def _read_target(fields: FieldReader) -> Partitions:
    partitions, _ = read_partitions(fields), fields.tagged()
    return partitions


def _read_subscriber(fields: FieldReader) -> MemberMetadata:
    instance_id, rack_id = fields.nullable_string(), fields.nullable_string()
    client_id, client_host = fields.string(), fields.string()
    topics, regex = fields.strings(), fields.nullable_string()
    timeout_ms, assignor = fields.int32(), fields.nullable_string()
    classic = fields.tagged().get(0)
    return MemberMetadata(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        regex,
        timeout_ms,
        assignor,
        None if classic is None else _read_classic(classic),
    )


def _read_classic(content: bytes) -> ClassicProtocols | None:
    fields = FieldReader(content)
    fields.flexible = True
    if fields.int8() < 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = read_array(fields, lambda: (fields.string(), fields.raw_bytes()))
    return ClassicProtocols(session_timeout_ms, tuple(protocols))


def read_array(fields: FieldReader, read: Callable[[], Element]) -> list[Element]:
    """Read structures, each with its tagged fields, which are skipped."""
    found = []
    for _ in range(fields.count()):
        found.append(read())
        fields.tagged()
    return found


def read_partitions(fields: FieldReader) -> Partitions:
    def topic() -> tuple[UUID, frozenset[int]]:
        return fields.uuid(), frozenset(fields.int32() for _ in range(fields.count()))

    return {topic_id: indexes for topic_id, indexes in read_array(fields, topic) if indexes}


def _read_current(fields: FieldReader) -> CurrentAssignment:
    epoch, previous, state = fields.int32(), fields.int32(), fields.int8()
    known = MemberState(state) if state in set(MemberState) else MemberState.UNKNOWN
    epochs: dict[int, dict[UUID, set[int]]] = {}
    assigned, revoking = _read_assigned(fields, epochs), _read_assigned(fields, epochs)
    fields.tagged()
    epochs.pop(max(epoch, 0), None)
    since = tuple(
        (each, {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()})
        for each, partitions in sorted(epochs.items())
    )
    return CurrentAssignment(epoch, previous, known, assigned, revoking, since)


def _read_assigned(fields: FieldReader, epochs: dict[int, dict[UUID, set[int]]]) -> Partitions:
    """Read partitions and their assignment epochs. Epochs are ignored if their number differs."""
    assigned: dict[UUID, frozenset[int]] = {}
    for _ in range(fields.count()):
        topic_id, indexes = fields.uuid(), [fields.int32() for _ in range(fields.count())]
        if indexes:
            assigned[topic_id] = frozenset(indexes)
        if (encoded := fields.tagged().get(ASSIGNMENT_EPOCHS_TAG)) is not None:
            reader = FieldReader(encoded)
            reader.flexible = True
            of_each = [reader.int32() for _ in range(reader.count())]
            for index, epoch in zip(indexes, of_each if len(of_each) == len(indexes) else (), strict=False):
                epochs.setdefault(epoch, {}).setdefault(topic_id, set()).add(index)
    return assigned


def _read_resolved(fields: FieldReader) -> ResolvedRegex:
    topics, _version, timestamp_ms = fields.strings(), fields.int64(), fields.int64()
    fields.tagged()
    return ResolvedRegex(topics, timestamp_ms)


FORMAT: Final = RecordFormat(
    EPOCH,
    MEMBER,
    TARGET_EPOCH,
    TARGET,
    CURRENT,
    write_epoch=_epoch,
    write_member=_subscriber,
    write_current=_current,
    read_epoch=_read_epoch,
    read_member=_read_subscriber,
    read_current=_read_current,
)
