"""Rules of a classic group's membership, as functions of values: identity, limits, and the next generation.

Laws (KIP-62, 345, 394, 814 and Apache Kafka's classic groups): every change of members is a new generation. Only the
return of a static member is none. A generation is Stable once its leader's assignments are recorded. A request that
names another generation, an unknown member id, or a static id of another member is refused, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from raftlog.base.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    UnknownMemberId,
)
from raftlog.base.machine import Decision
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.classic.member_protocols import ProtocolNames, Protocols
from raftlog.coordinator.classic.pending_rebalance import PendingRebalance
from raftlog.coordinator.group import Group, GroupChanged, Member, Membership
from raftlog.coordinator.group_requests import (
    JoinGroup,
    JoinGroupResult,
    MemberRef,
    SyncGroup,
    SyncGroupResult,
)

# -- identity ---------------------------------------------------------------------------------------------


def find_member(membership: Membership, member: MemberRef) -> Member:
    """Return the member of a request. Raise UnknownMemberId, FencedInstanceId.

    A static id alone is enough: admin tools that remove a static member have no member id.
    """
    if member.group_instance_id is not None:
        old_member = membership.member_of_instance(member.group_instance_id)
        if old_member is None:
            raise UnknownMemberId
        if member.member_id and old_member.member_id != member.member_id:
            raise FencedInstanceId
        return old_member
    found = membership.members.get(member.member_id)
    if found is None:
        raise UnknownMemberId
    return found


def check_member(membership: Membership, member: MemberRef, generation: int) -> Member:
    """Return the member of a request, under its member id. Raise UnknownMemberId, FencedInstanceId,
    IllegalGeneration.
    """
    found = find_member(membership, member)
    if not member.member_id:
        raise FencedInstanceId
    if generation != membership.generation:
        raise IllegalGeneration
    return found


def check_sync(membership: Membership, request: SyncGroup) -> Member:
    """Return the syncing member. Raise as `check_member` does, and InconsistentGroupProtocol."""
    member = check_member(membership, request.member, request.generation)
    if request.protocol_type not in (None, membership.protocol_type):
        raise InconsistentGroupProtocol
    if request.protocol not in (None, membership.protocol):
        raise InconsistentGroupProtocol
    return member


# -- what fits -------------------------------------------------------------------------------------------


def check_join(request: JoinGroup) -> None:
    """Raise InconsistentGroupProtocol without a protocol, InvalidRequest for a name that is too long."""
    if not request.protocol_type or not request.protocols:
        raise InconsistentGroupProtocol
    static_id = request.member.group_instance_id or ""
    names = (request.protocol_type, request.client_id, static_id, *(name for name, _ in request.protocols))
    if any(len(name) > NAME_MAX_CHARS for name in names):
        raise InvalidRequest(
            f"client id, group.instance.id and protocol names have at most {NAME_MAX_CHARS} characters"
        )


def check_protocols(request: JoinGroup, protocol_type: str | None, common: ProtocolNames | None) -> None:
    """Raise InconsistentGroupProtocol unless the type is the members' and all have one name in common.

    `common`: the names that all members have; None without members.
    """
    if common is None:
        return
    if protocol_type is not None and protocol_type != request.protocol_type:
        raise InconsistentGroupProtocol
    if not any(name in common for name, _ in request.protocols):
        raise InconsistentGroupProtocol


def choose_protocol(offers: Sequence[Protocols]) -> str | None:
    """Return the protocol with the most votes: each member votes for its first protocol that all support. The first
    member breaks ties. None without members.
    """
    if not offers:
        return None
    common = {name for name, _ in offers[0]}
    for offer in offers:
        common &= {name for name, _ in offer}
    votes = Counter(next((name for name, _ in offer if name in common), "") for offer in offers)
    ranked = [name for name, _ in offers[0] if name in common]
    return max(ranked, key=votes.__getitem__, default=None)


def joining_member(request: JoinGroup, member_id: str) -> Member:
    """Return the member that a request describes. The subscription is known once a protocol is chosen."""
    return Member(
        member_id,
        request.member.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        b"",
    )


# -- what comes next -------------------------------------------------------------------------------------


def next_generation(
    rebalance: PendingRebalance, offers: Mapping[str, Protocols], *, now_ms: int
) -> Membership:
    """Return the generation of all joined members, its leader first, or an empty generation.

    `offers` by member id; absent static members keep their last protocols.
    """
    before = rebalance.before
    if not rebalance.members:
        return Membership(rebalance.membership.protocol_type, before.generation + 1, None, None, now_ms)
    leader = rebalance.elect()
    ids = [leader, *(each for each in rebalance.members if each != leader)]
    protocol = choose_protocol([offers[each] for each in ids])
    assert protocol is not None, "joins were let in that have no protocol in common"
    members = {
        each: msgspec.structs.replace(
            rebalance.members[each], subscription=dict(offers[each])[protocol], assignment=b""
        )
        for each in ids
    }
    generation = before.generation + 1
    return Membership(rebalance.membership.protocol_type, generation, protocol, None, now_ms, members)


def decide_assign(group: Group, request: SyncGroup, *, now_ms: int) -> Decision:
    """Record the leader's assignments; the reply is the membership with them. A member without an assignment gets
    none.
    """
    old = group.membership
    members = {
        each.member_id: msgspec.structs.replace(each, assignment=request.assignments.get(each.member_id, b""))
        for each in old.members.values()
    }
    stable = msgspec.structs.replace(old, leader=old.elected, since_ms=now_ms, members=members)
    return Decision((GroupChanged(group.group_id, stable),), stable)


def decide_replace_static_member(group: Group, old_member: Member, new_member: Member) -> Decision:
    """Give a static member's place and assignment to its new incarnation: same generation, no rebalance (KIP-345)."""
    old = group.membership
    members = {
        (new_member if each is old_member else each).member_id: new_member if each is old_member else each
        for each in old.members.values()
    }
    leader = new_member.member_id if old.leader == old_member.member_id else old.leader
    replaced = msgspec.structs.replace(old, leader=leader, members=members)
    return Decision((GroupChanged(group.group_id, replaced),), replaced)


# -- answers ---------------------------------------------------------------------------------------------


def join_result(membership: Membership, member_id: str) -> JoinGroupResult:
    """Return the response to a member of a generation."""
    leader = membership.elected
    return JoinGroupResult(
        member_id,
        membership.generation,
        membership.protocol_type,
        membership.protocol,
        leader,
        tuple(membership.members.values()) if member_id == leader else (),
    )


def static_rejoin_result(
    before: Membership, after: Membership, member_id: str, *, may_skip: bool
) -> JoinGroupResult:
    """Return the response to a static member that came back to a stable group.

    Before v9 the response cannot say that the assignment stands, so a leader gets its former member id as the leader
    (KIP-814).
    """
    if not may_skip:
        answer = join_result(after, member_id)
        return msgspec.structs.replace(answer, leader=before.elected, members=())
    answer = join_result(after, member_id)
    return msgspec.structs.replace(answer, skip_assignment=member_id == after.leader)


def sync_result(membership: Membership, member_id: str) -> SyncGroupResult:
    """Return a member's own assignment."""
    assignment = membership.members[member_id].assignment
    return SyncGroupResult(membership.protocol_type, membership.protocol, assignment)
