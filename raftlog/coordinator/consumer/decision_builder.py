"""Builds a decision about a consumer group: records, and the group after them.

It has the consequences of a member's change for both protocols: a new epoch, new targets, its own next step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import ClassVar, Final
from uuid import UUID

import msgspec

from raftlog.base.errors import GroupMaxSizeReached
from raftlog.coordinator.consumer.assignors import ASSIGNORS, MemberSubscription, TopicMetadata
from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    MemberChanged,
    MemberMetadata,
    Partitions,
    RegexResolved,
    ResolvedRegex,
    Subscriptions,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
    apply_consumer,
)
from raftlog.coordinator.consumer.reconcile import count, next_assignment
from raftlog.coordinator.consumer.topic_regex_resolver import Sight, TopicRegexResolver, Viewer, Wanted
from raftlog.metadata.image import BrokerState, MetadataImage, TopicState

NO_GROUP: Final = ConsumerMembership()


class DecisionScope(IntEnum):
    """The consequences of a change that are decided: fewer if all do not fit into a batch of the journal."""

    ALL = 0
    STEPS_LATER = 1
    """A member takes its next step with its next heartbeat, if targets are computed with this heartbeat."""
    TARGETS_LATER = 2
    """The matches of expressions are noted now; targets are computed for them with the next heartbeat."""
    KNOWN_TOPICS = 3
    """Regular expressions keep their former matches; only one new expression is resolved."""
    NO_TARGETS = 4
    """Members also keep their targets, and a further new expression is refused."""


NO_NEW_TARGETS: Final = (DecisionScope.TARGETS_LATER, DecisionScope.NO_TARGETS)

MAX_SUBSCRIBED_TOPICS: Final = 10_000
"""Topics that the members of a group may read together: the consequences of a change take some 10 µs for each."""


EPOCH_BYTES: Final = 4
"""The size of a partition's assignment epoch in a record."""

MAX_REGEXES: Final = 50
"""Different expressions of all members of a group."""


class TooManySubscribedTopics(Exception):
    """The members would read more topics than a group may."""


class DecisionContext(msgspec.Struct, frozen=True):
    """The inputs of a decision beside the group: the existing topics, the limits of this broker, the time."""

    image: MetadataImage
    topics: TopicRegexResolver
    now_ms: int
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    most_members: int = 2**31 - 1
    topics_changed: bool = True
    """Whether the topics, or the topics that expressions may match, may differ from the last decision's."""
    scope: DecisionScope = DecisionScope.ALL
    now: float = 0.0
    """Loop seconds."""
    resolved_regexes: Mapping[str, Sight] = {}
    """Expressions with recorded matches that are current: for these topics and unchanged rights."""
    rejected_regexes: frozenset[str] = frozenset()
    """Expressions that match more than there is room for; their members will get an error."""
    resolved_bytes: int = 2**31 - 1
    """About how many bytes of matches one decision may record; at least one expression's."""
    epochs_bytes: int = 2**31 - 1
    """Bytes for a member's assignment epochs in its record; beyond it, all count as assigned in its epoch."""
    first_epoch: int = 0
    """The epoch in which a new group begins."""


class DecisionBuilder:
    """Starts from the group's state; `state` is always the group after `records`."""

    max_size_setting: ClassVar = "group.consumer.max.size"

    def __init__(self, group_id: str, state: ConsumerMembership | None, around: DecisionContext) -> None:
        self.group_id = group_id
        self.context = around
        self.records: list[ConsumerRecord] = []
        self._retargeted = False
        self.checked_topics = False
        """Whether the topics were compared."""
        self.queued_regexes: set[Wanted] = set()
        """Expressions that are queued: they keep their matches until they are resolved."""
        self.resolved_regexes: dict[str, Sight] = {}
        self.rejected_regexes: set[str] = set()
        self.has_resolved = False
        """Whether some expression matches other topics than before."""
        self._read_before: tuple[object, object, Subscriptions, frozenset[str]] | None = None
        """The topics read, cached for these members and expressions."""
        self.before_targets = 0
        """How many records there were before targets were computed."""
        self.state = NO_GROUP if state is None else state
        if state is None:
            self.put(GroupEpochChanged(group_id, around.first_epoch))

    def put(self, *records: ConsumerRecord) -> None:
        """Add records."""
        self.records += records
        state = apply_consumer(self.state, records)
        assert state is not None, "a decision builder does not end a group"
        self.state = state

    # -- members -------------------------------------------------------------------------------------------

    def check_group_size(self, member_id: str, instance_id: str | None) -> None:
        """Raise GroupMaxSizeReached for a member beyond the limit."""
        members = self.state.members
        is_known = member_id in members or (
            instance_id is not None and self.state.static_member_id(instance_id)
        )
        if not is_known and len(members) >= self.context.most_members:
            raise GroupMaxSizeReached(f"{self.max_size_setting} is {self.context.most_members}")

    def remove(self, *member_ids: str) -> None:
        """Remove members and their assignments."""
        self.put(
            *(
                record
                for each in member_ids
                for record in (
                    CurrentAssignmentChanged(self.group_id, each, None),
                    TargetAssignmentChanged(self.group_id, each, None),
                    MemberChanged(self.group_id, each, None),
                )
            )
        )

    def replace_static_member(self, former_id: str, member_id: str, current: CurrentAssignment) -> None:
        """Give a static member's place, target and partitions to its next incarnation (KIP-345)."""
        subscriber, target = self.state.members[former_id], self.state.target_assignment_of(former_id)
        self.remove(former_id)
        self.put(
            MemberChanged(self.group_id, member_id, subscriber),
            TargetAssignmentChanged(self.group_id, member_id, target),
            CurrentAssignmentChanged(self.group_id, member_id, current),
        )

    def update_member(self, member_id: str, subscriber: MemberMetadata) -> bool:
        """Record a member's description; return whether its subscription changed.

        Raise GroupMaxSizeReached for an expression beyond the limit.
        """
        before = self.state.members.get(member_id)
        if subscriber == before:
            return False
        if subscriber.regex and (before is None or before.regex != subscriber.regex):
            regexes = self._regexes()
            if subscriber.regex not in regexes and len(regexes) >= MAX_REGEXES:
                raise GroupMaxSizeReached(
                    f"the members of a group may have at most {MAX_REGEXES} different regular expressions"
                )
        self.put(MemberChanged(self.group_id, member_id, subscriber))
        return before is None or (
            (before.topics, before.regex, before.rack_id)
            != (subscriber.topics, subscriber.regex, subscriber.rack_id)
        )

    # -- what follows --------------------------------------------------------------------------------------

    def update_epoch_and_targets(self, *, changed: bool, viewer: Viewer | None = None) -> None:
        """Begin a new epoch if members or topics have changed, and compute its targets.

        The expressions of all members match by the rights of `viewer`, the sender of this request, as in Apache Kafka.
        Raise TooManySubscribedTopics.
        """
        if changed or self.context.topics_changed:
            self.checked_topics = True
            self._resolve(viewer)
            _, read = self._read()
            if len(read) > MAX_SUBSCRIBED_TOPICS:
                raise TooManySubscribedTopics
            metadata_hash = self._hash(read)
            if changed or self.has_resolved or metadata_hash != self.state.metadata_hash:
                self.put(GroupEpochChanged(self.group_id, self.state.epoch + 1, metadata_hash))
        self.before_targets = len(self.records)
        if self.state.epoch > self.state.target_epoch and self.context.scope not in NO_NEW_TARGETS:
            self._retarget()

    def bump_group_epoch(self) -> None:
        """Begin a new epoch after members left: the next heartbeat of another member compares the topics and computes
        the targets.

        So this record is always small: leaving must always be possible.
        """
        self._forget_regexes()
        metadata_hash = self._hash(self._read()[1])
        self.put(GroupEpochChanged(self.group_id, self.state.epoch + 1, metadata_hash))

    def _resolve(self, viewer: Viewer | None) -> None:
        """Resolve the regular expressions again, and drop unused expressions."""
        left = self.context.resolved_bytes
        for regex in sorted(self._regexes()):
            if regex in self.context.rejected_regexes:
                self.rejected_regexes.add(regex)
            elif regex in self.context.resolved_regexes and regex in self.state.regexes:
                self.resolved_regexes[regex] = self.context.resolved_regexes[regex]
            else:
                left -= self._resolve_one(regex, left, viewer)
        self._forget_regexes()

    def _resolve_one(self, regex: str, left: int, viewer: Viewer | None) -> int:
        """Record the matches of an expression, if it is due; return about how many bytes that took."""
        around, known = self.context, self.state.regexes.get(regex)
        if known is not None and around.scope >= DecisionScope.KNOWN_TOPICS:
            return 0
        topics = around.topics.resolve(regex, around.now, viewer)
        if topics is None:
            self.queued_regexes.add((regex, viewer))
            return 0
        if known is not None and known.topics == topics:
            self.resolved_regexes[regex] = around.topics.sight(viewer)
            return 0
        size = sum(map(len, topics)) + len(regex)
        if left <= 0 or (self.has_resolved and size > left):
            self.queued_regexes.add((regex, viewer))
            return 0
        if known is None and self._is_too_much(topics):
            self.rejected_regexes.add(regex)
            return left if around.scope is DecisionScope.NO_TARGETS else 0
        self.has_resolved = True
        self.resolved_regexes[regex] = around.topics.sight(viewer)
        self.put(RegexResolved(self.group_id, regex, ResolvedRegex(topics, around.now_ms)))
        return left if around.scope is DecisionScope.KNOWN_TOPICS else size

    def _is_too_much(self, topics: tuple[str, ...]) -> bool:
        """Return whether there is no room for the matches of a new expression."""
        if self.context.scope is DecisionScope.NO_TARGETS:
            return True
        return len(self._read()[1].union(topics)) > MAX_SUBSCRIBED_TOPICS

    def _regexes(self) -> set[str]:
        return {each.regex for each in self.state.members.values() if each.regex}

    def _forget_regexes(self) -> None:
        gone = self.state.regexes.keys() - self._regexes()
        self.put(*(RegexResolved(self.group_id, each, None) for each in sorted(gone)))

    def _retarget(self) -> None:
        self._retargeted = True
        state, shares = self.state, self.assign()
        self.put(
            *(
                TargetAssignmentChanged(self.group_id, each, share)
                for each, share in shares.items()
                if (before := state.target_assignments.get(each)) is not share and before != share
            ),
            TargetAssignmentEpochChanged(self.group_id, state.epoch),
        )

    def assign(self) -> Mapping[str, Partitions]:
        """Return the targets of all members."""
        members, topics = self._wanted()
        assignor = ASSIGNORS[preferred_assignor(self.state, self.context.assignors)]
        return assignor(members, topics) if members else {}

    def _wanted(self) -> tuple[Mapping[str, MemberSubscription], Mapping[str, TopicMetadata]]:
        state, topics = self.state, self.context.image.topics
        subscriptions, read = self._read()
        members = {
            member_id: MemberSubscription(
                subscriptions[it.topics, it.regex],
                state.target_assignment_of(member_id),
                it.instance_id,
                it.rack_id,
            )
            for member_id, it in state.members.items()
        }
        offered = (topics[each] for each in read & topics.keys())
        racks = self._partition_racks()
        return members, {
            each.name: TopicMetadata(each.topic_id, len(each.partitions), racks.of(each)) for each in offered
        }

    def _partition_racks(self) -> PartitionRacks:
        """Return the racks of partitions; empty sets if no member has a rack that they could be near to."""
        is_wanted = any(each.rack_id for each in self.state.members.values())
        return PartitionRacks(self.context.image.brokers if is_wanted else {})

    def _hash(self, names: frozenset[str]) -> int:
        """Return a number that changes with the existence, id or partition count of any of these topics; 0 if none
        exists.

        It changes with the racks of their replicas as well, if a member has a rack (KIP-1101).
        """
        digest, image, racks = blake2b(digest_size=8), self.context.image, self._partition_racks()
        found = [image.topics[name] for name in sorted(names) if name in image.topics]
        for topic in found:
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
            for each in racks.of(topic):
                digest.update("\0".join(sorted(each)).encode() + b"\1")
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0

    def _read(self) -> tuple[Subscriptions, frozenset[str]]:
        """Return the members' subscriptions and the union of their topics.

        The result is cached, because a union over hundreds of thousands of names is slow.
        """
        state, known = self.state, self._read_before
        if known is None or known[0] is not state.members or known[1] is not state.regexes:
            subscriptions = state.subscriptions()
            known = state.members, state.regexes, subscriptions, frozenset().union(*subscriptions.values())
            self._read_before = known
        return known[2:]

    def reconcile(self, member_id: str, owned: Partitions | None) -> None:
        """Take a member as far towards its target as the others allow."""
        if (
            self._retargeted
            and self.context.scope >= DecisionScope.STEPS_LATER
            and member_id in self.state.current_assignments
        ):
            return
        current = self.state.current_assignment_of(member_id)
        after = next_assignment(
            current,
            self.state.target_assignment_of(member_id),
            target_epoch=self.state.target_epoch,
            owned=owned,
            held=PartitionsOfOthers(self.state, but=member_id),
        )
        if after.since and EPOCH_BYTES * count(after.assigned) > self.context.epochs_bytes:
            after = msgspec.structs.replace(after, since=())
        if after is not current or member_id not in self.state.current_assignments:
            self.put(CurrentAssignmentChanged(self.group_id, member_id, after))


class PartitionsOfOthers:
    """Finds the partitions that other members than `but` hold."""

    def __init__(self, state: ConsumerMembership, *, but: str) -> None:
        self._state = state
        self._but = but

    def __call__(self, wanted: Partitions) -> Partitions:
        """Return the partitions that another member reads, or has not given up yet.

        Walks the members once, for any number of topics.
        """
        held: dict[UUID, set[int]] = defaultdict(set)
        for member_id, current in self._state.current_assignments.items() if wanted else ():
            if member_id == self._but:
                continue
            for hands in (current.assigned, current.revoking):
                for topic_id in wanted.keys() & hands.keys() if hands else ():
                    held[topic_id] |= wanted[topic_id] & hands[topic_id]
        return {topic_id: frozenset(indexes) for topic_id, indexes in held.items() if indexes}


def preferred_assignor(state: ConsumerMembership, offered: Sequence[str]) -> str:
    """Return the offered assignor that most members ask for, else the first offered."""
    votes = Counter(each.assignor for each in state.members.values() if each.assignor in offered)
    return max(offered, key=lambda each: votes[each])


class PartitionRacks:
    """The racks of partitions' replicas, in sync or not."""

    def __init__(self, brokers: Mapping[int, BrokerState]) -> None:
        self._rack_of = {broker_id: each.rack for broker_id, each in brokers.items() if each.rack}
        self._has_racks = len(set(self._rack_of.values())) > 1
        self._known: dict[tuple[int, ...], frozenset[str]] = {}

    def of(self, topic: TopicState) -> tuple[frozenset[str], ...]:
        """Return the racks of each partition; empty if the brokers are not in several racks."""
        if not self._has_racks:
            return ()
        return tuple(self._of(each.replicas) for each in topic.partitions)

    def _of(self, replicas: tuple[int, ...]) -> frozenset[str]:
        racks = self._known.get(replicas)
        if racks is None:
            racks = frozenset(self._rack_of[each] for each in replicas if each in self._rack_of)
            self._known[replicas] = racks
        return racks
