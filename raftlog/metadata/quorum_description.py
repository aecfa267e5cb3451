"""The metadata quorum as its leader describes it: a request to the active controller, and its reply."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from raftlog.base.env import Env
from raftlog.base.types import NO_DIRECTORY
from raftlog.metadata.broker_requests import BrokerHeartbeat


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


class ObserverPositions:
    """The positions of brokers without a vote, by their heartbeats.

    They follow any voter, so the leader knows no more of most of them.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._heard: dict[int, QuorumReplica] = {}

    def heard(self, heartbeat: BrokerHeartbeat, metadata_offset: int, commit_index: int) -> None:
        """Note a broker that has published all that is committed here; what lies behind has no index of its own."""
        now_ms = self._env.wall_clock_ms()
        broker_id = heartbeat.broker_id
        known = self._heard.get(broker_id, QuorumReplica(broker_id, -1))
        if heartbeat.metadata_offset >= metadata_offset:
            known = QuorumReplica(broker_id, commit_index, now_ms, now_ms)
        self._heard[broker_id] = msgspec.structs.replace(known, last_fetch_ms=now_ms)

    def among(self, broker_ids: Iterable[int], fed: Iterable[QuorumReplica]) -> tuple[QuorumReplica, ...]:
        """Return these brokers' positions: exact positions for brokers that the leader feeds itself."""
        positions = {each: self._heard.get(each, QuorumReplica(each, -1)) for each in broker_ids}
        positions |= {each.replica_id: each for each in fed}
        return tuple(positions[each] for each in sorted(positions))
