"""The metadata quorum as its leader describes it: a request to the active controller, and its reply."""

from __future__ import annotations

from uuid import UUID

import msgspec

from raftlog.base.types import NO_DIRECTORY


class DescribeQuorum(msgspec.Struct, frozen=True, tag="describe_quorum"):
    pass


class QuorumReplica(msgspec.Struct, frozen=True):
    """Offsets are Raft log indexes; `*_ms` wall time, -1 unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    directory_id: UUID = NO_DIRECTORY


class VotersInChange(msgspec.Struct, frozen=True):
    """A voter that is being added or removed. `waits_for`: a sentence."""

    voter_id: int
    directory_id: UUID
    adds: bool
    waits_for: str


class VotersChanged(msgspec.Struct, frozen=True):
    """A change of the voters. `kind`: "dynamic", "added", "removed" or "moved". `by`: the principal, "" if unknown.

    `at_ms`: wall time of the leader.
    """

    kind: str
    voter_id: int
    directory_id: UUID
    by: str
    at_ms: int


class QuorumDescription(msgspec.Struct, frozen=True, tag="quorum_description"):
    """`addresses`: of the voters' controller listeners, by id; none from releases up to 0.3.0.

    `change`: the change of the voters that is under way. `changes`: the last, oldest first.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    addresses: dict[int, tuple[str, int]] = {}
    change: VotersInChange | None = None
    changes: tuple[VotersChanged, ...] = ()
