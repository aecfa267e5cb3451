"""Bugs that only a power cut shows, for guests of `raftlog_chaos.power_cut`: syncs that are left out.

`python -m raftlog_chaos.power_cut --plant tests.planted.power_cuts:sync_no_segments` hunts it. The simulator has
scenarios of its own for the same hazards; see `disks` and `quorum_disk`.
"""

from __future__ import annotations

import asyncio

import pytest

from raftlog.base import disk
from raftlog.base.disk import RealFile
from raftlog.base.kernel_syncs import SyncCallback
from raftlog.quorum import wal


def sync_no_segments(patch: pytest.MonkeyPatch) -> None:
    """Records are acknowledged when they are in the page cache."""
    sync, submit = RealFile.sync, RealFile.submit_sync

    def sync_others(file: RealFile) -> None:
        if not file.path.endswith(".log"):
            sync(file)

    def submit_others(file: RealFile, done: SyncCallback) -> bool:
        if not file.path.endswith(".log"):
            return submit(file, done)
        asyncio.get_running_loop().call_soon(done, None)
        return True

    patch.setattr(RealFile, "sync", sync_others)
    patch.setattr(RealFile, "submit_sync", submit_others)


def sync_no_folders(patch: pytest.MonkeyPatch) -> None:
    """Files are synced, their names are not."""
    patch.setattr(disk, "sync_dir", lambda path: None)


def sync_no_journal(patch: pytest.MonkeyPatch) -> None:
    """Votes and metadata count when they are in the page cache."""

    def write_only(journal: wal.Wal, records: list[bytes]) -> None:
        assert journal._file is not None
        written = journal._file.pwritev([b"".join([wal.group_record(journal._end), *records])], journal._end)
        journal._end += written

    patch.setattr(wal.Wal, "append", write_only)


PLANTED = (sync_no_segments, sync_no_folders, sync_no_journal)
