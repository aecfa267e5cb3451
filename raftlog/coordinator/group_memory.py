"""About how many bytes the groups of one partition take, in memory and in their records, and the limits of both.

Counting costs as much as the change: a commit into a group with a million offsets costs what it commits. One setting
has two limits. Beyond `raftlog.group.max.bytes` new groups, and offsets of partitions without offsets, are refused.
Beyond twice that any growth is refused. So existing groups continue, even on a broker that takes over another broker's
groups.

Loaded groups are counted and never refused: a node always starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import PolicyViolation
from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    CurrentAssignment,
    CurrentAssignmentChanged,
    MemberChanged,
    MemberMetadata,
    Partitions,
    RegexResolved,
    ResolvedRegex,
    TargetAssignmentChanged,
)
from raftlog.coordinator.group import (
    CommittedOffset,
    Group,
    GroupRecord,
    Member,
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

PROTOCOL_BYTES: Final = 150
"""The memory of a classic member's protocol beside its name and bytes."""

NAME_BYTES: Final = 60
"""The memory of a name in a consumer group beside its characters."""

ASSIGNED_TOPIC_BYTES: Final = 300
"""The memory of an assigned topic of a consumer group beside its partitions."""

PARTITION_BYTES: Final = 40
"""The memory of a partition that is assigned to a member of a consumer group."""

RECORDED_MEMBER_BYTES: Final = 28
"""The size of a classic member in its group's record beside its names and bytes."""

HARD_LIMIT_FACTOR: Final = 2
"""Any growth is refused beyond this multiple of `raftlog.group.max.bytes`."""

MAX_SUBSCRIPTION_BYTES: Final = 64 * 1024 * 1024
"""For all members of a consumer group together, about half a million names of topics. Each has a record of its own, so
`message.max.bytes` does not bound them.
"""

SUBSCRIPTIONS_SHARE: Final = 0.75
"""Share of a classic group's record of message.max.bytes; the rest is for assignments. A single member's bytes must not
fail all joins.
"""

OFFERED_SHARE: Final = 3
"""The memory of all members' protocols, as a multiple of their limit in a record. Clients offer one to three protocols
of about equal size; a record holds only the chosen protocol.
"""

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

    def measure(self, before: Group, after: Group, records: Collection[GroupRecord]) -> None:
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


class SubscriptionBytes:
    """The bytes of a consumer group's recorded members. An update costs only what has changed."""

    __slots__ = ("_members", "total")

    def __init__(self) -> None:
        self.total = 0
        self._members: Mapping[str, MemberMetadata] = {}

    def update(self, members: Mapping[str, MemberMetadata]) -> None:
        """Update to the present members."""
        self.total, self._members = self.total_with(members), members

    def total_with(self, members: Mapping[str, MemberMetadata]) -> int:
        """Return the bytes with these members."""
        had = self._members
        if members is had:
            return self.total
        changed = [each for each in had.keys() | members.keys() if had.get(each) is not members.get(each)]
        return self.total + sum(
            _entry_bytes(members, each, subscriber_bytes) - _entry_bytes(had, each, subscriber_bytes)
            for each in changed
        )


def group_bytes(group: Group) -> int:
    """Return about how many bytes a group takes, without its classic members' protocols."""
    found = GROUP_BYTES if group.exists else 0
    found += sum(map(_offset_bytes, group.offsets.values()))
    found += sum(
        _offset_bytes(each.committed) for offsets in group.pending.values() for each in offsets.values()
    )
    found += _membership_bytes(group.membership)
    for name, weigh in _ENTRIES.values():
        found += sum(weigh(*each) for each in _entries(group.modern, name).items())
    return found + _states_bytes(group)


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """Return about how many bytes a classic member's protocols take in memory."""
    return sum(PROTOCOL_BYTES + len(name) + len(subscription) for name, subscription in protocols)


def member_record_bytes(member: Member, protocols: Iterable[tuple[str, bytes]]) -> int:
    """Return a classic member's largest size in a generation's record, with its largest subscription."""
    names = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
    largest = max((len(subscription) for _, subscription in protocols), default=0)
    return RECORDED_MEMBER_BYTES + largest + sum(len(each.encode()) for each in names)


def max_generation_bytes(message_max_bytes: int) -> int:
    """Return how many bytes a group's names and subscriptions may take in the record of a generation."""
    return int(message_max_bytes * SUBSCRIPTIONS_SHARE)


def subscriber_bytes(member_id: str, subscriber: MemberMetadata) -> int:
    """Return about how many bytes a consumer group's member takes, beside its assignments."""
    protocols = subscriber.classic.protocols if subscriber.classic else ()
    names = (
        member_id,
        subscriber.instance_id or "",
        subscriber.rack_id or "",
        subscriber.client_id,
        subscriber.client_host,
        subscriber.regex or "",
        *subscriber.topics,
    )
    return (
        NAME_BYTES * (len(names) + len(protocols))
        + sum(map(len, names))
        + sum(len(name) + len(subscription) for name, subscription in protocols)
    )


def _assignment_bytes(_member_id: str, partitions: Partitions) -> int:
    count = sum(map(len, partitions.values()))
    return NAME_BYTES + ASSIGNED_TOPIC_BYTES * len(partitions) + PARTITION_BYTES * count


def _current_bytes(member_id: str, current: CurrentAssignment) -> int:
    of_epochs = (partitions for _, partitions in current.since)
    return sum(
        _assignment_bytes(member_id, each) for each in (current.assigned, current.revoking, *of_epochs)
    )


def _regex_bytes(_regex: str, resolved: ResolvedRegex) -> int:
    return NAME_BYTES * (1 + len(resolved.topics))


_ENTRIES: Final[Mapping[type, tuple[str, Callable[[str, Any], int]]]] = {
    MemberChanged: ("members", subscriber_bytes),
    TargetAssignmentChanged: ("target_assignments", _assignment_bytes),
    CurrentAssignmentChanged: ("current_assignments", _current_bytes),
    RegexResolved: ("regexes", _regex_bytes),
}
"""The entries of a consumer group: the record that changes one, the map it is in, and its size by key and value."""


def _of_members(records: Iterable[GroupRecord]) -> Iterator[object]:
    """Yield the records; a share group's are a consumer group's in a wrapper."""
    for each in records:
        yield getattr(each, "record", each)


def _states_bytes(group: Group) -> int:
    """Return about how many bytes the list of a share group's states takes."""
    if group.share is None:
        return 0
    states = group.share.states
    topics = (*states.initializing.values(), *states.initialized.values())
    known = sum(ASSIGNED_TOPIC_BYTES + PARTITION_BYTES * len(each.partitions) for each in topics)
    return known + NAME_BYTES * len(states.deleting)


def _entries(state: ConsumerMembership | None, name: str) -> Mapping[str, Any]:
    return {} if state is None else getattr(state, name)


def _entry_bytes(entries: Mapping[str, Any], key: str, weigh: Callable[[str, Any], int]) -> int:
    return weigh(key, entries[key]) if key in entries else 0


def _growth(before: Group, after: Group, records: Collection[GroupRecord]) -> int:
    found = GROUP_BYTES * (after.exists - before.exists)
    if after.membership is not before.membership:
        found += _membership_bytes(after.membership) - _membership_bytes(before.membership)
    found += OFFSET_BYTES * (after.offset_count - before.offset_count)
    if (old := before.modern) is not (new := after.modern):
        found += _consumer_growth(old, new, _of_members(records))
    if after.share is not before.share:
        found += _states_bytes(after) - _states_bytes(before)
    topic_partitions = set(_with_text(before, records))
    return found + sum(_text_bytes(after, tp) - _text_bytes(before, tp) for tp in topic_partitions)


def _consumer_growth(
    before: ConsumerMembership | None, after: ConsumerMembership | None, records: Iterable[object]
) -> int:
    changed = {
        (type(each), each.regex if isinstance(each, RegexResolved) else each.member_id)
        for each in records
        if isinstance(
            each, MemberChanged | TargetAssignmentChanged | CurrentAssignmentChanged | RegexResolved
        )
    }
    found = 0
    for kind, key in changed:
        name, weigh = _ENTRIES[kind]
        found += _entry_bytes(_entries(after, name), key, weigh)
        found -= _entry_bytes(_entries(before, name), key, weigh)
    return found


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


def _is_new(before: Group, records: Iterable[GroupRecord]) -> bool:
    """Return whether records create a group, or an offset of a partition without offsets."""
    if not before.exists:
        return True
    return any(
        not before.has((each.topic, each.partition))
        for each in records
        if isinstance(each, TransactionalOffsetCommitted)
        or (isinstance(each, OffsetCommitted) and each.committed)
    )


def _text_bytes(group: Group, tp: PartitionKey) -> int:
    """The memory of the texts of a group's offsets of one partition, pending offsets included."""
    committed = group.offsets.get(tp)
    found = 0 if committed is None else len(committed.metadata)
    return found + sum(
        len(offsets[tp].committed.metadata) for offsets in group.pending.values() if tp in offsets
    )


def _offset_bytes(committed: CommittedOffset) -> int:
    return OFFSET_BYTES + len(committed.metadata)


def _membership_bytes(membership: Membership) -> int:
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
