"""About how many bytes the groups of one partition take in memory, and whether there is room for more.

Counting costs as much as the change: a commit into a group with a million offsets costs what it commits. One setting
has two limits. Beyond `raftlog.group.max.bytes` new groups, and offsets of partitions without offsets, are refused.
Beyond twice that any growth is refused. So existing groups continue, even on a broker that takes over another broker's
groups.

Loaded groups are counted and never refused: a node always starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import PolicyViolation
from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    MemberChanged,
    MemberMetadata,
    Partitions,
    RegexResolved,
    ResolvedRegex,
    TargetAssignmentChanged,
)
from raftlog.coordinator.consumer.subscription_bytes import NAME_BYTES, member_bytes
from raftlog.coordinator.group import (
    CommittedOffset,
    Group,
    GroupRecord,
    Membership,
    OffsetCommitted,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from raftlog.coordinator.partition_map import PartitionKey

GROUP_BYTES: Final = 1_000
"""The memory of a group beside what is counted separately."""

OFFSET_BYTES: Final = 400
"""The memory of an offset beside its text, for offsets of many topics; half of it for few topics."""

MEMBER_BYTES: Final = 500
"""The memory of a classic member beside its names and bytes."""

PARTITION_BYTES: Final = 40
"""The memory of a partition that is assigned to a member of a consumer group."""

ASSIGNED_TOPIC_BYTES: Final = 300
"""The memory of an assigned topic beside its partitions."""

HARD_LIMIT_FACTOR: Final = 2
"""Any growth is refused beyond this multiple of `raftlog.group.max.bytes`."""

HasMemoryFor = Callable[[int, int], bool]
"""Whether this broker's groups may take this many more bytes, up to a total."""


def _always(growth: int, limit: int) -> bool:
    return True


class GroupMemory:
    """The memory of the groups in one partition. `has_memory_for` checks all partitions of the broker."""

    __slots__ = ("_config", "_growth", "_is_new", "bytes", "has_memory_for")

    def __init__(self, config: NodeConfig, may_keep: HasMemoryFor = _always) -> None:
        self.has_memory_for = may_keep
        self.bytes = 0
        """The bytes of committed state."""
        self._config = config
        self._growth = 0
        """The growth of the change that was measured last, and whether that is a new group or offset."""
        self._is_new = False

    def on_loaded(self, group: Group) -> None:
        """Count a loaded group."""
        self.bytes += group_bytes(group)

    def measure(self, before: Group, after: Group, records: Iterable[GroupRecord]) -> None:
        """Measure how much a group grows by these records."""
        self._growth = _growth(before, after, records)
        self._is_new = self._growth > 0 and _is_new(before, records)

    def check(self) -> None:
        """Raise PolicyViolation if there is no room for what was measured."""
        if self._growth > 0:
            self.check_growth(self._growth, is_new=self._is_new)

    def check_growth(self, growth: int, *, is_new: bool) -> None:
        """Raise PolicyViolation if there is no room for this many more bytes. `is_new`: a group, or an offset."""
        most = self._config.raftlog_group_max_bytes
        if not self.has_memory_for(growth, most if is_new else HARD_LIMIT_FACTOR * most):
            raise PolicyViolation(
                f"raftlog.group.max.bytes is {most}: this broker has no room for "
                + ("new groups and offsets" if is_new else "anything more that groups keep")
            )

    def grow(self, growth: int) -> None:
        """Count bytes that are in no record."""
        self.bytes += growth

    def commit_measured(self) -> None:
        """Count what was measured last: it is in the journal."""
        self.bytes, self._growth = self.bytes + self._growth, 0


def group_bytes(group: Group) -> int:
    """Return about how many bytes a group takes, without its classic members' protocols."""
    found = GROUP_BYTES if group.exists else 0
    found += sum(map(_of_offset, group.offsets.values()))
    found += sum(
        _of_offset(each.committed) for offsets in group.pending.values() for each in offsets.values()
    )
    found += _of_membership(group.membership)
    state = group.consumer
    if state is not None:
        found += sum(member_bytes(member_id, it) for member_id, it in state.members.items())
        found += sum(map(_of_assigned, state.target_assignments.values()))
        found += sum(map(_of_current, state.current_assignments.values()))
        found += sum(map(_of_resolved, state.regexes.values()))
    return found


def _growth(before: Group, after: Group, records: Iterable[GroupRecord]) -> int:
    found = GROUP_BYTES * (after.exists - before.exists)
    if after.membership is not before.membership:
        found += _of_membership(after.membership) - _of_membership(before.membership)
    found += OFFSET_BYTES * (after.offset_count - before.offset_count)
    if after.consumer is not before.consumer:
        consumer = [each for each in records if isinstance(each, ConsumerRecord)]
        found += _consumer_growth(before.consumer, after.consumer, consumer)
    topic_partitions = set(_with_text(before, records))
    return found + sum(_text_at(after, tp) - _text_at(before, tp) for tp in topic_partitions)


def _with_text(before: Group, records: Iterable[GroupRecord]) -> Iterator[PartitionKey]:
    """Yield the changed partitions that may have a text.

    Few have: ten thousand offsets of a request are checked in one step of the loop.
    """
    offsets = before.offsets
    for record in records:
        if isinstance(record, OffsetCommitted):
            had, has = offsets.of_topic(record.topic).get(record.partition), record.committed
            if before.pending or (had is not None and had.metadata) or (has is not None and has.metadata):
                yield record.topic, record.partition
        elif isinstance(record, TransactionalOffsetCommitted):
            yield record.topic, record.partition
        elif isinstance(record, TransactionEnded):
            yield from before.pending.get(record.producer_id, ())


def _consumer_growth(
    before: ConsumerMembership | None, after: ConsumerMembership | None, records: Iterable[ConsumerRecord]
) -> int:
    had, has = before or ConsumerMembership(), after or ConsumerMembership()
    touched: dict[tuple[type, str], ConsumerRecord] = {}
    for record in records:
        if isinstance(record, RegexResolved):
            touched[RegexResolved, record.regex] = record
        elif isinstance(record, MemberChanged | TargetAssignmentChanged | CurrentAssignmentChanged):
            touched[type(record), record.member_id] = record
    return sum(_of_entry(has, *key) - _of_entry(had, *key) for key in touched)


def _of_entry(state: ConsumerMembership, kind: type, key: str) -> int:
    if kind is MemberChanged:
        subscriber: MemberMetadata | None = state.members.get(key)
        return 0 if subscriber is None else member_bytes(key, subscriber)
    if kind is TargetAssignmentChanged:
        return _sized(state.target_assignments, key, _of_assigned)
    if kind is CurrentAssignmentChanged:
        return _sized(state.current_assignments, key, _of_current)
    return _sized(state.regexes, key, _of_resolved)


def _sized(entries: Mapping[str, Any], key: str, size: Callable[[Any], int]) -> int:
    return size(entries[key]) if key in entries else 0


def _is_new(before: Group, records: Iterable[GroupRecord]) -> bool:
    """Whether records create a group, or an offset of a partition without offsets."""
    if not before.exists:
        return True
    return any(
        not before.has((each.topic, each.partition))
        for each in records
        if isinstance(each, TransactionalOffsetCommitted)
        or (isinstance(each, OffsetCommitted) and each.committed)
    )


def _text_at(group: Group, tp: PartitionKey) -> int:
    """The memory of the texts of a group's offsets of one partition, pending offsets included."""
    committed = group.offsets.get(tp)
    found = 0 if committed is None else len(committed.metadata)
    return found + sum(
        len(offsets[tp].committed.metadata) for offsets in group.pending.values() if tp in offsets
    )


def _of_offset(committed: CommittedOffset) -> int:
    return OFFSET_BYTES + len(committed.metadata)


def _of_membership(membership: Membership) -> int:
    return sum(
        MEMBER_BYTES
        + len(each.member_id)
        + len(each.group_instance_id or "")
        + len(each.client_id)
        + len(each.client_host)
        + len(each.subscription)
        + len(each.assignment)
        for each in membership.members.values()
    )


def _of_assigned(partitions: Partitions) -> int:
    count = sum(map(len, partitions.values()))
    return NAME_BYTES + ASSIGNED_TOPIC_BYTES * len(partitions) + PARTITION_BYTES * count


def _of_current(current: CurrentAssignment) -> int:
    before = sum(_of_assigned(partitions) for _, partitions in current.since)
    return _of_assigned(current.assigned) + _of_assigned(current.revoking) + before


def _of_resolved(resolved: ResolvedRegex) -> int:
    return NAME_BYTES * (1 + len(resolved.topics))
