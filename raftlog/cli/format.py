"""`raftlog format`: write meta.properties into a node's empty data folders, as kafka-storage format does.

Nobody has to: the first start of a set of voters names the cluster by itself. It is for those who want to choose the
cluster's id beforehand.
"""

from __future__ import annotations

import base64
import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from raftlog.base.config_files import parse_properties
from raftlog.base.disk import RealDisk
from raftlog.cli import exits
from raftlog.cli.server import read_config
from raftlog.storage.log_directory import META_PROPERTIES, LogDirectory


def format_folders(
    *,
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="RAFTLOG_CONFIG", help="the node's config file")
    ],
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="the same on every node")
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="as kafka-storage has it; here it is so anyway")
    ] = False,
) -> int:
    """Name the cluster in a node's empty data folders. Optional: a first start does it by itself."""
    node = read_config(config, [])
    asked = cluster_id or node.cluster_id
    chosen = asked or _random_cluster_id()
    disk = RealDisk()
    folders = node.log_dirs if "broker" in node.roles else (node.metadata_log_dir,)
    for folder in folders:
        path = f"{folder}/{META_PROPERTIES}"
        if disk.exists(path):
            found = parse_properties(disk.read_file(path).decode()).get("cluster.id")
            if asked and found != asked:
                print(f"raftlog: {folder} belongs to cluster {found}, not {asked}", file=sys.stderr)
                return exits.EXISTS
            print(f"{folder} is formatted already: cluster {found}")
            continue
        LogDirectory.open(disk, folder, node_id=node.node_id, cluster_id=chosen, new_directory_id=uuid.uuid4)
        print(f"{folder} formatted: node {node.node_id} of cluster {chosen}")
    return 0


def _random_cluster_id() -> str:
    """Return 128 random bits as Kafka writes its ids: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
