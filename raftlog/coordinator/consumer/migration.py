"""Online migration of groups between the types (KIP-848, group.consumer.migration.policy).

A classic group becomes a consumer group when a member of the consumer protocol joins it. It becomes a classic group
again when the last such member has left. Its members keep their partitions. One batch ends the old form and begins the
new form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.base.errors import CoordinatorNotAvailable, GroupIdNotFound
from raftlog.coordinator.classic.member_protocols import Protocols, ProtocolsByMember
from raftlog.coordinator.classic.rules import choose_protocol
from raftlog.coordinator.consumer.classic_members import assignment_of, by_id
from raftlog.coordinator.consumer.consumer_membership import (
    ClassicProtocols,
    ConsumerMembership,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    MemberChanged,
    MemberMetadata,
    MemberState,
    Partitions,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
)
from raftlog.coordinator.consumer.reconcile import difference, union, union_all
from raftlog.coordinator.consumer_protocol import (
    CONSUMER,
    PartitionsByTopic,
    Subscription,
    read_assignment,
    read_subscription,
)
from raftlog.coordinator.group import NO_LEADER, STABLE, Group, Member, Membership
from raftlog.coordinator.group_memory import member_record_bytes
from raftlog.metadata.image import MetadataImage

UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})


class ClassicGroupLimits(NamedTuple):
    """Limits of a classic group: its members, and their bytes in the record of a generation."""

    most_members: int
    most_bytes: int


def upgrade_to_consumer(
    group: Group,
    shown: Group,
    offers: ProtocolsByMember,
    *,
    policy: str,
    most_members: int,
    image: MetadataImage,
) -> tuple[ConsumerRecord, ...]:
    """Return the consumer group that a classic group becomes. `shown` is the group with a running rebalance.

    Raise GroupIdNotFound if it may not migrate, CoordinatorNotAvailable while the members' partitions are unknown.
    """
    members = _present(group, shown)
    if not (members or shown.membership.members):
        return _counted_on(group)
    if policy not in UPGRADES:
        raise GroupIdNotFound(f"group {group.group_id} is classic, and the migration policy is {policy}")
    if shown.membership.protocol_type != CONSUMER:
        raise GroupIdNotFound(
            f"group {group.group_id} has protocol type {shown.membership.protocol_type}, not consumer"
        )
    if len(members) > most_members:
        raise GroupIdNotFound(f"group {group.group_id} has more than {most_members} members")
    if members and group.membership.state != STABLE:
        raise CoordinatorNotAvailable(f"group {group.group_id} is rebalancing")
    return _converted(group, members, offers, image) if members else _counted_on(group)


def _present(group: Group, shown: Group) -> Mapping[str, Member]:
    """Return the members of the last generation that have not left since, or were replaced by a static member's
    next incarnation.
    """
    now = shown.membership.members
    instances = {each.group_instance_id for each in now.values()} - {None}
    return {
        member_id: each
        for member_id, each in group.membership.members.items()
        if member_id in now or each.group_instance_id in instances
    }


def _counted_on(group: Group) -> tuple[ConsumerRecord, ...]:
    """Return an epoch above all generations, so that no number is ever used twice."""
    return (GroupEpochChanged(group.group_id, group.membership.generation),)


def _converted(
    group: Group, members: Mapping[str, Member], offers: ProtocolsByMember, image: MetadataImage
) -> tuple[ConsumerRecord, ...]:
    group_id, generation = group.group_id, group.membership.generation
    records: list[ConsumerRecord] = [GroupEpochChanged(group_id, generation)]
    read = {each: _read(group, member, offers.get(each)) for each, member in group.membership.members.items()}
    given = union_all(by_id(has, image) for _, _, has in read.values())
    for member in members.values():
        protocols, subscription, assignment = read[member.member_id]
        subscriber = MemberMetadata(
            member.group_instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            tuple(sorted(subscription.topics)),
            None,
            member.rebalance_timeout_ms,
            None,
            ClassicProtocols(member.session_timeout_ms, protocols),
        )
        has = by_id(assignment, image)
        current = _taken_over(generation, has, difference(by_id(subscription.owned, image), given))
        records += (
            MemberChanged(group_id, member.member_id, subscriber),
            TargetAssignmentChanged(group_id, member.member_id, has),
            CurrentAssignmentChanged(group_id, member.member_id, current),
        )
    return (*records, TargetAssignmentEpochChanged(group_id, generation))


def _read(
    group: Group, member: Member, offered: Protocols | None
) -> tuple[Protocols, Subscription, PartitionsByTopic]:
    """Return a member's protocols, its metadata, and its assignment. Raise GroupIdNotFound."""
    protocols = offered or ((group.membership.protocol or "", member.subscription),)
    subscription, assignment = read_subscription(protocols[0][1]), read_assignment(member.assignment)
    if subscription is None or assignment is None:
        raise GroupIdNotFound(
            f"the subscriptions of group {group.group_id} are not in the consumer protocol's format"
        )
    return protocols, subscription, assignment


def _taken_over(generation: int, has: Partitions, gives_up: Partitions) -> CurrentAssignment:
    """Return the initial state of a classic member. `gives_up`: partitions that it had when it joined, and that no
    member got since.

    So leaders of the cooperative protocol revoke partitions: the member may still be giving them up, and will join
    again.
    """
    state = MemberState.UNREVOKED_PARTITIONS if gives_up else MemberState.STABLE
    return CurrentAssignment(generation, generation, state, has, gives_up)


def downgrade_to_classic(
    state: ConsumerMembership,
    *,
    generation: int,
    policy: str,
    bounds: ClassicGroupLimits,
    image: MetadataImage,
    now_ms: int,
) -> Membership | None:
    """Return the classic group that a consumer group becomes, stable and about to rebalance; None: it stays.

    Its generation continues from `generation`, the epoch before the last consumer member left. Members of that epoch
    must join again, and keep their partitions meanwhile. The missing leader makes every coordinator rebalance it.

    It stays if all its members would not fit into the record of a classic generation.
    """
    offers = classic_protocols(state)
    if policy not in DOWNGRADES or not state.members or len(offers) < len(state.members):
        return None
    protocol = choose_protocol(list(offers.values()))
    if protocol is None or len(state.members) > bounds.most_members:
        return None
    members = {
        member_id: Member(
            member_id,
            it.instance_id,
            it.client_id,
            it.client_host,
            it.rebalance_timeout_ms,
            it.classic.session_timeout_ms if it.classic else 0,
            (subscription := dict(offers[member_id])[protocol]),
            assignment_of(_in_hands(state.current_assignment_of(member_id)), subscription, image),
        )
        for member_id, it in state.members.items()
    }
    if (
        sum(member_record_bytes(each, offers[each.member_id]) for each in members.values())
        > bounds.most_bytes
    ):
        return None
    return Membership(CONSUMER, generation, protocol, NO_LEADER, now_ms, members)


def _in_hands(current: CurrentAssignment) -> Partitions:
    """Return all that a member may still read: the classic record does not have revocations."""
    return union(current.assigned, current.revoking)


def classic_protocols(state: ConsumerMembership) -> ProtocolsByMember:
    """Return the protocols of the members that speak the classic protocol."""
    return {each: it.classic.protocols for each, it in state.members.items() if it.classic is not None}
