"""A consumer group as a value, and the effect of its records, each of one key.

Every record carries an entry of a map, so a replay needs only the last record of each key, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final
from uuid import UUID

import msgspec

ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
"""States that classic groups do not have; they share Empty, Stable and Dead."""

LEAVE_GROUP_STATIC_MEMBER_EPOCH: Final = -2
"""The epoch of a static member that left temporarily."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. Sets are not empty."""

NO_PARTITIONS: Final[Partitions] = {}

AssignmentEpochs = tuple[tuple[int, Partitions], ...]
"""Member epochs, ascending, and the partitions that were assigned in each."""


class MemberState(IntEnum):
    """The progress of a member towards its target; the numbers are Apache Kafka's, as in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions before it may enter the epoch of its target."""
    UNRELEASED_PARTITIONS = 2
    """It is in that epoch, and other members still hold some of its target partitions."""
    UNKNOWN = 127


class ClassicProtocols(msgspec.Struct, frozen=True):
    """The protocols that a classic member offers, best first: (name, subscription)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(msgspec.Struct, frozen=True):
    """A member's description of itself. `topics` is sorted; `classic` is None for members of the consumer protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None


class CurrentAssignment(msgspec.Struct, frozen=True):
    """A member's current assignment: `assigned` partitions to read, and `revoking` partitions that it must give up, and
    that no other member has yet.

    `epoch` is the epoch of its requests, `previous_epoch` that of a member that lost the last response. `since`:
    partitions of both that were assigned in another epoch than `epoch` (KIP-1251).
    """

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    since: AssignmentEpochs = ()

    def assignment_epoch(self, topic_id: UUID | None, partition: int) -> int | None:
        """Return the epoch in which the member was assigned a partition; None if it was not."""
        if topic_id is None or not any(
            partition in hands.get(topic_id, ()) for hands in (self.assigned, self.revoking)
        ):
            return None
        before = (epoch for epoch, partitions in self.since if partition in partitions.get(topic_id, ()))
        return next(before, self.default_epoch)

    @property
    def default_epoch(self) -> int:
        """The assignment epoch of partitions that are not in `since`. A static member that is away has epoch -2."""
        return max(self.epoch, 0)


NEW_MEMBER: Final = CurrentAssignment()


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that a regular expression matched at its last resolution, sorted."""

    topics: tuple[str, ...] = ()
    timestamp_ms: int = -1


class GroupEpochChanged(msgspec.Struct, frozen=True):
    """The group's epoch: it grows with every change of members, subscriptions or topics. None: the group's end.

    `metadata_hash` shows whether the subscribed topics have changed.
    """

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


class MemberChanged(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str
    metadata: MemberMetadata | None


class TargetAssignmentEpochChanged(msgspec.Struct, frozen=True):
    """The group epoch that the targets were computed for."""

    group_id: str
    epoch: int | None


class TargetAssignmentChanged(msgspec.Struct, frozen=True):
    """A member's target assignment."""

    group_id: str
    member_id: str
    partitions: Partitions | None


class CurrentAssignmentChanged(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str
    current: CurrentAssignment | None


class RegexResolved(msgspec.Struct, frozen=True):
    group_id: str
    regex: str
    resolved: ResolvedRegex | None


ConsumerRecord = (
    GroupEpochChanged
    | MemberChanged
    | TargetAssignmentEpochChanged
    | TargetAssignmentChanged
    | CurrentAssignmentChanged
    | RegexResolved
)


Subscriptions = Mapping[tuple[tuple[str, ...], str | None], frozenset[str]]
"""The topics of a subscription by names and an expression."""


class ConsumerMembership(msgspec.Struct, frozen=True):
    """A consumer group without its offsets. `target_assignments` and `current_assignments` are by member id; a member
    without an entry has no partitions.
    """

    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: Mapping[str, MemberMetadata] = {}
    target_assignments: Mapping[str, Partitions] = {}
    current_assignments: Mapping[str, CurrentAssignment] = {}
    regexes: Mapping[str, ResolvedRegex] = {}

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return "Stable" if all(map(self._is_reconciled, self.members)) else RECONCILING

    def _is_reconciled(self, member_id: str) -> bool:
        current = self.current_assignment_of(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def current_assignment_of(self, member_id: str) -> CurrentAssignment:
        return self.current_assignments.get(member_id, NEW_MEMBER)

    def has_new_revocation(self, before: ConsumerMembership, member_id: str) -> bool:
        """Return whether a member has to give up other partitions than before."""
        return (
            self.current_assignment_of(member_id).revoking != before.current_assignment_of(member_id).revoking
        )

    def target_assignment_of(self, member_id: str) -> Partitions:
        return self.target_assignments.get(member_id, NO_PARTITIONS)

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the member id that holds a static id (KIP-345)."""
        return next((each for each, it in self.members.items() if it.instance_id == instance_id), None)

    def topics_of(self, subscriber: MemberMetadata) -> frozenset[str]:
        """Return the topics of a member, named or matched; an unresolved expression matches none."""
        resolved = self.regexes.get(subscriber.regex) if subscriber.regex else None
        named = frozenset(subscriber.topics)
        return named if resolved is None else named.union(resolved.topics)

    def subscriptions(self) -> Subscriptions:
        """Return the subscriptions of the members. Most are equal."""
        alike = {(it.topics, it.regex): it for it in self.members.values()}
        return {each: self.topics_of(it) for each, it in alike.items()}

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any of the members reads."""
        return frozenset().union(*self.subscriptions().values())


class ConsumerMembershipBuilder:
    """A ConsumerMembership during changes; maps are copied at their first change."""

    _MAPS: Final = ("members", "target_assignments", "current_assignments", "regexes")

    def __init__(self, membership: ConsumerMembership | None = None) -> None:
        self.epoch: int | None = None if membership is None else membership.epoch
        self.metadata_hash = 0 if membership is None else membership.metadata_hash
        self.target_epoch = 0 if membership is None else membership.target_epoch
        self._maps: dict[str, Mapping[str, object]] = {
            name: {} if membership is None else getattr(membership, name) for name in self._MAPS
        }
        self._own: set[str] = set()

    def apply(self, record: ConsumerRecord) -> None:
        match record:
            case GroupEpochChanged():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case TargetAssignmentEpochChanged():
                self.target_epoch = record.epoch or 0
            case MemberChanged():
                self._put("members", record.member_id, record.metadata)
            case TargetAssignmentChanged():
                self._put("target_assignments", record.member_id, record.partitions)
            case CurrentAssignmentChanged():
                self._put("current_assignments", record.member_id, record.current)
            case RegexResolved():
                self._put("regexes", record.regex, record.resolved)

    def _put(self, name: str, key: str, value: object | None) -> None:
        if name not in self._own:
            self._own.add(name)
            self._maps[name] = dict(self._maps[name])
        mapping = self._maps[name]
        assert isinstance(mapping, dict)
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = value

    def build(self) -> ConsumerMembership | None:
        """Return the value; None for a group without an epoch, whatever else is left of it."""
        if self.epoch is None:
            return None
        return ConsumerMembership(self.epoch, self.metadata_hash, self.target_epoch, **self._maps)  # type: ignore[arg-type]


def apply_consumer(
    membership: ConsumerMembership | None, records: Iterable[ConsumerRecord]
) -> ConsumerMembership | None:
    """Return the consumer group after the records; None if it does not exist."""
    book = ConsumerMembershipBuilder(membership)
    for record in records:
        book.apply(record)
    return book.build()


def consumer_group_tombstones(group_id: str, membership: ConsumerMembership) -> tuple[ConsumerRecord, ...]:
    """End all that the journal holds of a consumer group, its epoch last."""
    records: list[ConsumerRecord] = [
        CurrentAssignmentChanged(group_id, each, None) for each in membership.current_assignments
    ]
    records += [TargetAssignmentChanged(group_id, each, None) for each in membership.target_assignments]
    records += [MemberChanged(group_id, each, None) for each in membership.members]
    records += [RegexResolved(group_id, each, None) for each in membership.regexes]
    return (*records, TargetAssignmentEpochChanged(group_id, None), GroupEpochChanged(group_id, None))
