"""A new log: few calls of the file system, and the same log as from recovering an empty folder."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.disk import Disk
from raftlog.base.errors import InconsistentTopicId
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS, append, read_all

FOLDER = "/data/t-0"
TOPIC_ID = UUID(int=7)

MAX_CALLS = 12
"""Folder, partition.metadata and its checksums (each looked for, then written), segment. 45 looked for everything."""


class CountedDisk:
    """A disk that counts its calls."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._disk, name)


def opened(disk: object, *, recovery_point: int = 0, topic_id: UUID = TOPIC_ID) -> Log:
    """Open the log of /data/t-0."""
    return Log.open(
        cast(Disk, disk),
        FOLDER,
        config=TopicConfig(),
        recovery_point=recovery_point,
        clean=False,
        topic_id=topic_id,
        now_ms=NOW_MS,
    )


def test_a_new_log_looks_for_nothing_in_its_new_folder() -> None:
    """A topic of 200 partitions refused its producers while 200 empty folders were searched."""
    disk = CountedDisk(SimDisk(0))
    opened(disk)
    assert len(disk.calls) <= MAX_CALLS, disk.calls
    assert {"listdir", "sync_dir", "rmtree"}.isdisjoint(disk.calls)


@pytest.mark.parametrize("folder_is_there", [False, True])
def test_a_new_log_is_that_of_an_empty_folder(folder_is_there: bool) -> None:
    """A power cut right after its creation leaves an empty folder. Both take records and keep them."""
    disk = SimDisk(0)
    if folder_is_there:
        disk.mkdir(FOLDER)
    log = opened(disk)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert (log.damage, log.truncated_to, log.epochs_begin, log.topic_id) == (None, None, 0, TOPIC_ID)
    append(log, b"a")
    content = read_all(log)
    log.flush()
    disk.crash()
    with pytest.raises(InconsistentTopicId):
        opened(disk, topic_id=UUID(int=8))
    again = opened(disk)
    assert again.topic_id == TOPIC_ID and read_all(again) == content


def test_a_log_that_is_gone_though_it_was_flushed_is_damaged() -> None:
    """A recovery point says that its folder held records: the log that is made in its place does not pass for whole."""
    log = opened(SimDisk(0), recovery_point=5)
    assert log.damage is not None and log.damage.until_offset == 5
