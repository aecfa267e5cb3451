"""Claims about snapshots on their way to other nodes: read once, kept while they are needed, asked for again."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable
from typing import Any

from raftlog.quorum.snapshot import SnapshotFiles
from raftlog.quorum.snapshot_sender import (
    READ_RETRY_SECONDS,
    SNAPSHOT_CACHE_SECONDS,
    SnapshotCursor,
    SnapshotSender,
)
from raftlog_chaos.simulator import SimEnv, SimLoop, simulate

FOLDER = "/data/quorum"


class SnapshotFolder:
    """A folder for snapshots on a simulated disk; `reads` counts reads."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        env = SimEnv(loop.main)
        env.disk.mkdir(FOLDER)
        self.disk = loop.main.disk
        self.files = SnapshotFiles(env.disk, FOLDER)
        self.reads = 0
        self.told = 0
        read = self.files.read

        def counted(index: int) -> bytes:
            self.reads += 1
            return read(index)

        self.files.read = counted  # type: ignore[method-assign]
        self.outgoing = SnapshotSender(env.offload, self.files)

    def newest(self, first_index: int) -> SnapshotCursor | None:
        return self.outgoing.cursor_of_newest(first_index, self.tell)

    def tell(self) -> None:
        self.told += 1

    async def get(self, first_index: int) -> SnapshotCursor:
        """Ask as often as it takes."""
        while (pieces := self.newest(first_index)) is None:
            await asyncio.sleep(0.01)
        return pieces


def run_scenario(script: Callable[[SnapshotFolder], Any]) -> None:
    async def program(loop: SimLoop) -> None:
        await script(SnapshotFolder(loop))

    simulate(program)


def test_a_snapshot_is_cut_into_pieces_that_make_it_whole() -> None:
    """Each begins at the end of its predecessor."""

    async def script(folder: SnapshotFolder) -> None:
        folder.files.write(7, bytes(range(250)))
        pieces = await folder.get(6)
        taken = []
        while not pieces.at_end:
            taken.append(pieces.next_chunk(100))
        assert [start for start, _ in taken] == [0, 100, 200]
        assert b"".join(data for _, data in taken) == bytes(range(250))

    run_scenario(script)


def test_a_snapshot_is_read_once_for_all_and_given_back_by_the_last() -> None:
    """Memory holds it once however many nodes restart, and not at all once they have it."""

    async def script(folder: SnapshotFolder) -> None:
        folder.files.write(7, b"state")
        held = [await folder.get(6) for _ in range(5)]
        assert folder.reads == 1
        await asyncio.sleep(SNAPSHOT_CACHE_SECONDS + 1)
        assert (await folder.get(6)).snapshot is held[0].snapshot and folder.reads == 1
        del held
        gc.collect()
        await folder.get(6)
        assert folder.reads == 2

    run_scenario(script)


def test_the_caller_is_notified_when_the_snapshot_is_read() -> None:
    """A node need not wait for the next tick."""

    async def script(folder: SnapshotFolder) -> None:
        folder.files.write(7, b"state")
        assert folder.newest(6) is None and folder.newest(6) is None
        while folder.told < 2:
            await asyncio.sleep(0.001)
        assert folder.newest(6) is not None

    run_scenario(script)


def test_an_older_snapshot_than_the_log_needs_is_not_sent() -> None:
    """An install cuts the log before its file is on the disk; the older snapshot would leave a gap."""

    async def script(folder: SnapshotFolder) -> None:
        folder.files.write(7, b"older")
        assert folder.newest(20) is None
        await asyncio.sleep(READ_RETRY_SECONDS)
        assert folder.newest(20) is None and folder.reads == 0
        folder.files.write(21, b"newer")
        assert (await folder.get(20)).snapshot.index == 21

    run_scenario(script)


def test_a_snapshot_that_cannot_be_read_is_tried_again_without_harm() -> None:
    """EMFILE passes; it ended the voter that was to send the snapshot."""

    async def script(folder: SnapshotFolder) -> None:
        folder.files.write(7, b"state")
        tries = 0
        read = folder.files.read

        def failing(index: int) -> bytes:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return read(index)

        folder.files.read = failing  # type: ignore[method-assign]
        pieces = await folder.get(6)
        assert pieces.snapshot.data == b"state" and tries == 3

    run_scenario(script)
