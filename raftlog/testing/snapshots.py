"""Copies of the data of a cluster's nodes while none of them runs, to go back to between tests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from raftlog.faults.forgetful_disk import SUFFIX
from raftlog.testing.node_process import NodeProcess


class Snapshot(NamedTuple):
    """The data of all nodes at one time: by node id, each data folder and where its copy is."""

    folders: Mapping[int, Mapping[Path, Path]]


def copy_data(node: NodeProcess, folder: Path) -> dict[Path, Path]:
    """Copy the data of a node that stands still, or has ended; returns where each of its folders was copied to."""
    assert not node.running or node.paused, f"node {node.node_id} is running"
    copies = {}
    for number, source in enumerate(map(Path, node.folders)):
        copies[source] = folder / f"node-{node.node_id}" / str(number)
        shutil.copytree(source, copies[source])
    return copies


def replace_data(node: NodeProcess, copies: Mapping[Path, Path], *, but: str = "") -> None:
    """Put copies in the place of the data of a node that does not run, except for the entries of one name.

    The journal of unsynced changes of a node with faults is removed: it is about other files (inodes).
    """
    assert not node.running, f"node {node.node_id} is running"
    for source, copy in copies.items():
        shutil.rmtree(source.with_name(source.name + SUFFIX), ignore_errors=True)
        kept = source.with_name(f"{source.name}-kept")
        if but and (source / but).exists():
            (source / but).rename(kept)
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(copy, source)
        if kept.exists():
            shutil.rmtree(source / but, ignore_errors=True)
            kept.rename(source / but)
