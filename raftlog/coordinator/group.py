"""One group as a value: its members, its generation, its committed offsets, and how records change it.

Only `apply` makes new states. What is not in a record is not in the state, so a new coordinator knows all that the old
one answered for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.base.types import NO_EPOCH, NO_OFFSET

EMPTY: Final = "Empty"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""States as DescribeGroups names them. Dead is what a group is called that does not exist."""

NO_GENERATION: Final = -1
"""The generation of a commit from outside the group's membership."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """A committed position; `offset` is that of the next record to read. `metadata` is the consumer's own text.

    `expire_timestamp_ms`: when it may be forgotten, if the client said so (OffsetCommit before v5), else -1.
    """

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1


NOTHING_COMMITTED: Final = CommittedOffset()


class Member(msgspec.Struct, frozen=True):
    """One consumer. `subscription` is its metadata for the chosen protocol; it and `assignment` are opaque."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes = b""


class Membership(msgspec.Struct, frozen=True):
    """Who is in the group: one generation of it, its leader first while its assignments are awaited (`leader` None)."""

    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = -1
    members: Mapping[str, Member] = {}

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        return STABLE if self.leader is not None else COMPLETING_REBALANCE

    @property
    def elected(self) -> str:
        """The member that assigns: the leader, or who will be it."""
        return self.leader or next(iter(self.members), "")

    def member_of_instance(self, group_instance_id: str) -> Member | None:
        """Return the member with this static id (KIP-345)."""
        each: Member
        for each in self.members.values():
            if each.group_instance_id == group_instance_id:
                return each
        return None


class GroupChanged(msgspec.Struct, frozen=True):
    """A new generation, new assignments, or with None the end of the group."""

    group_id: str
    membership: Membership | None


class OffsetCommitted(msgspec.Struct, frozen=True):
    """A position of one partition; None removes it."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


GroupRecord = GroupChanged | OffsetCommitted


class Group(msgspec.Struct, frozen=True):
    """A group. `exists` is False for the value that stands for a group nobody wrote about.

    `preparing` is True only in what readers are shown while a rebalance gathers the members; it is in no record.
    """

    group_id: str
    membership: Membership = Membership()
    offsets: Mapping[tuple[str, int], CommittedOffset] = {}
    described: bool = False
    preparing: bool = False

    @property
    def exists(self) -> bool:
        return self.described or self.preparing or bool(self.offsets)

    @property
    def state(self) -> str:
        if self.preparing:
            return PREPARING_REBALANCE
        return self.membership.state if self.exists else DEAD


def apply(group: Group, records: tuple[GroupRecord, ...]) -> Group:
    """Return the group after the records."""
    membership, described = group.membership, group.described
    offsets: dict[tuple[str, int], CommittedOffset] | None = None
    for record in records:
        assert record.group_id == group.group_id
        if isinstance(record, GroupChanged):
            described = record.membership is not None
            membership = record.membership or Membership()
            continue
        if offsets is None:
            offsets = dict(group.offsets)
        if record.committed is None:
            offsets.pop((record.topic, record.partition), None)
        else:
            offsets[record.topic, record.partition] = record.committed
    return Group(group.group_id, membership, group.offsets if offsets is None else offsets, described)
