"""Decisions about who is in a group: join, sync, heartbeat, leave, expiry. They read a group and return a Decision.

Laws (KIP-62, 345, 394 and Apache Kafka's classic groups): every change of members is a new generation; a generation
is Stable once its leader's assignments are recorded; who names another generation, an unknown member id or a static id
that another member holds is told so, and nothing changes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.base.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    UnknownMemberId,
)
from raftlog.base.machine import Decision
from raftlog.coordinator.group import STABLE, Group, GroupChanged, Member, Membership
from raftlog.coordinator.records import LONGEST_STRING_BYTES
from raftlog.coordinator.requests import (
    Joined,
    JoinGroup,
    MemberIdRequired,
    MemberRef,
    Synced,
    SyncGroup,
)

MOST_MEMBERS: Final = 1
"""Members a group may have, until rebalances of several are built."""

UUID_BYTES: Final = 37
"""A member id is a client's own name, a dash and a UUID."""


def decide_join(
    group: Group, request: JoinGroup, *, new_member_id: str, expected: bool, now_ms: int
) -> Decision:
    """Let a member in, or back in. `expected`: its id was given out by MemberIdRequired and is not yet used.

    Raises InconsistentGroupProtocol, UnknownMemberId, FencedInstanceId, GroupMaxSizeReached.
    """
    membership = group.membership
    _check_protocols(membership, request)
    present = find_member(membership, request.member) if _names_a_member(membership, request.member) else None
    if present is None and not expected:
        _check_room(membership)
        if request.member.member_id:
            raise UnknownMemberId
        if request.may_require_member_id and request.member.group_instance_id is None:
            return Decision(reply=MemberIdRequired(new_member_id))
    if present is None:
        _check_room(membership)
    elif _is_retry(membership, present, request):
        return Decision(reply=_joined(membership, present.member_id))
    member_id = request.member.member_id or new_member_id
    next_generation = _generation_with(membership, request, member_id, replaced=present, now_ms=now_ms)
    return Decision((GroupChanged(group.group_id, next_generation),), _joined(next_generation, member_id))


def _names_a_member(membership: Membership, member: MemberRef) -> bool:
    """Whether the request speaks for someone who is in the group: by id, or as the new life of a static member."""
    if member.group_instance_id is not None:
        return membership.member_of_instance(member.group_instance_id) is not None
    return member.member_id in membership.members


def find_member(membership: Membership, member: MemberRef) -> Member:
    """Return the member that a request speaks for. Raises UnknownMemberId, FencedInstanceId.

    A static id alone (admin tools and a restarted static member have no member id) is enough.
    """
    if member.group_instance_id is not None:
        holder = membership.member_of_instance(member.group_instance_id)
        if holder is None:
            raise UnknownMemberId
        if member.member_id and holder.member_id != member.member_id:
            raise FencedInstanceId
        return holder
    found = membership.members.get(member.member_id)
    if found is None:
        raise UnknownMemberId
    return found


def _check_protocols(membership: Membership, request: JoinGroup) -> None:
    if not request.protocol_type or not request.protocols:
        raise InconsistentGroupProtocol
    static_id = request.member.group_instance_id or ""
    texts = (request.protocol_type, request.protocols[0][0], request.client_id, static_id)
    if any(len(text.encode()) > LONGEST_STRING_BYTES - UUID_BYTES for text in texts):
        raise InvalidRequest("a name is too long")
    if membership.members and membership.protocol_type != request.protocol_type:
        raise InconsistentGroupProtocol


def _check_room(membership: Membership) -> None:
    if len(membership.members) >= MOST_MEMBERS:
        raise GroupMaxSizeReached(f"groups have at most {MOST_MEMBERS} member")


def _is_retry(membership: Membership, present: Member, request: JoinGroup) -> bool:
    """The same join again before the assignments came: its answer was lost, so give it once more."""
    if membership.state == STABLE or present.member_id != request.member.member_id:
        return False
    return dict(request.protocols).get(membership.protocol or "") == present.subscription


def _generation_with(
    membership: Membership, request: JoinGroup, member_id: str, *, replaced: Member | None, now_ms: int
) -> Membership:
    protocol, subscription = request.protocols[0]
    joining = Member(
        member_id,
        request.member.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        subscription,
    )
    members = {each: member for each, member in membership.members.items() if member is not replaced}
    members[member_id] = joining
    return Membership(request.protocol_type, membership.generation + 1, protocol, None, now_ms, members)


def _joined(membership: Membership, member_id: str) -> Joined:
    leader = membership.elected
    return Joined(
        member_id,
        membership.generation,
        membership.protocol_type,
        membership.protocol,
        leader,
        tuple(membership.members.values()) if member_id == leader else (),
    )


def check_member(membership: Membership, member: MemberRef, generation: int) -> Member:
    """Return who speaks. Raises UnknownMemberId, FencedInstanceId, IllegalGeneration."""
    found = find_member(membership, member)
    if not member.member_id:
        raise UnknownMemberId
    if generation != membership.generation:
        raise IllegalGeneration
    return found


def decide_sync(group: Group, request: SyncGroup, *, now_ms: int) -> Decision:
    """Record the leader's assignments; answer each member with its own.

    Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, InconsistentGroupProtocol.
    """
    membership = group.membership
    member = check_member(membership, request.member, request.generation)
    if request.protocol_type not in (None, membership.protocol_type):
        raise InconsistentGroupProtocol
    if request.protocol not in (None, membership.protocol):
        raise InconsistentGroupProtocol
    if membership.state == STABLE:
        return Decision(reply=_synced(membership, member.member_id))
    assert member.member_id == membership.elected, "with one member, who syncs is the leader"
    assigned = Membership(
        membership.protocol_type,
        membership.generation,
        membership.protocol,
        member.member_id,
        now_ms,
        {
            each.member_id: msgspec.structs.replace(
                each, assignment=request.assignments.get(each.member_id, b"")
            )
            for each in membership.members.values()
        },
    )
    return Decision((GroupChanged(group.group_id, assigned),), _synced(assigned, member.member_id))


def _synced(membership: Membership, member_id: str) -> Synced:
    assignment = membership.members[member_id].assignment
    return Synced(membership.protocol_type, membership.protocol, assignment)


def decide_heartbeat(group: Group, member: MemberRef, generation: int) -> Decision:
    """Say whether the member still belongs. Raises UnknownMemberId, FencedInstanceId, IllegalGeneration."""
    check_member(group.membership, member, generation)
    return Decision()


def decide_leave(group: Group, member: MemberRef, *, now_ms: int) -> Decision:
    """Take one member out. Raises UnknownMemberId, FencedInstanceId."""
    return _without(group, find_member(group.membership, member), now_ms)


def decide_expire(group: Group, member_id: str, *, now_ms: int) -> Decision:
    """Take a member out whose session timed out; who has left already is no matter."""
    member = group.membership.members.get(member_id)
    return Decision() if member is None else _without(group, member, now_ms)


def _without(group: Group, leaving: Member, now_ms: int) -> Decision:
    old = group.membership
    members = {each: member for each, member in old.members.items() if member is not leaving}
    protocol = old.protocol if members else None
    left = Membership(old.protocol_type, old.generation + 1, protocol, None, now_ms, members)
    return Decision((GroupChanged(group.group_id, left),))
