"""Soft state of one rebalance: its members, and the JoinGroup requests that wait for its end.

`ClassicGroup` begins a rebalance and completes it. It is not recorded: after a failover the last generation counts,
and unanswered members join again.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raftlog.base.machine import Answer
from raftlog.coordinator.group import Member, Membership
from raftlog.coordinator.group_requests import JoinGroup


class ParkedJoin(NamedTuple):
    """A JoinGroup that waits for the end of the rebalance. `is_new`: no generation had this member yet."""

    request: JoinGroup
    answer: Answer
    is_new: bool


class PendingRebalance:
    """A rebalance, from its first cause to the record of the next generation.

    Members in `members` but not in `joins` have yet to join again. `is_initial`: the group was empty, so it waits for
    further members (KIP-134), for `remaining_ms` more at most.
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
        """The members that are accepted during the rebalance, in the previous generation. It shares `members`."""

    @property
    def is_complete(self) -> bool:
        return len(self.joins) == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def park(self, member: Member, join: ParkedJoin) -> ParkedJoin | None:
        """Park a member's join; return its former join, if that still waited."""
        if self.is_initial and join.is_new and self.joins:
            self.new_member_added = True
        if not self.members:  # all former members have left, and the group's type with them
            self.membership = msgspec.structs.replace(
                self.membership, protocol_type=join.request.protocol_type
            )
        shown = self.members.get(member.member_id, member)
        self.members[member.member_id] = msgspec.structs.replace(member, assignment=shown.assignment)
        former = self.joins.get(member.member_id)
        self.joins[member.member_id] = join
        return former

    def remove(self, member_id: str) -> ParkedJoin | None:
        """Remove a member; return its waiting join, if any."""
        self.members.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        return self.joins.pop(member_id, None)

    def members_not_rejoined(self) -> list[str]:
        """Return the dynamic members that have not joined again. Static members may be late (KIP-345)."""
        return [
            each.member_id
            for each in self.members.values()
            if each.member_id not in self.joins and each.group_instance_id is None
        ]

    def elect(self) -> str:
        """Return the leader: the former leader if it has joined again, else the first member that has joined."""
        return self.leader if self.leader in self.joins else next(iter(self.joins), "")
