"""Decisions about offsets that are committed in a producer's transaction (KIP-98, KIP-447).

They are written at once, in the transaction, and count when its marker is committed. Until then requests for stable
offsets get UNSTABLE_OFFSET_COMMIT: a consumer that began before them would reprocess the transaction's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from raftlog.base.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
)
from raftlog.base.machine import Decision
from raftlog.coordinator.classic.rules import check_member
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership
from raftlog.coordinator.group import EMPTY, NO_GENERATION, Group, GroupRecord, TransactionalOffsetCommitted
from raftlog.coordinator.group_records import is_metadata_too_large
from raftlog.coordinator.group_requests import CommitOffsets, OffsetCommit, TxnOffsetCommit, WriteTxnMarker
from raftlog.coordinator.partition_map import PartitionKey
from raftlog.coordinator.record_fields import KeyValue


class TransactionalWriter(Protocol):
    """The part of a journal that transactions need; both methods raise KafkaError without an append."""

    def append_transactional(
        self, records: tuple[KeyValue, ...], producer_id: int, producer_epoch: int
    ) -> int:
        """Append in a producer's confirmed transaction; return the journal's end offset after it."""

    def append_end_marker(self, end: WriteTxnMarker) -> int:
        """Append the transaction's marker unless it exists; return the journal's end offset after it."""


class NoTransactions:
    """For a coordinator with a journal without transactions."""

    def append_transactional(
        self, records: tuple[KeyValue, ...], producer_id: int, producer_epoch: int
    ) -> int:
        raise CoordinatorNotAvailable("this coordinator does not support transactions")

    def append_end_marker(self, end: WriteTxnMarker) -> int:
        raise CoordinatorNotAvailable("this coordinator does not support transactions")


def decide_commit_in_transaction(
    group: Group, request: TxnOffsetCommit, *, shown: Group, metadata_max: int
) -> Decision:
    """Record offsets that wait for the transaction's end; the reply is one error code per commit.

    `shown` is the group with a running rebalance. Raise UnknownMemberId, IllegalGeneration, FencedInstanceId.
    """
    _check(shown, request)
    producer = (request.producer_id, request.producer_epoch)

    def record(commit: OffsetCommit) -> GroupRecord:
        tp = (commit.topic, commit.partition)
        return TransactionalOffsetCommitted(group.group_id, *tp, commit.committed, *producer)

    return record_commits(request.commits, record, metadata_max=metadata_max)


def record_commits(
    commits: Iterable[OffsetCommit], record: Callable[[OffsetCommit], GroupRecord], *, metadata_max: int
) -> Decision:
    """Record each offset whose text is not too large; the reply is one error code per commit."""
    records, codes = [], []
    for commit in commits:
        if is_metadata_too_large(commit.committed.metadata, metadata_max):
            codes.append(OffsetMetadataTooLarge.code)
        else:
            codes.append(NONE)
            records.append(record(commit))
    return Decision(tuple(records), tuple(codes))


def _check(group: Group, request: TxnOffsetCommit) -> None:
    """Refuse a zombie of an older generation (KIP-447); older producers send no member id.

    During a rebalance members of the generation may commit: the producer decides about the transaction.
    """
    member = request.member
    if group.share is not None:
        raise GroupIdNotFound(f"group {group.group_id} is a share group, which commits no offsets")
    if request.generation <= NO_GENERATION:
        anonymous = not member.member_id and member.group_instance_id is None
        if anonymous or group.state == EMPTY or not group.exists:
            return
    elif not group.exists:
        raise GroupIdNotFound if request.may_name_epoch else IllegalGeneration
    if group.consumer is not None:
        if member.member_id not in group.consumer.members:
            raise UnknownMemberId
        try:
            check_commit_epoch(group.consumer, request)
        except StaleMemberEpoch as error:
            if request.may_name_epoch:
                raise
            raise IllegalGeneration(error.message) from error
        return
    check_member(group.membership, member, request.generation)


def check_commit_epoch(membership: ConsumerMembership, request: CommitOffsets | TxnOffsetCommit) -> None:
    """Let a member commit in its epoch, or partitions that it has kept since an epoch in that (KIP-1251).

    The response with the new epoch may be in flight. Raise StaleMemberEpoch, or IllegalGeneration for members of the
    classic protocol, unless that is so for each partition: then all commits are refused.
    """
    member_id, epoch = request.member.member_id, request.generation
    current = membership.current_assignment_of(member_id)
    if epoch == current.epoch:
        return
    if epoch > current.epoch:
        raise stale_epoch(membership, member_id, f"is in epoch {current.epoch}, not {epoch}")
    for each in request.commits:
        since = current.assignment_epoch(each.committed.topic_id, each.partition)
        if since is None or epoch < since:
            had = "does not have it" if since is None else f"has it since epoch {since}"
            raise stale_epoch(
                membership, member_id, f"commits {each.topic}-{each.partition} in epoch {epoch}, and {had}"
            )


def stale_epoch(membership: ConsumerMembership, member_id: str, why: str) -> KafkaError:
    """Return the error for an epoch that a member may not use: members of the classic protocol know another error."""
    is_classic = membership.members[member_id].classic is not None
    return (IllegalGeneration if is_classic else StaleMemberEpoch)(f"member {member_id} {why}")


def is_unstable(group: Group, tp: PartitionKey) -> bool:
    """Return whether an open transaction may still move this offset (KIP-447)."""
    return any(tp in topic_partitions for topic_partitions in group.pending.values())
