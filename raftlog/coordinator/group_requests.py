"""The requests to a group's coordinator, and its results. Values only; failures are KafkaErrors."""

from __future__ import annotations

import msgspec

from raftlog.base.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from raftlog.coordinator.consumer.topic_regex_resolver import Viewer
from raftlog.coordinator.group import CommittedOffset, Member


class MemberRef(msgspec.Struct, frozen=True):
    """A member by what it says of itself; `group_instance_id` makes it a static one (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None


class JoinGroup(msgspec.Struct, frozen=True):
    """`protocols`: (name, subscription), best first. `may_require_member_id`: JoinGroup v4 and later (KIP-394).

    `may_skip_assignment`: v9 and later, a returning static leader can be told that its assignment stands (KIP-814).
    `viewer`: the sender, as in ConsumerGroupHeartbeat; others of its group may have expressions.
    `reason`: why, in the client's words (KIP-800).
    """

    group_id: str
    member: MemberRef
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    may_require_member_id: bool = True
    may_skip_assignment: bool = False
    viewer: Viewer | None = None
    reason: str = ""


class JoinGroupResult(msgspec.Struct, frozen=True):
    """`members` is filled for the leader alone, which assigns unless it is to skip that."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


class MemberIdRequired(msgspec.Struct, frozen=True):
    """Come again with this id (error 79): so a client that never comes again leaves no member behind (KIP-394)."""

    member_id: str


class SyncGroup(msgspec.Struct, frozen=True):
    """`assignments` by member id, from the leader. Protocol type and name None: not said (before v5)."""

    group_id: str
    member: MemberRef
    generation: int
    assignments: dict[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


class SyncGroupResult(msgspec.Struct, frozen=True):
    protocol_type: str | None
    protocol: str | None
    assignment: bytes


class Heartbeat(msgspec.Struct, frozen=True):
    group_id: str
    member: MemberRef
    generation: int


class LeaveGroup(msgspec.Struct, frozen=True):
    """`reason`: why, in the client's words (KIP-800)."""

    group_id: str
    member: MemberRef
    reason: str = ""


class DeleteGroup(msgspec.Struct, frozen=True):
    group_id: str


class OffsetCommit(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    committed: CommittedOffset


class CommitOffsets(msgspec.Struct, frozen=True):
    """Answered with one error code per commit. Generation -1: from outside the membership (assign-only consumers).

    The generation is a member's epoch in consumer groups; before OffsetCommit v9 there was none (`may_name_epoch`).
    """

    group_id: str
    member: MemberRef
    generation: int
    commits: tuple[OffsetCommit, ...]
    may_name_epoch: bool = True


class TxnOffsetCommit(msgspec.Struct, frozen=True):
    """Answered with one error code per commit. The partition's place in the transaction is confirmed before."""

    group_id: str
    member: MemberRef
    generation: int
    commits: tuple[OffsetCommit, ...]
    producer_id: int
    producer_epoch: int


class WriteTxnMarker(msgspec.Struct, frozen=True):
    """How a transaction ends, as its coordinator has it written; answered with None at commit.

    `txn_first_offset`: where it must begin in the partition, or InvalidTxnState; -1: wherever it does. Else
    `last_sequence` and `last_timestamp` must be those of its producer's last batch, as well.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    txn_first_offset: int = NO_OFFSET
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP


class DeleteOffsets(msgspec.Struct, frozen=True):
    """Answered with one error code per partition."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]
