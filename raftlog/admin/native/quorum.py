"""The metadata quorum: its leader and term, voters and observers, the lag of each, and changes of the voters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec

from raftlog.admin.errors import ApiError, not_found
from raftlog.admin.native.moves import LARGEST_ID
from raftlog.admin.route import Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_DIRECTORY, decode_uuid, encode_uuid
from raftlog.metadata.causes import UNKNOWN
from raftlog.metadata.controller_api import AddVoter, RemoveVoter
from raftlog.metadata.features import KRAFT_VERSION, finalized_level
from raftlog.metadata.quorum_description import (
    DescribeQuorum,
    QuorumDescription,
    QuorumReplica,
    VotersChanged,
    VotersInChange,
)
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

ASK_S: Final = 2.0
"""Longest wait for the active controller; an election takes less than a second."""
SILENT_MS: Final = 2_000
"""A voter is silent if its leader has not heard of it for this long; they communicate several times a second."""
LAG_MOST: Final = 1_000
"""Entries that a voter may be behind its leader before it is said to lag."""
CHANGE_S: Final = 30.0
"""How long a new voter may take to catch up."""

DirectoryId = Annotated[str, msgspec.Meta(min_length=22, max_length=22)]


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


class ChangeUnderWay(msgspec.Struct):
    """A voter that is being added or removed."""

    node_id: int
    directory_id: str
    adds: bool
    waits_for: str


class VotersChange(msgspec.Struct):
    """A change of the voters that was committed or is about to be. `kind`: "dynamic", "added", "removed" or "moved".

    `at` is the leader's wall clock.
    """

    kind: str
    node_id: int | None
    directory_id: str | None
    by: str | None
    at_ms: int
    at: str
    message: str


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
    kraft_version: int = 0
    """1: the metadata holds the voters, so they can change. 0: `controller.quorum.voters` does."""
    change: ChangeUnderWay | None = None
    changes: list[VotersChange] = []
    """Why the voters are these: the last changes, newest first."""


class NewVoter(msgspec.Struct, forbid_unknown_fields=True):
    """The node and its controller listener. `directory_id`: by default as the quorum shows it.

    `replaces`: a voter to remove once the node is one, or before if it is that node with a new disk. A request that
    failed in between can be repeated.
    """

    node_id: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    directory_id: DirectoryId | None = None
    replaces: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)] | None = None


class WhichDirectory(msgspec.Struct, forbid_unknown_fields=True):
    """The voter's directory; by default as the quorum shows it."""

    directory_id: DirectoryId | None = None


async def get_quorum(call: Call) -> Quorum:
    return await quorum_of(call.node)


async def add_voter(call: Call) -> None:
    """Add a voter: the response comes once the node has caught up and the change is committed; 503 if that takes over
    27 s.
    """
    node_id, asked, replaced = call.body.node_id, call.body.directory_id, call.body.replaces
    call.audit.update(voter=node_id, directory_id=asked, host=call.body.host, port=call.body.port)
    change_ms, by = int(CHANGE_S * 1000), call.caller.asked_by
    voters: dict[int, UUID] = {}
    if replaced is not None:
        call.audit.update(replaces=replaced)
        voters = await _voters(call)
    if replaced == node_id or node_id not in voters:
        directory_id = await _directory_of(call, node_id, asked, votes=False)
        if voters.get(node_id) == directory_id:
            return  # this request comes again
        if replaced == node_id in voters:
            await _remove(call, node_id, voters[node_id])
        request = AddVoter(node_id, directory_id, call.body.host, call.body.port, change_ms, by=by)
        await call.node.submit(request, timeout=CHANGE_S)
    elif asked not in (None, present := encode_uuid(voters[node_id])):
        raise ApiError(409, f"node {node_id} is a voter with directory {present}: replace that first")
    if replaced is not None and replaced != node_id and replaced in voters:
        await _remove(call, replaced, voters[replaced])


async def remove_voter(call: Call) -> None:
    """Remove a voter. The node follows as an observer; its process may be stopped."""
    voter_id = call.path["voter_id"]
    call.audit.update(directory_id=call.query.directory_id)
    await _remove(call, voter_id, await _directory_of(call, voter_id, call.query.directory_id, votes=True))


async def _remove(call: Call, voter_id: int, directory_id: UUID) -> None:
    request = RemoveVoter(voter_id, directory_id, int(CHANGE_S * 1000), by=call.caller.asked_by)
    await call.node.submit(request, timeout=CHANGE_S)


async def _voters(call: Call) -> dict[int, UUID]:
    """Return the directories of the voters, from the leader."""
    reply = await call.node.submit(DescribeQuorum(), timeout=ASK_S)
    assert isinstance(reply, QuorumDescription)
    return {each.replica_id: each.directory_id for each in reply.voters}


async def _directory_of(call: Call, node_id: int, asked: str | None, *, votes: bool) -> UUID:
    """Return the directory of a node: as asked, or as the quorum shows it. Raise ApiError."""
    if asked is not None:
        try:
            return decode_uuid(asked)
        except ValueError:
            raise ApiError(400, f"{asked} is no directory id") from None
    reply = await call.node.submit(DescribeQuorum(), timeout=ASK_S)
    assert isinstance(reply, QuorumDescription)
    found = {each.replica_id: each.directory_id for each in (reply.voters if votes else reply.observers)}
    if found.get(node_id, NO_DIRECTORY) != NO_DIRECTORY:
        return found[node_id]
    if votes:
        raise not_found(f"voter {node_id}")
    if any(each.replica_id == node_id for each in reply.voters):
        raise ApiError(409, f"node {node_id} is a voter already")
    raise ApiError(
        409,
        f"node {node_id} is not linked to the quorum's leader: start it with process.roles that include controller, "
        "and this cluster's voters in controller.quorum.voters",
    )


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
        kraft_version=finalized_level(node.image(), KRAFT_VERSION),
        change=None if reply.change is None else _under_way(reply.change),
        changes=[_as_change(each) for each in reversed(reply.changes)],
    )


_CHANGES: Final = {
    "dynamic": "the metadata holds the voters since kraft.version was raised to 1",
    "added": "{by} added voter {voter} with directory {directory}",
    "removed": "{by} removed voter {voter} with directory {directory}",
    "moved": "voter {voter} with directory {directory} moved to another address",
}


def _as_change(each: VotersChanged) -> VotersChange:
    directory = None if each.directory_id == NO_DIRECTORY else encode_uuid(each.directory_id)
    sentence = _CHANGES.get(each.kind, each.kind)  # a later release may know others
    message = sentence.format(by=each.by or UNKNOWN, voter=each.voter_id, directory=directory)
    node_id = each.voter_id if each.voter_id >= 0 else None
    at = datetime.fromtimestamp(max(0, each.at_ms) / 1000, UTC).isoformat(timespec="milliseconds")
    return VotersChange(each.kind, node_id, directory, each.by or None, each.at_ms, at, message)


def _under_way(change: VotersInChange) -> ChangeUnderWay:
    return ChangeUnderWay(change.voter_id, encode_uuid(change.directory_id), change.adds, change.waits_for)


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
        kraft_version=finalized_level(node.image(), KRAFT_VERSION),
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/quorum",
        get_quorum,
        "The metadata quorum: term, leader, voters and their lag",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/quorum/voters",
        add_voter,
        "Make a node that follows the metadata a voter",
        body=NewVoter,
        status=204,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        "/v1/quorum/voters/{voter_id:int}",
        remove_voter,
        "Make a voter an observer",
        query=WhichDirectory,
        status=204,
        rights=ALTER_CLUSTER,
    ),
)
"""/v1/quorum has no 503 of its own: that no leader answers is a result."""
