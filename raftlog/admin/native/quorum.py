"""The metadata quorum: its leader and term, voters and observers, and the lag of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from raftlog.admin.route import Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription, QuorumReplica
from raftlog.security.acls import DESCRIBE_CLUSTER

ASK_S: Final = 2.0
"""Longest wait for the active controller; an election takes less than a second."""
SILENT_MS: Final = 2_000
"""A voter is silent if its leader has not heard of it for this long; they communicate several times a second."""
LAG_MOST: Final = 1_000
"""Entries that a voter may be behind its leader before it is said to lag."""


class QuorumMember(msgspec.Struct):
    """One replica of the metadata log. Unknown values are null.

    `state`: "leads", "follows", "lags", "silent" or "unknown". `lag`: entries behind the leader.
    """

    node_id: int
    state: str
    end_index: int | None
    lag: int | None
    last_heard_ms_ago: int | None
    last_caught_up_ms_ago: int | None
    host: str | None = None
    port: int | None = None
    directory_id: str | None = None
    """The directory recorded in the metadata. A replaced disk, or an older copy, has another id."""


class Quorum(msgspec.Struct):
    """The quorum from its leader; `told_by_leader` false: as this node knows it, since no leader answers."""

    told_by_leader: bool
    leader_id: int | None
    term: int
    commit_index: int
    needed: int
    """Voters that make a majority."""
    voters: list[QuorumMember]
    observers: list[QuorumMember]
    """They follow without a vote."""


async def get_quorum(call: Call) -> Quorum:
    return await quorum_of(call.node)


async def quorum_of(node: NodeView) -> Quorum:
    """Return the quorum, from its leader if that answers within ASK_S."""
    try:
        reply = await node.submit(DescribeQuorum(), timeout=ASK_S)
    except KafkaError:
        return _as_known_here(node)
    assert isinstance(reply, QuorumDescription)
    dated = {each.replica_id: each.last_fetch_ms for each in reply.voters}
    now_ms = dated.get(reply.leader_id, -1)  # by the leader's own clock: this node's may be another
    if now_ms < 0:
        now_ms = int(node.wall_clock_ms())
    return Quorum(
        told_by_leader=True,
        leader_id=reply.leader_id if reply.leader_id >= 0 else None,
        term=reply.leader_epoch,
        commit_index=reply.high_watermark,
        needed=len(reply.voters) // 2 + 1,
        voters=_members(node, reply, reply.voters, now_ms),
        observers=_members(node, reply, reply.observers, now_ms),
    )


def _members(
    node: NodeView, quorum: QuorumDescription, replicas: Iterable[QuorumReplica], now_ms: int
) -> list[QuorumMember]:
    end = max((each.log_end_offset for each in quorum.voters), default=-1)
    return [_member(node, quorum, each, end=end, now_ms=now_ms) for each in replicas]


def _member(
    node: NodeView, quorum: QuorumDescription, each: QuorumReplica, *, end: int, now_ms: int
) -> QuorumMember:
    heard = max(0, now_ms - each.last_fetch_ms) if each.last_fetch_ms >= 0 else None
    caught_up = max(0, now_ms - each.last_caught_up_ms) if each.last_caught_up_ms >= 0 else None
    lag = max(0, end - each.log_end_offset) if each.log_end_offset >= 0 else None
    if each.replica_id == quorum.leader_id:
        state = "leads"
    elif heard is None or heard > SILENT_MS:
        state = "silent"
    else:
        state = "lags" if lag is None or lag > LAG_MOST else "follows"
    host, port = (quorum.addresses or node.config.voters).get(each.replica_id, (None, None))
    end_index = each.log_end_offset if each.log_end_offset >= 0 else None
    directory_id = None if each.directory_id == NO_DIRECTORY else encode_uuid(each.directory_id)
    return QuorumMember(each.replica_id, state, end_index, lag, heard, caught_up, host, port, directory_id)


def _as_known_here(node: NodeView) -> Quorum:
    raft = None if node.facts is None else node.facts.raft()
    voters = node.voters() or node.config.voters
    members = [
        QuorumMember(each, "unknown", None, None, None, None, host, port)
        for each, (host, port) in sorted(voters.items())
    ]
    leader_id = None if raft is None or raft.leader_id < 0 else raft.leader_id
    return Quorum(
        told_by_leader=False,
        leader_id=leader_id,
        term=0 if raft is None else raft.term,
        commit_index=0 if raft is None else raft.commit_index,
        needed=len(voters) // 2 + 1,
        voters=members,
        observers=[],
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/quorum",
        get_quorum,
        "The metadata quorum: term, leader, voters and their lag",
        rights=DESCRIBE_CLUSTER,
    ),
)
"""No 503 of its own: that no leader answers is a result."""
