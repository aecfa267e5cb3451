"""The part of `raftlog doctor` that checks data folders: their owner, and whether a voter's metadata is whole.

Files are only read. Records are `raftlog log verify`'s business, since reading them all takes long.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.config.files import parse_properties
from raftlog.base.types import METADATA_FOLDER
from raftlog.cli.backup.command import UNFINISHED
from raftlog.cli.doctor.findings import Finding, mend, ok
from raftlog.cli.exits import Failure
from raftlog.cli.metadata import image_of, open_journal
from raftlog.quorum.stored_journal import NAME
from raftlog.storage.log_directory import META_PROPERTIES, RECOVERY_POINTS

FROM_BACKUP: Final = (
    "bring the node's folders back from a backup (raftlog restore); keep what is there until then"
)


def check_data(node: NodeConfig) -> Iterator[Finding]:
    """See whether each data folder is this node's and of one cluster, and whether a voter can read its metadata."""
    clusters = {}
    for folder in map(Path, dict.fromkeys([*node.log_dirs, node.metadata_log_dir])):
        path = folder / META_PROPERTIES
        try:
            found = parse_properties(path.read_text())
        except OSError:
            continue  # it is new; whether it can be read is check_disks' business
        except ValueError:
            yield mend(f"data {folder}", f"{path} is damaged: it is not text", FROM_BACKUP)
            continue
        if whose := _check_folder_owner(folder, found, node):
            yield whose
        elif found.get("cluster.id"):
            clusters[found["cluster.id"]] = folder
            yield ok(f"data {folder}", f"it is of node {node.node_id} of cluster {found['cluster.id']}")
    if len(clusters) > 1:
        listed = ", ".join(f"{folder} of {name}" for name, folder in clusters.items())
        yield mend(
            "data", f"the folders are of several clusters: {listed}", "name the folders of one cluster"
        )
    if "controller" in node.roles:
        yield from _check_metadata(node)


def _check_folder_owner(folder: Path, found: dict[str, str], node: NodeConfig) -> Finding | None:
    about, whose = f"data {folder}", found.get("node.id")
    if whose == UNFINISHED:
        return mend(about, "it has an unfinished restore", "empty it, and run raftlog restore again")
    if whose != str(node.node_id):
        return mend(about, f"it belongs to node {whose}, this is node {node.node_id}", "name another folder")
    if node.cluster_id and found.get("cluster.id") not in (None, node.cluster_id):
        return mend(
            about,
            f"it belongs to cluster {found.get('cluster.id')}, the config says cluster.id={node.cluster_id}",
            "name another folder, or remove cluster.id from the config",
        )
    return None


def _check_metadata(node: NodeConfig) -> Iterator[Finding]:
    path = f"{node.metadata_log_dir}/{METADATA_FOLDER}/{NAME}"
    if not os.path.exists(path):
        if any(os.path.exists(f"{each}/{RECOVERY_POINTS}") for each in node.log_dirs):
            yield mend("metadata", f"{path} is gone, although this voter has run", FROM_BACKUP)
        return
    try:
        image = image_of(open_journal(Path(node.metadata_log_dir)))
        yield ok("metadata", f"it is whole, and has {len(image.topics)} topics")
    except Failure as error:
        yield mend("metadata", str(error), FROM_BACKUP)
