"""Decisions about members of share groups: heartbeat, leave, session timeout, and initialized states.

They are a consumer group's decisions (`consumer.decision_builder`) without partitions to give up: several members may
have a partition, so each takes its target at once. A partition is assigned once its state is initialized. A response
has the states that are to be made (`ShareStateWork`), and the broker reports them once they are (KIP-932).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec

from raftlog.base.errors import FencedMemberEpoch, InvalidRequest, UnknownMemberId
from raftlog.base.types import NAME_MAX_CHARS, NO_OFFSET
from raftlog.coordinator.consumer.consumer_membership import (
    CurrentAssignment,
    CurrentAssignmentChanged,
    MemberMetadata,
    Partitions,
)
from raftlog.coordinator.consumer.decision_builder import (
    MAX_SUBSCRIBED_TOPICS,
    DecisionBuilder,
    DecisionContext,
)
from raftlog.coordinator.consumer.heartbeat_requests import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
)
from raftlog.coordinator.share.share_membership import (
    NO_STATES,
    ShareMembership,
    ShareRecord,
    ShareStates,
    ShareStatesChanged,
    ShareTopic,
    minus,
    union,
    without,
)
from raftlog.coordinator.share.simple_assignor import ShareSubscription, assign


class ShareGroupHeartbeat(msgspec.Struct, frozen=True):
    """ShareGroupHeartbeat. None: unchanged."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareStateWork(msgspec.Struct, frozen=True):
    """States to initialize in the share coordinators: by topic id the partitions, and their start offset."""

    group_id: str
    state_epoch: int
    topics: Mapping[UUID, tuple[frozenset[int], int]]


class ShareStatesReady(msgspec.Struct, frozen=True):
    """The states that are initialized now."""

    group_id: str
    partitions: Partitions


class ShareGroupHeartbeatResult(msgspec.Struct, frozen=True):
    """The response. `assignment` None: unchanged. `work`: for the broker, not for the member."""

    member_id: str
    epoch: int
    assignment: Partitions | None = None
    work: ShareStateWork | None = None


def check_share_heartbeat(beat: ShareGroupHeartbeat) -> None:
    """Raise InvalidRequest for an invalid request."""
    for name in ("member_id", "rack_id", "client_id"):
        value = getattr(beat, name)
        if value is not None and not value.strip() and name != "client_id":
            raise InvalidRequest(f"{name} must not be empty")
        if value is not None and len(value) > NAME_MAX_CHARS:
            raise InvalidRequest(f"{name} has at most {NAME_MAX_CHARS} characters")
    if beat.epoch < LEAVE_GROUP_MEMBER_EPOCH:
        raise InvalidRequest(f"member_epoch is at least {LEAVE_GROUP_MEMBER_EPOCH}")
    if beat.epoch == JOIN_GROUP_MEMBER_EPOCH and not beat.topics:
        raise InvalidRequest("subscribed_topic_names must be given when joining")
    if beat.topics is not None and len(beat.topics) > MAX_SUBSCRIBED_TOPICS:
        raise InvalidRequest(f"subscribed_topic_names has at most {MAX_SUBSCRIBED_TOPICS} topics")


class ShareDecisionBuilder(DecisionBuilder):
    """Builds a decision about a share group; `share_records` is what it writes."""

    max_size_setting = "group.share.max.size"

    def __init__(self, group_id: str, state: ShareMembership | None, around: DecisionContext) -> None:
        super().__init__(group_id, None if state is None else state.consumer, around)
        self.states = NO_STATES if state is None else state.states
        self._states_before = self.states

    @property
    def share_records(self) -> tuple[ShareRecord, ...]:
        """The records, that of the states last."""
        changed = self.states is not self._states_before
        states = (ShareStatesChanged(self.group_id, self.states),) if changed else ()
        return tuple(map(ShareRecord, (*self.records, *states)))

    def assign(self) -> Mapping[str, Partitions]:
        """Return the targets of all members: partitions of existing topics whose state is initialized."""
        topics = self.context.image.topics
        members = {
            member_id: ShareSubscription(
                frozenset(topics[name].topic_id for name in it.topics if name in topics),
                self.state.target_assignment_of(member_id),
            )
            for member_id, it in self.state.members.items()
        }
        read = frozenset().union(*(each.topic_ids for each in members.values()))
        offered = {
            topic_id: it.partitions for topic_id, it in self.states.initialized.items() if topic_id in read
        }
        return assign(members, offered)

    def reconcile(self, member_id: str, owned: Partitions | None = None) -> None:
        """Let a member have its target."""
        current, target = (
            self.state.current_assignment_of(member_id),
            self.state.target_assignment_of(member_id),
        )
        if (current.epoch, current.assigned) != (self.state.target_epoch, target):
            after = CurrentAssignment(self.state.target_epoch, current.epoch, assigned=target)
            self.put(CurrentAssignmentChanged(self.group_id, member_id, after))

    def update_states(self) -> None:
        """Begin to initialize the partitions that members read, and forget deleted topics.

        Their states need no request: the share coordinators follow the metadata too.
        """
        image, before = self.context.image, self.states
        known = before.initialized.keys() | before.initializing.keys() | before.deleting.keys()
        gone = known - image.topic_names.keys()
        begun: dict[UUID, ShareTopic] = {}
        for name in sorted(self.state.subscribed_topics() & image.topics.keys()):
            topic = image.topics[name]
            missing = frozenset(range(len(topic.partitions)))
            for topics in (before.initialized, before.initializing):
                missing -= topics[topic.topic_id].partitions if topic.topic_id in topics else frozenset()
            if missing:
                begun[topic.topic_id] = ShareTopic(name, missing)
        if begun or gone:
            self.states = ShareStates(
                union(without(before.initializing, gone), begun),
                without(before.initialized, gone),
                without(before.deleting, {*gone, *begun}),
            )

    def note_ready(self, ready: ShareStatesReady) -> None:
        """Record states that were initialized. Their partitions are assigned in a new epoch.

        A topic that is new to the group waits for all of its states. A partition that came later would be taken for one
        that was added to the topic.
        """
        states = self.states
        self.note_made(
            {
                topic_id: indexes
                for topic_id, indexes in ready.partitions.items()
                if topic_id in states.initialized
                or (topic_id in states.initializing and indexes >= states.initializing[topic_id].partitions)
            }
        )

    def note_made(self, made: Partitions) -> None:
        """Record states as initialized, if that was under way."""
        before = self.states
        begun = {
            topic_id: ShareTopic(before.initializing[topic_id].name, indexes)
            for topic_id, all_indexes in made.items()
            if topic_id in before.initializing
            and (indexes := all_indexes & before.initializing[topic_id].partitions)
        }
        if begun:
            self.states = ShareStates(
                minus(before.initializing, begun), union(before.initialized, begun), before.deleting
            )
            self.bump_group_epoch()

    @property
    def work(self) -> ShareStateWork | None:
        """The work after which all partitions can be assigned; None if all of it is done.

        A partition that was added to a topic is read from its beginning, since the members read the topic already.
        """
        states = self.states
        if not states.initializing:
            return None
        topics = {
            topic_id: (it.partitions, 0 if topic_id in states.initialized else NO_OFFSET)
            for topic_id, it in states.initializing.items()
        }
        return ShareStateWork(self.group_id, self.state.epoch, topics)


def decide_share_heartbeat(
    builder: ShareDecisionBuilder, beat: ShareGroupHeartbeat
) -> ShareGroupHeartbeatResult:
    """Write a member's heartbeat into a decision builder; return its response. Raise UnknownMemberId,
    FencedMemberEpoch, GroupMaxSizeReached, TooManySubscribedTopics.
    """
    builder.check_group_size(beat.member_id, None)
    had = _admit(builder, beat)
    changed = builder.update_member(
        beat.member_id, _described(builder.state.members.get(beat.member_id), beat)
    )
    builder.update_epoch_and_targets(changed=changed)
    builder.reconcile(beat.member_id)
    if builder.checked_topics:
        builder.update_states()
    current = builder.state.current_assignment_of(beat.member_id)
    is_news = beat.epoch != current.epoch or current.assigned != had.assigned or beat.topics is not None
    return ShareGroupHeartbeatResult(beat.member_id, current.epoch, current.assigned if is_news else None)


def _admit(builder: ShareDecisionBuilder, beat: ShareGroupHeartbeat) -> CurrentAssignment:
    """Admit the sender, or recognise it; return its former assignment."""
    current = builder.state.current_assignment_of(beat.member_id)
    if beat.epoch == JOIN_GROUP_MEMBER_EPOCH:
        return current
    if beat.member_id not in builder.state.members:
        raise UnknownMemberId(f"member {beat.member_id} is not in group {beat.group_id}")
    if beat.epoch not in (current.epoch, current.previous_epoch):
        raise FencedMemberEpoch(
            f"member {beat.member_id} is in epoch {current.epoch}, not {beat.epoch}: it must rejoin"
        )
    return current


def _described(before: MemberMetadata | None, beat: ShareGroupHeartbeat) -> MemberMetadata:
    old = before or MemberMetadata()
    return MemberMetadata(
        rack_id=old.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=old.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
    )


def decide_share_leave(builder: ShareDecisionBuilder, member_ids: Collection[str]) -> None:
    """Remove members that leave, or whose session timed out. Raise UnknownMemberId if none of them is there."""
    present = [each for each in member_ids if each in builder.state.members]
    if not present:
        raise UnknownMemberId(f"{', '.join(member_ids)} is not in group {builder.group_id}")
    builder.remove(*present)
    builder.bump_group_epoch()
