"""Decisions about committed offsets."""

from __future__ import annotations

from raftlog.base.errors import (
    NONE,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.base.machine import Decision
from raftlog.coordinator.group import COMPLETING_REBALANCE, NO_GENERATION, Group, OffsetCommitted
from raftlog.coordinator.membership import check_member
from raftlog.coordinator.requests import CommitOffsets


def decide_commit(group: Group, request: CommitOffsets, *, metadata_max_bytes: int) -> Decision:
    """Record offsets; the reply is one error code per commit (OffsetMetadataTooLarge refuses just that one).

    Raises UnknownMemberId, IllegalGeneration, FencedInstanceId, RebalanceInProgress.
    """
    check_commit(group, request)
    records = []
    codes = []
    for commit in request.commits:
        if len(commit.committed.metadata.encode()) > metadata_max_bytes:
            codes.append(OffsetMetadataTooLarge.code)
            continue
        codes.append(NONE)
        records.append(OffsetCommitted(group.group_id, commit.topic, commit.partition, commit.committed))
    return Decision(tuple(records), tuple(codes))


def check_commit(group: Group, request: CommitOffsets) -> None:
    """Members commit in their generation; without a generation one may commit while the group has no members."""
    membership, member = group.membership, request.member
    if request.generation <= NO_GENERATION and not membership.members:
        return
    if not group.exists:
        raise IllegalGeneration
    anonymous = (
        request.generation <= NO_GENERATION and not member.member_id and member.group_instance_id is None
    )
    if anonymous:
        raise UnknownMemberId
    check_member(membership, member, request.generation)
    if membership.state == COMPLETING_REBALANCE:
        raise RebalanceInProgress


def decide_forget_topics(group: Group, topics: frozenset[str]) -> Decision:
    """Remove the offsets of topics that were deleted."""
    return Decision(
        tuple(
            OffsetCommitted(group.group_id, topic, partition, None)
            for topic, partition in group.offsets
            if topic in topics
        )
    )
