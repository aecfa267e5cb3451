"""Marks: names of files that say what a node is doing."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from raftlog.base.disk import RealDisk
from raftlog.base.types import METADATA_FOLDER
from raftlog.quorum.snapshot import SnapshotFiles
from raftlog.quorum.wal import NAME
from raftlog.storage import swap
from raftlog_chaos.power_cut.watch import COMPACTION, ROLL, SNAPSHOT, Watch, mark_of

SEGMENT = f"{17:020d}.log"


@pytest.mark.parametrize(
    ("folder", "name", "created", "mark"),
    [
        ("orders-0", SEGMENT, True, ROLL),
        ("orders-0", f"{0:020d}.log", True, None),
        ("orders-0", SEGMENT + swap.CLEANED, True, COMPACTION[0]),
        ("orders-0", SEGMENT + swap.SWAP, False, COMPACTION[1]),
        ("orders-0", SEGMENT, False, COMPACTION[2]),
        ("orders-0", f"{17:020d}.index", True, None),
        (METADATA_FOLDER, NAME, False, SNAPSHOT[2]),
        (METADATA_FOLDER, NAME + ".tmp", True, None),
        ("data", "recovery-point-offset-checkpoint", False, "checkpoint-written"),
        ("data", "meta.properties", False, None),
    ],
)
def test_a_name_says_what_a_node_is_doing(folder: str, name: str, created: bool, mark: str | None) -> None:
    """The first segment of a log is no roll, and a file that is renamed into place is not a new file."""
    assert mark_of(folder, name, created=created) == mark


def test_marks_come_from_the_files_that_raftlog_writes(tmp_path: Path) -> None:
    """In folders that are made later, too; a snapshot is seen when it is begun and when it has its name."""
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    Watch([tmp_path], seen.put)
    folder = tmp_path / "data" / METADATA_FOLDER
    folder.parent.mkdir()
    (folder.parent / "meta.properties").touch()
    folder.mkdir()
    snapshots = SnapshotFiles(RealDisk(), str(folder))
    marks: set[str] = set()
    for index in range(1, 1000):  # until the new folder is watched
        snapshots.write(index, b"state")
        while not seen.empty():
            marks.add(seen.get())
        if len(marks) == 2:
            break
    assert marks == set(SNAPSHOT[:2])
