"""`raftlog format`: write meta.properties into a node's empty data folders, as kafka-storage format does.

It is optional: the first start of a set of voters names the cluster by itself. It serves to choose the cluster's id
beforehand, or to create the first user before the first start.
"""

from __future__ import annotations

import base64
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.base import variables
from raftlog.base.config import NodeConfig
from raftlog.base.config.files import parse_properties
from raftlog.base.disk import RealDisk
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.initial_voters import FirstVoters, read_first_voters
from raftlog.cli.server import read_config
from raftlog.metadata.bootstrap import write_bootstrap
from raftlog.metadata.metadata_records import ScramCredentialChanged
from raftlog.storage.log_directory import META_PROPERTIES, LogDirectory

MAX_USERS: Final = 100
"""The maximum number of --add-scram options. Create further users once the cluster runs."""

Standalone = Annotated[
    bool, typer.Option("--standalone", "-s", help="this node is the only voter; others can be added")
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY_ID,…",
        help="the first voters with their directories, the same on each of them",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", "-N", help="this node is added to the voters later")
]


def format_folders(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", envvar=variables.CONFIG, help="the node's config file")
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="the same on every node")
    ] = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option("--ignore-formatted", "-g", help="leave folders alone that are formatted already"),
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="MECHANISM=[name=…]",
            help="a user of the new cluster, the same on every voter: 'SCRAM-SHA-512=[name=admin,password=…]'; "
            "password-file=PATH keeps the password out of the list of processes. May be repeated",
        ),
    ] = None,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
) -> int:
    """Name the cluster in a node's empty data folders. Optional: a first start does it by itself."""
    node = read_config(config, [])
    users = _read_users(node, add_scram or [])
    first = read_first_voters(
        node,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
    )
    asked = cluster_id or node.cluster_id
    if users and len(node.voters) > 1 and not asked:
        raise Failure(
            "--add-scram with several voters needs --cluster-id, the same on all of them", exits.USAGE
        )
    chosen = asked or _random_cluster_id()
    folders: tuple[str, ...] = node.log_dirs if "broker" in node.roles else (node.metadata_log_dir,)
    if first.directory_id is not None and node.metadata_log_dir not in folders:
        folders = (*folders, node.metadata_log_dir)
    there = _formatted(folders)
    if asked:
        for folder, found in there.items():
            if found != asked:
                print(f"raftlog: {folder} belongs to cluster {found}, not {asked}", file=sys.stderr)
                return exits.EXISTS
    if users and there:
        if not ignore_formatted:
            raise Failure(
                f"{next(iter(there))} is formatted already, and --add-scram is for a new cluster: "
                "use raftlog user set once it runs",
                exits.EXISTS,
            )
        users = []
    if first.dynamic and there:
        if not ignore_formatted:
            raise Failure(
                f"{next(iter(there))} is formatted already, and first voters are for a new cluster: use raftlog quorum "
                "once it runs",
                exits.EXISTS,
            )
        first = FirstVoters()
    _format(node, folders, cluster_id=chosen, there=there, users=users, first=first)
    return 0


def _format(
    node: NodeConfig,
    folders: Sequence[str],
    *,
    cluster_id: str,
    there: dict[str, str | None],
    users: Sequence[ScramCredentialChanged],
    first: FirstVoters,
) -> None:
    """Write the users first, so that a formatted folder never lacks them."""
    disk = RealDisk()
    if users or first.dynamic:
        write_bootstrap(disk, node.metadata_log_dir, users, kraft_version=int(first.dynamic))
        for each in users:
            print(f"{node.metadata_log_dir} has user {each.user} for {each.mechanism}")
    for folder in folders:
        if folder in there:
            print(f"{folder} is formatted already: cluster {there[folder]}")
            continue
        given = first.directory_id if folder == node.metadata_log_dir else None
        LogDirectory.open(
            disk,
            folder,
            node_id=node.node_id,
            cluster_id=cluster_id,
            new_directory_id=lambda given=given: given or uuid.uuid4(),  # type: ignore[misc]
        )
        print(f"{folder} formatted: node {node.node_id} of cluster {cluster_id}")


def _formatted(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the folders that are formatted, and the cluster that each belongs to."""
    disk = RealDisk()
    return {
        folder: parse_properties(disk.read_file(path).decode()).get("cluster.id")
        for folder in folders
        if disk.exists(path := f"{folder}/{META_PROPERTIES}")
    }


def _read_users(node: NodeConfig, given: Sequence[str]) -> list[ScramCredentialChanged]:
    """Return the users of --add-scram. Raises Failure."""
    if not given:
        return []
    from raftlog.cli.scram_argument import read_scram_argument

    if "controller" not in node.roles:
        raise Failure("--add-scram is for voters: this node's process.roles has no controller", exits.USAGE)
    if len(given) > MAX_USERS:
        raise Failure(f"--add-scram: at most {MAX_USERS} users, not {len(given)}", exits.USAGE)
    users = [read_scram_argument(each) for each in given]
    names = [(each.user, each.mechanism) for each in users]
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise Failure(f"--add-scram: user {twice[0]} is named twice for {twice[1]}", exits.USAGE)
    return users


def _random_cluster_id() -> str:
    """Return 128 random bits as Kafka writes its ids: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
