"""Decisions about members of a consumer group that speak the classic protocol (KIP-848, online migration).

Their generation is their member epoch. They join to take the next step towards their target, and sync to get their
assignment. There is no leader, and no member waits for another. The response to a heartbeat makes them join again.
"""

from __future__ import annotations

from raftlog.base.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.coordinator.consumer.consumer_membership import (
    ClassicProtocols,
    ConsumerMembership,
    MemberMetadata,
    MemberState,
    Partitions,
)
from raftlog.coordinator.consumer.decision_builder import DecisionBuilder, PartitionsOfOthers
from raftlog.coordinator.consumer.reconcile import difference, rejoined
from raftlog.coordinator.consumer_protocol import (
    CONSUMER,
    PartitionsByTopic,
    Subscription,
    read_subscription,
    write_assignment,
)
from raftlog.coordinator.group_requests import (
    JoinGroup,
    JoinGroupResult,
    MemberRef,
    SyncGroup,
    SyncGroupResult,
)
from raftlog.metadata.image import MetadataImage

NO_LEADER_ID = ""
"""The leader in their responses, so that no member assigns."""


def check_protocols(state: ConsumerMembership, request: JoinGroup) -> Subscription:
    """Return the sender's subscription. Raise InconsistentGroupProtocol unless it has a protocol of consumers in common
    with all other classic members.
    """
    who = request.member
    common = {name for name, _ in request.protocols}
    for member_id, each in state.members.items():
        is_sender = member_id == who.member_id or each.instance_id == (who.group_instance_id or "")
        if each.classic is not None and not is_sender:
            common &= {name for name, _ in each.classic.protocols}
    subscription = read_subscription(request.protocols[0][1]) if request.protocols else None
    if request.protocol_type != CONSUMER or not common or subscription is None:
        raise InconsistentGroupProtocol
    return subscription


def decide_join(
    builder: DecisionBuilder, request: JoinGroup, subscription: Subscription, new_member_id: str
) -> JoinGroupResult:
    """Admit a member, or take it a step further. Raise UnknownMemberId, FencedInstanceId, GroupMaxSizeReached."""
    who = request.member
    member_id = who.member_id or new_member_id
    builder.check_group_size(member_id, who.group_instance_id)
    if who.group_instance_id is not None:
        _take_place(builder, who, member_id)
    before = builder.state.members.get(member_id, MemberMetadata())
    changed = builder.update_member(
        member_id,
        MemberMetadata(
            who.group_instance_id or before.instance_id,
            subscription.rack_id,
            request.client_id,
            request.client_host,
            tuple(sorted(subscription.topics)),
            None,
            request.rebalance_timeout_ms,
            before.assignor,
            ClassicProtocols(request.session_timeout_ms, request.protocols),
        ),
    )
    builder.update_epoch_and_targets(changed=changed, viewer=request.viewer)
    builder.reconcile(member_id, by_id(subscription.owned, builder.context.image))
    protocol = request.protocols[0][0]
    return JoinGroupResult(
        member_id, builder.state.current_assignment_of(member_id).epoch, CONSUMER, protocol, NO_LEADER_ID
    )


def _take_place(builder: DecisionBuilder, who: MemberRef, member_id: str) -> None:
    """Have a static member that came back without its id replace its former incarnation (KIP-345)."""
    assert who.group_instance_id is not None
    holder = builder.state.static_member_id(who.group_instance_id)
    if who.member_id:
        if holder is None:
            raise UnknownMemberId
        if holder != who.member_id:
            raise FencedInstanceId
    elif holder is not None:
        builder.replace_static_member(
            holder, member_id, rejoined(builder.state.current_assignment_of(holder))
        )


def find_member(state: ConsumerMembership, who: MemberRef) -> str:
    """Return the id of the classic member of a request. Raise UnknownMemberId, FencedInstanceId."""
    member_id = find_leaving_member(state, who)
    if member_id != who.member_id:
        raise FencedInstanceId
    if state.members[member_id].classic is None:
        raise UnknownMemberId
    return member_id


def find_leaving_member(state: ConsumerMembership, who: MemberRef) -> str:
    """Return the id of a leaving member of either protocol. Raise UnknownMemberId, FencedInstanceId.

    Admin tools remove all kinds of members with LeaveGroup, static members without their member ids.
    """
    member_id = who.member_id
    if who.group_instance_id is not None:
        holder = state.static_member_id(who.group_instance_id)
        if holder is None:
            raise UnknownMemberId
        if member_id not in (holder, ""):
            raise FencedInstanceId
        member_id = holder
    if member_id not in state.members:
        raise UnknownMemberId
    return member_id


def check_generation(state: ConsumerMembership, member_id: str, generation: int) -> None:
    """Raise IllegalGeneration."""
    if generation != state.current_assignment_of(member_id).epoch:
        raise IllegalGeneration


def must_rejoin(state: ConsumerMembership, member_id: str) -> bool:
    """Return whether a member has a next step: a new epoch, partitions to give up, or all awaited partitions free."""
    current = state.current_assignment_of(member_id)
    if current.epoch < state.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = difference(state.target_assignment_of(member_id), current.assigned)
    return not PartitionsOfOthers(state, but=member_id)(missing)


def sync_result(state: ConsumerMembership, request: SyncGroup, image: MetadataImage) -> SyncGroupResult:
    """Return the partitions of a member, for its SyncGroup response. Raise UnknownMemberId, FencedInstanceId,
    IllegalGeneration, InconsistentGroupProtocol, RebalanceInProgress.
    """
    member_id = find_member(state, request.member)
    check_generation(state, member_id, request.generation)
    current, classic = state.current_assignment_of(member_id), state.members[member_id].classic
    assert classic is not None
    protocol, subscription = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, protocol):
        raise InconsistentGroupProtocol
    if current.epoch < state.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgress
    return SyncGroupResult(CONSUMER, protocol, assignment_of(current.assigned, subscription, image))


def assignment_of(partitions: Partitions, subscription: bytes, image: MetadataImage) -> bytes:
    """Encode partitions for the classic protocol, in the version of a member."""
    parsed = read_subscription(subscription)
    return write_assignment(by_name(partitions, image), version=parsed.version if parsed else 0)


def by_id(partitions: PartitionsByTopic, image: MetadataImage) -> Partitions:
    """Return the partitions by topic id, without topics that do not exist."""
    return {
        image.topics[name].topic_id: indexes for name, indexes in partitions.items() if name in image.topics
    }


def by_name(partitions: Partitions, image: MetadataImage) -> PartitionsByTopic:
    """Return the partitions by topic name, without topics that do not exist."""
    names = image.topic_names
    return {names[topic_id]: indexes for topic_id, indexes in partitions.items() if topic_id in names}
