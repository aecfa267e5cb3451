"""The requests to a group's coordinator, and their results. Values only; failures are KafkaErrors."""

from __future__ import annotations

import msgspec

from raftlog.base.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from raftlog.coordinator.consumer.topic_regex_resolver import Viewer
from raftlog.coordinator.group import CommittedOffset, Member


class MemberRef(msgspec.Struct, frozen=True):
    """A member's identity in a request; `group_instance_id` makes it static (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None


class JoinGroup(msgspec.Struct, frozen=True):
    """`protocols`: (name, subscription), best first. `may_require_member_id`: JoinGroup v4 and later (KIP-394).

    `may_skip_assignment`: since v9 a response can say to a returning static leader that its assignment stands
    (KIP-814). `viewer`: the sender, as in ConsumerGroupHeartbeat; other members of its group may have expressions.
    `reason`: the client's text (KIP-800).
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
    """`members` is filled only for the leader, which assigns unless it is to skip that."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


class MemberIdRequired(msgspec.Struct, frozen=True):
    """Join again with this id (error 79): so a client that does not return leaves no member behind (KIP-394)."""

    member_id: str


class SyncGroup(msgspec.Struct, frozen=True):
    """`assignments` by member id, from the leader. Protocol type and name None: absent (before v5)."""

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
    """`reason`: the client's text (KIP-800)."""

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
    """Commit offsets. Generation -1 means a consumer without membership, which assigns its partitions itself.

    The generation is a member's epoch in consumer groups; before OffsetCommit v9 there was none (`may_name_epoch`).
    """

    group_id: str
    member: MemberRef
    generation: int
    commits: tuple[OffsetCommit, ...]
    may_name_epoch: bool = True


class TxnOffsetCommit(msgspec.Struct, frozen=True):
    """Commit offsets within a transaction. Their partition was verified to be part of it.

    `may_name_epoch`: whether the sender knows the errors about epochs, since TxnOffsetCommit v6.
    """

    group_id: str
    member: MemberRef
    generation: int
    commits: tuple[OffsetCommit, ...]
    producer_id: int
    producer_epoch: int
    may_name_epoch: bool = False


class WriteTxnMarker(msgspec.Struct, frozen=True):
    """The end of a transaction, as its coordinator decided; answered with None at commit.

    `txn_first_offset`: if not -1, the offset at which it must begin in the partition, else InvalidTxnState. Then
    `last_sequence` and `last_timestamp` must also be those of its producer's last batch.
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
    """Delete the committed offsets of some partitions."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]
