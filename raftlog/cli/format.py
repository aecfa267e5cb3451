"""`raftlog format`: write meta.properties into a node's empty data folders, as kafka-storage format does.

Nobody has to: the first start of a set of voters names the cluster by itself. It is for those who want to choose the
cluster's id beforehand.
"""

from __future__ import annotations

import base64
import sys
import uuid
from pathlib import Path

from raftlog.base.config_files import parse_properties
from raftlog.base.disk import RealDisk
from raftlog.cli import exits
from raftlog.cli.server import read_config

FILE_NAME = "meta.properties"


def format_folders(config_path: Path, cluster_id: str | None) -> int:
    """Format each folder of log.dirs that is not yet; returns the exit code."""
    config = read_config(config_path, [])
    chosen = cluster_id or config.cluster_id or _random_id()
    disk = RealDisk()
    for folder in config.log_dirs:
        path = f"{folder}/{FILE_NAME}"
        if disk.exists(path):
            found = parse_properties(disk.read_file(path).decode()).get("cluster.id")
            if found != chosen and (cluster_id or config.cluster_id):
                print(f"raftlog: {folder} belongs to cluster {found}, not {chosen}", file=sys.stderr)
                return exits.EXISTS
            print(f"{folder} is formatted already: cluster {found}")
            continue
        disk.mkdir(folder)
        disk.write_file(path, _meta_properties(config.node_id, chosen).encode())
        print(f"{folder} formatted: node {config.node_id} of cluster {chosen}")
    return 0


def _meta_properties(node_id: int, cluster_id: str) -> str:
    return f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={_random_id()}\n"


def _random_id() -> str:
    """Return 128 random bits as Kafka writes its ids: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
