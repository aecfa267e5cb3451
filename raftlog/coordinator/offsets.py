"""Decisions about committed offsets: commit, delete, expire, and the end of a group with all it has.

A deletion includes pending offsets of transactions; a pending offset does not expire.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.base.errors import (
    NONE,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
)
from raftlog.base.machine import Decision
from raftlog.coordinator.classic.rules import check_member
from raftlog.coordinator.classic.states import ClassicGroupEvent, next_state
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership
from raftlog.coordinator.consumer_protocol import CONSUMER, subscribed_topics
from raftlog.coordinator.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    NO_GENERATION,
    STABLE,
    CommittedOffset,
    Group,
    GroupRecord,
    OffsetCommitted,
)
from raftlog.coordinator.group_requests import CommitOffsets, DeleteOffsets, OffsetCommit
from raftlog.coordinator.pending_deletion import (
    TOMBSTONE_BATCH_BYTES,
    group_tombstones,
    next_tombstone_batch,
)
from raftlog.coordinator.transactional_offsets import (
    check_commit_epoch,
    is_unstable,
    record_commits,
    stale_epoch,
)


def decide_commit(group: Group, request: CommitOffsets, *, shown: Group, metadata_max: int) -> Decision:
    """Record offsets; the reply is one error code per commit (OffsetMetadataTooLarge refuses only that commit).

    `shown` is the group with a running rebalance. Raise UnknownMemberId, IllegalGeneration, FencedInstanceId,
    RebalanceInProgress.
    """
    check_commit(shown, request)

    def record(commit: OffsetCommit) -> GroupRecord:
        return OffsetCommitted(group.group_id, commit.topic, commit.partition, commit.committed)

    return record_commits(request.commits, record, metadata_max=metadata_max)


def check_commit(group: Group, request: CommitOffsets) -> None:
    """Raise if this client may not commit. Members commit in their generation, other clients while the
    group is empty.
    """
    membership, member = group.membership, request.member
    if group.share is not None:
        raise GroupIdNotFound(f"group {group.group_id} is a share group, which commits no offsets")
    if group.consumer is not None:
        check_consumer_commit(group.consumer, request)
        return
    if request.generation <= NO_GENERATION and group.state in (EMPTY, DEAD):
        return
    if not group.exists:
        raise GroupIdNotFound if request.may_name_epoch else IllegalGeneration
    anonymous = (
        request.generation <= NO_GENERATION and not member.member_id and member.group_instance_id is None
    )
    if anonymous:
        raise UnknownMemberId
    check_member(membership, member, request.generation)
    if group.state == COMPLETING_REBALANCE:
        raise RebalanceInProgress


def check_consumer_commit(membership: ConsumerMembership, request: CommitOffsets) -> None:
    """Raise if this client may not commit to a consumer group. Members commit as `check_commit_epoch` says. Raises
    UnknownMemberId, StaleMemberEpoch (IllegalGeneration for members of the classic protocol), and UnsupportedVersion
    for requests that cannot name an epoch.
    """
    if request.generation <= NO_GENERATION and not membership.members:
        return
    subscriber = membership.members.get(request.member.member_id)
    if subscriber is None:
        raise UnknownMemberId
    if subscriber.classic is None and not request.may_name_epoch:
        raise UnsupportedVersion("members of the consumer protocol commit with OffsetCommit 9 or later")
    check_commit_epoch(membership, request)


def check_consumer_fetch(membership: ConsumerMembership, member_id: str | None, epoch: int) -> None:
    """Raise if this client may not read committed offsets. Members do in their own epoch; clients without a member id
    always may.

    Raise UnknownMemberId, StaleMemberEpoch, IllegalGeneration.
    """
    if not member_id and epoch < 0:
        return
    if member_id is None or member_id not in membership.members:
        raise UnknownMemberId
    check_member_epoch(membership, member_id, epoch)


def check_member_epoch(membership: ConsumerMembership, member_id: str, epoch: int) -> None:
    """Raise StaleMemberEpoch, or IllegalGeneration for members of the classic protocol."""
    known = membership.current_assignment_of(member_id).epoch
    if epoch != known:
        raise stale_epoch(membership, member_id, f"is in epoch {known}, not {epoch}")


def decide_delete_offsets(group: Group, request: DeleteOffsets, *, shown: Group) -> Decision:
    """Remove offsets (KIP-496); the reply is one error code per partition. Topics that a consumer group reads are
    refused.

    All topics are refused while its members' topics are unknown. Raise GroupIdNotFound; NonEmptyGroup for a group with
    members of another protocol type.
    """
    if not shown.exists:
        raise GroupIdNotFound(f"group {group.group_id} does not exist")
    if shown.membership.members and shown.membership.protocol_type != CONSUMER:
        raise NonEmptyGroup(f"group {group.group_id} has members with unknown subscriptions")
    is_known = group.membership.members or not shown.preparing
    topics = read_topics(group) if is_known else None
    codes = tuple(
        GroupSubscribedToTopic.code if topics is None or topic in topics else NONE
        for topic, _ in request.partitions
    )
    gone = [tp for tp, code in zip(request.partitions, codes, strict=True) if code == NONE and group.has(tp)]
    return Decision(_forgotten(group, dict.fromkeys(gone)), codes)


def decide_delete(group: Group, *, shown: Group) -> Decision:
    """End a group without members, with its offsets. Raise GroupIdNotFound, NonEmptyGroup."""
    if not shown.exists:
        raise GroupIdNotFound(f"group {group.group_id} does not exist")
    if not may_delete(shown):
        raise NonEmptyGroup(f"group {group.group_id} has members")
    assert group.share is None or not group.share.has_states, "their deletion comes first"
    return Decision(_ended(group))


def may_delete(shown: Group) -> bool:
    """Return whether a group has no members, including joining members of a rebalance."""
    return shown.state in (EMPTY, DEAD)


def decide_expire_offsets(
    group: Group,
    *,
    shown: Group,
    now_ms: int,
    retention_ms: int,
    topics: Iterable[str] | None = None,
    most_bytes: int = TOMBSTONE_BATCH_BYTES,
) -> Decision:
    """Expire offsets (KIP-211), and an empty group with its last offset; one batch per call.

    `topics`: the only topics to check, None: all. `most_bytes`: for the keys of the batch.

    In a group without members the retention time starts when the last member left. It starts with the last commit in a
    group that never had members (assign-only consumers), and for topics that a consumer group no longer reads.
    """
    if shown.preparing or group.share is not None:
        return Decision()
    kept = _kept_topics(group)
    if kept is None:
        return Decision()
    expired = (
        (topic, partition)
        for topic in (group.offsets.topics() if topics is None else topics)
        if topic not in kept
        for partition, committed in group.offsets.of_topic(topic).items()
        if _is_expired(group, committed, now_ms=now_ms, retention_ms=retention_ms)
        and not is_unstable(group, (topic, partition))
    )
    batch = next_tombstone_batch(group.group_id, expired, most_bytes=most_bytes).topic_partitions
    if group.state == EMPTY and group.exists and len(batch) == len(group.offsets) and not group.pending:
        return Decision(_ended(group))
    return Decision(_forgotten(group, batch))


def _kept_topics(group: Group) -> frozenset[str] | None:
    """The topics with unexpiring offsets because members read them; None: no offset expires now."""
    if group.consumer is None and group.membership.members and group.state != STABLE:
        return None
    return read_topics(group)


def _is_expired(group: Group, committed: CommittedOffset, *, now_ms: int, retention_ms: int) -> bool:
    membership = group.membership
    since_ms = committed.commit_timestamp_ms
    if not membership.members and membership.protocol_type is not None and membership.since_ms >= 0:
        since_ms = membership.since_ms
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def read_topics(group: Group) -> frozenset[str] | None:
    """Return the topics of the members: empty without members, None if unknown."""
    if group.consumer is not None:
        return group.consumer.subscribed_topics()
    membership = group.membership
    if not membership.members:
        return frozenset()
    if membership.protocol_type != CONSUMER:
        return None
    found = [subscribed_topics(each.subscription) for each in membership.members.values()]
    known = [each for each in found if each is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def _forgotten(group: Group, topic_partitions: Iterable[tuple[str, int]]) -> tuple[GroupRecord, ...]:
    return tuple(
        OffsetCommitted(group.group_id, topic, partition, None) for topic, partition in topic_partitions
    )


def _ended(group: Group) -> tuple[GroupRecord, ...]:
    """Return tombstones for all of a group's keys in the journal."""
    next_state(group.state, ClassicGroupEvent.DELETED)
    return (*_forgotten(group, group.partitions()), *group_tombstones(group))
