"""Decisions about members of the consumer protocol: heartbeat, leave, and session timeout (KIP-848).

One heartbeat writes one batch of records. It adds or updates the member, bumps the group epoch if other members are
affected, and computes the target assignment. Then it moves the member one step towards its target. So every response
derives from records.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from raftlog.base.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from raftlog.base.regex import check_regex
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.consumer.consumer_membership import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_PARTITIONS,
    CurrentAssignment,
    CurrentAssignmentChanged,
    MemberMetadata,
    MemberState,
)
from raftlog.coordinator.consumer.decision_builder import (
    MAX_SUBSCRIBED_TOPICS,
    DecisionBuilder,
    TooManySubscribedTopics,
)
from raftlog.coordinator.consumer.heartbeat_requests import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_EPOCHS,
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from raftlog.coordinator.consumer.reconcile import is_subset, rejoined


def check_consumer_heartbeat(beat: ConsumerGroupHeartbeat, assignors: Sequence[str]) -> None:
    """Raise InvalidRequest, UnsupportedAssignor, InvalidRegularExpression for an invalid request."""
    for name in ("instance_id", "rack_id", "member_id", "client_id"):
        value = getattr(beat, name)
        if value is not None and not value.strip() and name != "client_id":
            raise InvalidRequest(f"{name} must not be empty")
        if value is not None and len(value) > NAME_MAX_CHARS:
            raise InvalidRequest(f"{name} has at most {NAME_MAX_CHARS} characters")
    if beat.epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise InvalidRequest(f"member_epoch is at least {LEAVE_GROUP_STATIC_MEMBER_EPOCH}")
    if beat.epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and beat.instance_id is None:
        raise InvalidRequest("instance_id is required to leave with epoch -2")
    if beat.epoch == JOIN_GROUP_MEMBER_EPOCH:
        _check_joining(beat)
    if beat.topics is not None and len(beat.topics) > MAX_SUBSCRIBED_TOPICS:
        raise InvalidRequest(f"subscribed_topic_names has at most {MAX_SUBSCRIBED_TOPICS} topics")
    if beat.regex:
        check_regex(beat.regex)
    if beat.assignor is not None and beat.assignor not in assignors:
        raise UnsupportedAssignor(f"{beat.assignor} is not supported, only {', '.join(assignors)}")


def _check_joining(beat: ConsumerGroupHeartbeat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise InvalidRequest("rebalance_timeout must be given when joining")
    if beat.owned is None or beat.owned:
        raise InvalidRequest("topic_partitions must be empty when joining")
    if beat.topics is None and beat.regex is None:
        raise InvalidRequest("subscribed_topic_names or subscribed_topic_regex must be given when joining")


def decide_consumer_heartbeat(
    builder: DecisionBuilder, beat: ConsumerGroupHeartbeat, *, tell_again: bool = False
) -> ConsumerGroupHeartbeatResult:
    """Write a member's heartbeat into a decision builder; return its response. Raise UnknownMemberId,
    FencedMemberEpoch, UnreleasedInstanceId, FencedInstanceId, GroupMaxSizeReached, TooManySubscribedTopics.

    `tell_again`: the member has not confirmed its assignment, so send it again unless this heartbeat confirms it.
    """
    builder.check_group_size(beat.member_id, beat.instance_id)
    had = _admit(builder, beat)
    changed = builder.update_member(
        beat.member_id, _described(builder.state.members.get(beat.member_id), beat)
    )
    builder.update_epoch_and_targets(changed=changed, viewer=beat.viewer)
    if changed and builder.state.members[beat.member_id].regex in builder.rejected_regexes:
        raise TooManySubscribedTopics
    builder.reconcile(beat.member_id, beat.owned)
    current = builder.state.current_assignment_of(beat.member_id)
    is_news = beat.is_full_request or beat.epoch != had.epoch or current.assigned != had.assigned
    # The response may be lost: librdkafka considers a late response lost, and repeats an unchanged request. Then other
    # members wait for partitions that this member never revokes, and no member reads its new partitions.
    says_it_has = beat.owned is not None and is_subset(current.assigned, beat.owned)
    is_owed = (tell_again and not says_it_has) or current.state is MemberState.UNREVOKED_PARTITIONS
    return ConsumerGroupHeartbeatResult(
        beat.member_id, current.epoch, current.assigned if is_news or is_owed else None
    )


def _admit(builder: DecisionBuilder, beat: ConsumerGroupHeartbeat) -> CurrentAssignment:
    """Admit the sender, or recognise it; return its former assignment."""
    state = builder.state
    holder = None if beat.instance_id is None else state.static_member_id(beat.instance_id)
    if beat.instance_id is not None and holder != beat.member_id:
        if beat.epoch != JOIN_GROUP_MEMBER_EPOCH:
            if holder is None:
                raise UnknownMemberId(f"no member has the instance id {beat.instance_id}")
            raise FencedInstanceId(f"instance id {beat.instance_id} belongs to member {holder}")
        if holder is not None:
            return _succeed(builder, beat, holder)
    if beat.member_id not in state.members:
        if beat.epoch != JOIN_GROUP_MEMBER_EPOCH:
            raise UnknownMemberId(f"member {beat.member_id} is not in group {beat.group_id}")
        return state.current_assignment_of(beat.member_id)
    current = state.current_assignment_of(beat.member_id)
    if beat.epoch == JOIN_GROUP_MEMBER_EPOCH:
        return _rejoin(builder, beat.member_id, current)
    check_epoch(current, beat)
    if current.state is MemberState.UNKNOWN and beat.owned != NO_PARTITIONS:
        raise FencedMemberEpoch("a newer release recorded the member in a state unknown to this release")
    return current


def _succeed(builder: DecisionBuilder, beat: ConsumerGroupHeartbeat, holder: str) -> CurrentAssignment:
    """Replace a static member by its next incarnation, if the former has left (or spoke the classic protocol)."""
    state = builder.state
    former = state.current_assignment_of(holder)
    if state.members[holder].classic is None and former.epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise UnreleasedInstanceId(f"instance id {beat.instance_id} is still used by member {holder}")
    if beat.member_id in state.members:
        raise InvalidRequest(f"member {beat.member_id} is in the group already, under another instance id")
    current = rejoined(former)
    builder.replace_static_member(holder, beat.member_id, current)
    return current


def _rejoin(builder: DecisionBuilder, member_id: str, current: CurrentAssignment) -> CurrentAssignment:
    """Give a member that comes back its place, without partitions (KAFKA-19233)."""
    if current.epoch != JOIN_GROUP_MEMBER_EPOCH:
        current = rejoined(current)
        builder.put(CurrentAssignmentChanged(builder.group_id, member_id, current))
    return current


def check_epoch(current: CurrentAssignment, beat: ConsumerGroupHeartbeat) -> None:
    """Raise FencedMemberEpoch unless the epoch is the member's current epoch, or its previous epoch.

    A member that lost the last response sends its previous epoch, and may own only partitions that are assigned to it.
    """
    if beat.epoch == current.epoch:
        return
    lost = beat.epoch == current.previous_epoch and beat.owned is not None
    if lost and is_subset(beat.owned or NO_PARTITIONS, current.assigned):
        return
    raise FencedMemberEpoch(
        f"member {beat.member_id} is in epoch {current.epoch}, not {beat.epoch}: it must revoke "
        "all partitions and rejoin"
    )


def _described(before: MemberMetadata | None, beat: ConsumerGroupHeartbeat) -> MemberMetadata:
    old = before or MemberMetadata()
    return MemberMetadata(
        old.instance_id if beat.instance_id is None else beat.instance_id,
        old.rack_id if beat.rack_id is None else beat.rack_id,
        beat.client_id,
        beat.client_host,
        old.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        old.regex if beat.regex is None else (beat.regex or None),
        old.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        old.assignor if beat.assignor is None else beat.assignor,
    )


def decide_leave(builder: DecisionBuilder, beat: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResult:
    """Remove a leaving member; a static member that left temporarily keeps its place for a session.

    Raise UnknownMemberId, FencedInstanceId.
    """
    assert beat.epoch in LEAVE_EPOCHS
    state = builder.state
    if beat.instance_id is not None:
        holder = state.static_member_id(beat.instance_id)
        if holder is None:
            raise UnknownMemberId(f"no member has the instance id {beat.instance_id}")
        if holder != beat.member_id:
            raise FencedInstanceId(f"instance id {beat.instance_id} belongs to member {holder}")
    if beat.member_id not in state.members:
        raise UnknownMemberId(f"member {beat.member_id} is not in group {beat.group_id}")
    if beat.epoch == LEAVE_GROUP_MEMBER_EPOCH:
        builder.remove(beat.member_id)
        builder.bump_group_epoch()
    else:
        current = state.current_assignment_of(beat.member_id)
        away = msgspec.structs.replace(
            current,
            epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
            since=(),  # for the next incarnation all partitions count as assigned in epoch 0
        )
        builder.put(CurrentAssignmentChanged(builder.group_id, beat.member_id, away))
    return ConsumerGroupHeartbeatResult(beat.member_id, beat.epoch)


def decide_fence_members(builder: DecisionBuilder, member_ids: Sequence[str]) -> None:
    """Remove members after a session timeout, or if they did not give up their partitions in time."""
    builder.remove(*(each for each in member_ids if each in builder.state.members))
    builder.bump_group_epoch()
