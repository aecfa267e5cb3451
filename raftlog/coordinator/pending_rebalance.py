"""Soft state of one rebalance: who belongs to the group while it gathers, and whose JoinGroup waits for the others.

`classic_group` begins a rebalance and completes it.
Nothing of it is recorded: a coordinator that fails over goes on from the last generation, and the members, told
nothing, come again.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raftlog.base.machine import Answer
from raftlog.coordinator.group import Member, Membership
from raftlog.coordinator.group_requests import JoinGroup


class ParkedJoin(NamedTuple):
    """A JoinGroup that is answered when the rebalance ends. `is_new`: no generation had this member yet."""

    request: JoinGroup
    answer: Answer
    is_new: bool


class PendingRebalance:
    """From the first reason for a rebalance to the record of the next generation.

    `joins` is part of `members`; who is in the latter only has yet to come back. `is_initial`: the group was empty, so
    it is waited for further members (KIP-134), for `remaining_ms` more at most.
    """

    __slots__ = (
        "before",
        "began_at",
        "is_initial",
        "joins",
        "leader",
        "members",
        "membership",
        "new_member_added",
        "remaining_ms",
    )

    def __init__(self, before: Membership, protocol_type: str | None) -> None:
        self.before = before
        self.began_at = 0.0
        """Loop seconds."""
        self.members: dict[str, Member] = dict(before.members)
        self.joins: dict[str, ParkedJoin] = {}
        self.leader = before.elected
        self.is_initial = not before.members
        self.remaining_ms = 0
        self.new_member_added = False
        self.membership = Membership(
            before.protocol_type if before.members else protocol_type,
            before.generation,
            before.protocol,
            before.leader,
            before.since_ms,
            self.members,
        )
        """The members that may speak meanwhile, in the generation before; it shares `members`."""

    @property
    def is_complete(self) -> bool:
        return len(self.joins) == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The slowest member's."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def park(self, member: Member, join: ParkedJoin) -> ParkedJoin | None:
        """Let a member wait; returns its former request, if that still waited."""
        if self.is_initial and join.is_new and self.joins:
            self.new_member_added = True
        if not self.members:  # who was here before has left, and took the group's type along
            self.membership = msgspec.structs.replace(
                self.membership, protocol_type=join.request.protocol_type
            )
        shown = self.members.get(member.member_id, member)
        self.members[member.member_id] = msgspec.structs.replace(member, assignment=shown.assignment)
        former = self.joins.get(member.member_id)
        self.joins[member.member_id] = join
        return former

    def remove(self, member_id: str) -> ParkedJoin | None:
        """Take a member out; returns its request, if that waited."""
        self.members.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        return self.joins.pop(member_id, None)

    def members_not_rejoined(self) -> list[str]:
        """Dynamic members that did not come back. Static ones may be late (KIP-345)."""
        return [
            each.member_id
            for each in self.members.values()
            if each.member_id not in self.joins and each.group_instance_id is None
        ]

    def elect(self) -> str:
        """The leader, or the next of the former members, stays if it came back; else whoever joined first leads."""
        return self.leader if self.leader in self.joins else next(iter(self.joins), "")
