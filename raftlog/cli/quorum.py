"""`raftlog quorum …`: the metadata quorum, as in kafka-metadata-quorum."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer

from raftlog.base.config.network import parse_address
from raftlog.base.types import METADATA_TOPIC, NO_DIRECTORY, decode_uuid, encode_uuid
from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.feature_levels import upgrade_metadata
from raftlog.cli.http_api import SEE_HEALTH, HttpApi
from raftlog.cli.http_command import api_of, http_verb
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target
from raftlog.metadata.features import KRAFT_VERSION
from raftlog.protocol.apis import ApiKey

quorum = noun("Show the metadata quorum, and add, remove and replace voters.")

CHANGE_MS = 30_000
"""How long a new voter may take to catch up."""

HTTP_S = 2.0
"""How long `status` waits for the HTTP API, in seconds."""

LAST_CHANGES = 3
"""So many changes of the voters does `status` show; `why` shows all that are known."""

Id = Annotated[int, typer.Argument(metavar="ID")]
Place = tuple[str, int]
Controller = Annotated[
    str, typer.Option("--controller", metavar="HOST:PORT", help="the node's controller listener")
]
DirectoryId = Annotated[
    str | None, typer.Option("--directory-id", metavar="ID", help="default: as the quorum shows it")
]


@dataclass(frozen=True, slots=True)
class Replica:
    """A node that has the metadata: a voter or an observer. Times are against the leader's clock, None: not known."""

    node: int
    votes: bool
    end_offset: int
    fetched_ms_ago: int | None
    caught_up_ms_ago: int | None
    directory_id: str | None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum as its leader describes it; `leader` -1: there is none."""

    leader: int
    epoch: int
    high_watermark: int
    replicas: tuple[Replica, ...]

    def lag(self, replica: Replica) -> int | None:
        """Return how many entries it is behind the leader, None if that is not known."""
        if replica.end_offset < 0:
            return None
        ends = [each.end_offset for each in self.replicas if each.node == self.leader]
        return max(0, (ends[0] if ends else self.high_watermark) - replica.end_offset)


def quorum_of(target: Target) -> Quorum:
    """Ask a cluster for its quorum. Raises Failure."""
    (topic,) = target.ask(ApiKey.DESCRIBE_QUORUM, _build, needs="DESCRIBE").topics
    (found,) = topic.partitions
    voters, observers = found.current_voters, found.observers
    now = max(
        (each.last_fetch_timestamp for each in (*voters, *observers) if each.replica_id == found.leader_id),
        default=-1,
    )

    def ago(timestamp: int) -> int | None:
        return max(0, now - timestamp) if timestamp >= 0 and now >= 0 else None

    replicas = tuple(
        Replica(
            each.replica_id,
            votes,
            each.log_end_offset,
            ago(each.last_fetch_timestamp),
            ago(each.last_caught_up_timestamp),
            _directory_id(getattr(each, "replica_directory_id", None)),
        )
        for votes, group in ((True, voters), (False, observers))
        for each in group
    )
    return Quorum(found.leader_id, found.leader_epoch, found.high_watermark, replicas)


def _build(make: Any) -> Any:
    partition = make.PartitionData(partition_index=0)
    return make.DescribeQuorumRequest(
        topics=(make.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )


def _directory_id(found: object) -> str | None:
    directory_id = NO_DIRECTORY if found is None else UUID(str(found))
    return None if directory_id == NO_DIRECTORY else encode_uuid(directory_id)


@verb(quorum, "status", prints_rows=True)
def status(target: Target, *, form: Form) -> None:
    """Show the quorum's leader, its epoch, the lag of the slowest voter, in entries and time; "-": not known.

    The last changes of the voters come from the HTTP API, if it can be reached.
    """
    found = quorum_of(target)
    voters = [each for each in found.replicas if each.votes]
    under_way, changes = _changes(target)
    print_object(
        {
            "leader": found.leader,
            "epoch": found.epoch,
            "high_watermark": found.high_watermark,
            "max_voter_lag": _largest(found.lag(each) for each in voters),
            "max_voter_lag_ms": _largest(each.caught_up_ms_ago for each in voters),
            "voters": [each.node for each in voters],
            "observers": [each.node for each in found.replicas if not each.votes],
            "change_under_way": under_way,
            "last_changes": changes,
        },
        form,
    )


def _changes(target: Target) -> tuple[str | None, list[str] | None]:
    """Return the change of the voters under way, if any, and the last, newest first; None without an HTTP API.

    Kafka's DescribeQuorum has neither, nor has the API of a release up to 0.3.0.
    """
    try:
        found = api_of(target, HTTP_S).ask("GET", "/v1/quorum")
    except Failure:
        return None, None
    if "changes" not in found:
        return None, None
    change = found["change"]
    under_way = None
    if change is not None:
        under_way = f"{'add' if change['adds'] else 'remove'} {change['node_id']}: {change['waits_for']}"
    return under_way, [f"{each['at']} {each['message']}" for each in found["changes"][:LAST_CHANGES]]


def _largest(lags: Iterable[int | None]) -> int | None:
    """Return the largest lag, None if one is not known: it may be the largest."""
    found = list(lags)
    known = [each for each in found if each is not None]
    return max(known, default=0) if len(known) == len(found) else None


@verb(quorum, "replication", prints_rows=True)
def replication(target: Target, *, form: Form) -> None:
    """Show how far each voter and observer has the metadata."""
    found = quorum_of(target)
    rows = [
        {
            "node": each.node,
            "status": "leader" if each.node == found.leader else "voter" if each.votes else "observer",
            "end_offset": each.end_offset,
            "lag": found.lag(each),
            "fetched_ms_ago": each.fetched_ms_ago,
            "caught_up_ms_ago": each.caught_up_ms_ago,
            "directory_id": each.directory_id,
        }
        for each in found.replicas
    ]
    print_rows(rows, form)


@http_verb(quorum, "why", prints_rows=True)
def why(api: HttpApi, *, form: Form) -> None:
    """Show who changed the voters, and when: the last 20 changes, newest first."""
    found = api.ask("GET", "/v1/quorum")
    changes = found["changes"]
    if not (changes or found["told_by_leader"]):
        raise Failure(
            f"no leader of the quorum answers, and it alone knows the changes; {SEE_HEALTH}",
            exits.UNREACHABLE,
        )
    if not changes:
        print("no change of the voters is known", file=sys.stderr)
    columns = ("at", "node", "change", "by", "directory_id")
    rows = [
        {
            "at": each["at"],
            "node": each["node_id"],
            "change": each["kind"],
            "by": each["by"],
            "directory_id": each["directory_id"],
        }
        for each in changes
    ]
    print_rows(rows, form, columns if rows else None)


@verb(quorum, "dynamic")
def make_dynamic(target: Target) -> None:
    """Have the metadata hold the voters, so that they can change: kraft.version 1, which never goes back."""
    upgrade_metadata(target, 1, dry_run=False, feature=KRAFT_VERSION)
    print("the voters can change: the metadata holds them, and controller.quorum.voters no longer counts")


@verb(quorum, "add")
def add(target: Target, number: Id, *, controller: Controller, directory_id: DirectoryId = None) -> None:
    """Make an observer with a metadata log a voter, once it has caught up."""
    place = _parse_place(controller)
    _add(target, number, place, _directory_of(target, number, directory_id, votes=False))


@verb(quorum, "remove")
def remove(target: Target, number: Id, *, directory_id: DirectoryId = None) -> None:
    """Make a voter an observer. Afterwards its process may be stopped."""
    _remove(target, number, _directory_of(target, number, directory_id, votes=True))


@verb(quorum, "replace")
def replace(
    target: Target,
    old: Annotated[str, typer.Argument(metavar="OLD[:DIRECTORY_ID]", help="the voter to remove")],
    new: Annotated[
        int, typer.Argument(metavar="NEW", help="the node to add; OLD itself if it has a new disk")
    ],
    *,
    controller: Controller,
    directory_id: DirectoryId = None,
) -> None:
    """Add a voter, and remove another once the new one has caught up. To go on after a failure, repeat it.

    A node with a new disk is removed first, with its former directory: the quorum has one voter of each id.
    """
    place = _parse_place(controller)
    number, _, former = old.partition(":")
    if not number.isdecimal():
        raise Failure(f"{old}: neither a node's id nor ID:DIRECTORY_ID", exits.USAGE)
    old_id = int(number)
    voters = {each.node: each.directory_id for each in quorum_of(target).replicas if each.votes}
    former = former or voters.get(old_id) or ""
    steps: list[Callable[[], None]] = []
    if new == old_id or new not in voters:
        directory = _directory_of(target, new, directory_id, votes=False)
        if voters.get(new) == encode_uuid(directory):
            former = ""  # this command comes again: the node has its new disk in the set
        else:
            steps.append(partial(_add, target, new, place, directory))
    elif directory_id not in (None, voters[new]):
        raise Failure(f"node {new} is a voter with directory {voters[new]}: replace that first")
    if former and voters.get(old_id) == former:
        removal = partial(_remove, target, old_id, _parse_directory(former))
        steps.insert(0 if new == old_id else len(steps), removal)
    if not steps:
        rest = "" if new == old_id else f", and node {old_id} is none"
        print(f"node {new} is a voter already{rest}")
    for position, step in enumerate(steps):
        try:
            step()
        except Failure as failure:
            state = "one of two steps is done" if position else "the voters are as before"
            advice = f"{state}: once the reason is mended, repeat the command"
            raise Failure(str(failure), failure.code, details=(*failure.details, advice)) from None


def _add(target: Target, number: int, place: Place, directory: UUID) -> None:
    host, port = place

    def build(make: Any) -> Any:
        listener = make.Listener(name=_listener_name(target), host=host, port=port)
        return make.AddRaftVoterRequest(
            cluster_id=None,
            timeout=CHANGE_MS,
            voter_id=number,
            voter_directory_id=directory,
            listeners=(listener,),
        )

    target.ask(ApiKey.ADD_RAFT_VOTER, build, about=f"voter {number}: ", needs="ALTER")
    print(f"node {number} is a voter, with directory {encode_uuid(directory)}")


def _remove(target: Target, number: int, directory: UUID) -> None:
    target.ask(
        ApiKey.REMOVE_RAFT_VOTER,
        lambda make: make.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=number, voter_directory_id=directory
        ),
        about=f"voter {number}: ",
        needs="ALTER",
    )
    print(f"node {number} is no voter any more")


def _parse_place(text: str) -> Place:
    """Return the host and port of --controller. Raise Failure."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise Failure(f"--controller: {error}") from None


def _parse_directory(text: str) -> UUID:
    """Return a directory id. Raise Failure."""
    try:
        return decode_uuid(text)
    except ValueError:
        raise Failure(f"{text}: not a directory id of 22 characters") from None


def _directory_of(target: Target, number: int, asked: str | None, *, votes: bool) -> UUID:
    """Return the directory of a node: as asked, or as the quorum shows it. Raise Failure."""
    if asked is not None:
        return _parse_directory(asked)
    found = [each for each in quorum_of(target).replicas if each.node == number]
    for each in found:
        if each.votes == votes and each.directory_id is not None:
            return decode_uuid(each.directory_id)
    if found and found[0].votes != votes:
        reason = "is no voter" if votes else "is a voter already"
        raise Failure(f"voter {number}: node {number} {reason}")
    raise Failure(
        f"node {number} is not linked to the quorum's leader: start it with process.roles that include controller, and "
        "this cluster's voters in controller.quorum.voters"
    )


def _listener_name(target: Target) -> str:
    """Return the name of the voters' controller listener."""
    nodes = target.ask(ApiKey.DESCRIBE_QUORUM, _build, needs="DESCRIBE").nodes
    return str(next((each.listeners[0].name for each in nodes if each.listeners), "CONTROLLER"))
