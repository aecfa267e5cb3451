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


class QuorumDescription(msgspec.Struct, frozen=True, tag="quorum_description"):
    """`addresses`: of the voters' controller listeners, by id; none from releases up to 0.3.0."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    addresses: dict[int, tuple[str, int]] = {}
