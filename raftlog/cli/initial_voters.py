"""The options of `raftlog format` that say who votes at first, as kafka-storage format has them (KIP-853).

The voters' addresses stay in controller.quorum.voters, where the first start reads them, so the options must agree with
it. With --standalone and --initial-controllers the cluster begins with kraft.version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.config.network import format_voters, parse_voters
from raftlog.base.types import decode_uuid
from raftlog.cli import exits
from raftlog.cli.exits import Failure

RESERVED_IDS: Final = 100
"""The first directory ids have meanings of their own in Kafka."""


class FirstVoters(NamedTuple):
    """The first voters that the options describe. `directory_id`: of this node's metadata folder, None: a random id.

    `dynamic`: the metadata holds the voters from the beginning.
    """

    directory_id: UUID | None = None
    dynamic: bool = False


def read_first_voters(
    node: NodeConfig, *, standalone: bool, initial_controllers: str | None, no_initial_controllers: bool
) -> FirstVoters:
    """Return what the options ask for. Raise Failure if they contradict each other or the node's config."""
    given = [standalone, initial_controllers is not None, no_initial_controllers]
    if sum(given) > 1:
        raise Failure(
            "only one of --standalone, --initial-controllers and --no-initial-controllers can be given",
            exits.USAGE,
        )
    if not any(given):
        return FirstVoters()
    if "controller" not in node.roles:
        raise Failure("this node's process.roles has no controller, so it cannot vote", exits.USAGE)
    if initial_controllers is not None:
        return FirstVoters(_own_directory(node, initial_controllers), dynamic=True)
    if standalone:
        if set(node.voters) != {node.node_id}:
            raise _disagrees(node, f"--standalone is for node {node.node_id} as the only voter")
        return FirstVoters(dynamic=True)
    if node.node_id in node.voters:
        raise _disagrees(
            node,
            f"--no-initial-controllers is for a node that is added later: name the present voters there, and not node "
            f"{node.node_id}",
        )
    return FirstVoters()


def _own_directory(node: NodeConfig, text: str) -> UUID | None:
    """Return this node's directory id in the list of voters, None if the list lacks the node. Raise Failure."""
    addresses, directories = _parse(text)
    if addresses != dict(node.voters):
        raise _disagrees(node, f"--initial-controllers has {format_voters(addresses)}: both must be the same")
    return directories.get(node.node_id)


def _parse(text: str) -> tuple[Mapping[int, tuple[str, int]], Mapping[int, UUID]]:
    """Read id@host:port:directory,... as addresses and directories. Raise Failure."""
    items = [each.strip().rpartition(":") for each in text.split(",") if each.strip()]
    try:
        addresses = dict(parse_voters(",".join(each[0] for each in items)))
        ids = [int(each[0].partition("@")[0]) for each in items]
        directories = {number: _directory(each[2]) for number, each in zip(ids, items, strict=True)}
    except ValueError as error:
        raise Failure(
            f"--initial-controllers: {error}; it is ID@HOST:PORT:DIRECTORY_ID,...", exits.USAGE
        ) from None
    if not addresses:
        raise Failure("--initial-controllers names no voter", exits.USAGE)
    if len(set(directories.values())) < len(directories):
        raise Failure("--initial-controllers: two voters have the same directory id", exits.USAGE)
    return addresses, directories


def _directory(text: str) -> UUID:
    """Return a directory id. Raise ValueError."""
    try:
        found = decode_uuid(text)
    except ValueError:
        raise ValueError(f"{text!r} is no directory id of 22 characters") from None
    if found.int < RESERVED_IDS:
        raise ValueError(f"directory id {text} is reserved")
    return found


def _disagrees(node: NodeConfig, reason: str) -> Failure:
    return Failure(f"controller.quorum.voters is {format_voters(node.voters)}, and {reason}", exits.USAGE)
