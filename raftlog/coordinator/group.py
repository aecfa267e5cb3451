"""One group as a value: its members, its generation, its committed offsets, and how records change it.

Only `apply` makes new states. The state holds only what records hold, so a new coordinator knows all that the old
answered for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

import msgspec

from raftlog.base.types import NO_EPOCH, NO_OFFSET
from raftlog.coordinator.committed_offsets import GroupOffsets, PendingOffset
from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    ConsumerRecord,
    apply_consumer,
)
from raftlog.coordinator.partition_map import PartitionKey, PartitionMap

if TYPE_CHECKING:
    from raftlog.coordinator.share.share_membership import ShareMembership, ShareRecord

EMPTY: Final = "Empty"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""States as DescribeGroups names them; consumer groups have more (`consumer.consumer_membership`).

A missing group is Dead.
"""

NO_GENERATION: Final = -1
"""The generation of a commit from outside the group's membership."""


NO_LEADER: Final = ""
"""The leader of a generation that was a consumer group's epoch: its last members' partitions are unassigned, so it has
to rebalance (KIP-848).
"""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """A committed position; `offset` is the next record to read. `metadata` is the consumer's own text.

    `expire_timestamp_ms`: the client's expiry (OffsetCommit before v5), else -1. `topic_id`: of the topic with that
    name at the time; None if the record has no id.
    """

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: UUID | None = None


NOTHING_COMMITTED: Final = CommittedOffset()


DeletedTopics = Mapping[str, Collection[UUID | None]]
"""Deleted topics by name: their ids, and None if an offset without an id belongs to one of them."""


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
    """The members of one generation, its leader first while its assignments are awaited (`leader` None)."""

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
        """The member that assigns: the leader, or the future leader."""
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


class TransactionalOffsetCommitted(msgspec.Struct, frozen=True):
    """A position that counts once the producer's transaction commits."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset
    producer_id: int
    producer_epoch: int


class TransactionEnded(msgspec.Struct, frozen=True):
    """The end of a transaction, for one group."""

    group_id: str
    producer_id: int
    commit: bool


ReadRecord: TypeAlias = "GroupChanged | OffsetCommitted | ConsumerRecord | ShareRecord"
"""A record's key and value; its batch shows whether an offset is pending."""

GroupRecord: TypeAlias = "ReadRecord | TransactionalOffsetCommitted | TransactionEnded"


class Group(msgspec.Struct, frozen=True):
    """A group. `exists` is False for a group without records.

    `consumer` is set for groups of the consumer protocol (KIP-848) and `share` for share groups (KIP-932), with an
    empty `membership`. `preparing` is True only in readers' views during a rebalance, never in records.
    """

    group_id: str
    membership: Membership = Membership()
    offsets: PartitionMap[CommittedOffset] = msgspec.field(default_factory=PartitionMap)
    has_metadata: bool = False
    preparing: bool = False
    pending: Mapping[int, PartitionMap[PendingOffset[CommittedOffset]]] = {}
    """Keyed by producer id: the offsets of its open transaction, at least one."""
    next_pending_number: int = 0
    """The number for the next pending offset."""
    consumer: ConsumerMembership | None = None
    share: ShareMembership | None = None

    @property
    def exists(self) -> bool:
        is_modern = self.consumer is not None or self.share is not None
        has_members = self.has_metadata or self.preparing or is_modern
        return has_members or bool(self.offsets) or bool(self.pending)

    @property
    def modern(self) -> ConsumerMembership | None:
        """The members and assignments of a consumer group or a share group: of Kafka's ModernGroup."""
        return self.consumer if self.share is None else self.share.consumer

    @property
    def state(self) -> str:
        if self.consumer is not None:
            return self.consumer.state
        if self.share is not None:
            return self.share.state
        if self.preparing:
            return PREPARING_REBALANCE
        return self.membership.state if self.exists else DEAD

    def partitions(self) -> Iterator[PartitionKey]:
        """Yield every partition with an offset, pending offsets included."""
        yield from self.offsets
        seen: set[PartitionKey] = set()
        for pending_of_producer in self.pending.values():
            for tp in pending_of_producer:
                if tp not in self.offsets and tp not in seen:
                    seen.add(tp)
                    yield tp

    def partitions_of(self, topics: DeletedTopics) -> Iterator[PartitionKey]:
        """Yield the partitions of these very topics that have an offset, pending offsets included."""
        for topic, ids in topics.items():
            seen: set[int] = set()
            for partition, committed in self._of_topic(topic):
                if partition not in seen and committed.topic_id in ids:
                    seen.add(partition)
                    yield topic, partition

    def _of_topic(self, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        yield from self.offsets.of_topic(topic).items()
        for pending_of_producer in self.pending.values():
            for partition, pending in pending_of_producer.of_topic(topic).items():
                yield partition, pending.committed

    def has(self, tp: PartitionKey) -> bool:
        """Return whether a partition has an offset, pending offsets included."""
        return tp in self.offsets or any(
            tp in pending_of_producer for pending_of_producer in self.pending.values()
        )

    @property
    def offset_count(self) -> int:
        """Return the number of offsets, pending offsets included."""
        return len(self.offsets) + sum(map(len, self.pending.values()))


def apply(group: Group, records: tuple[GroupRecord, ...]) -> Group:
    """Return the group after the records."""
    membership, described = group.membership, group.has_metadata
    positions: GroupOffsets[CommittedOffset] | None = None
    consumer: list[ConsumerRecord] = []
    share: list[ShareRecord] = []
    for record in records:
        assert record.group_id == group.group_id
        if isinstance(record, GroupChanged):
            described = record.membership is not None
            membership = record.membership or Membership()
        elif isinstance(record, OffsetCommitted | TransactionalOffsetCommitted | TransactionEnded):
            if positions is None:
                positions = GroupOffsets(group.offsets, group.pending, group.next_pending_number)
            _move(positions, record)
        elif isinstance(record, ConsumerRecord):
            consumer.append(record)
        else:
            share.append(record)
    found = positions or group
    return Group(
        group.group_id,
        membership,
        found.offsets,
        described,
        pending=found.pending,
        next_pending_number=found.next_pending_number,
        consumer=apply_consumer(group.consumer, consumer) if consumer else group.consumer,
        share=_apply_share(group.share, share) if share else group.share,
    )


def _apply_share(membership: ShareMembership | None, records: list[ShareRecord]) -> ShareMembership | None:
    from raftlog.coordinator.share.share_membership import apply_share  # few clusters have share groups

    return apply_share(membership, records)


def _move(
    positions: GroupOffsets[CommittedOffset],
    record: OffsetCommitted | TransactionalOffsetCommitted | TransactionEnded,
) -> None:
    if isinstance(record, OffsetCommitted):
        positions.put((record.topic, record.partition), record.committed)
    elif isinstance(record, TransactionalOffsetCommitted):
        positions.put_pending(record.producer_id, (record.topic, record.partition), record.committed)
    else:
        positions.end_transaction(record.producer_id, commit=record.commit)
