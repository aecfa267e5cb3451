"""Claims about snapshots on their way to other nodes: read once, kept while they are needed, asked for again."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable
from typing import Any

from raftlog.quorum.outgoing import KEEP_SECONDS, READ_AGAIN_SECONDS, Outgoing, Pieces
from raftlog.quorum.snapshot import SnapshotFiles
from raftlog_chaos.simulator import SimEnv, SimLoop, simulate

FOLDER = "/data/quorum"


class World:
    """A folder for snapshots on a simulated disk; `reads` counts those that were read."""

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
        self.outgoing = Outgoing(env.offload, self.files)

    def newest(self, first_index: int) -> Pieces | None:
        return self.outgoing.newest(first_index, self.tell)

    def tell(self) -> None:
        self.told += 1

    async def get(self, first_index: int) -> Pieces:
        """Ask as often as it takes."""
        while (pieces := self.newest(first_index)) is None:
            await asyncio.sleep(0.01)
        return pieces


def play(script: Callable[[World], Any]) -> None:
    async def program(loop: SimLoop) -> None:
        await script(World(loop))

    simulate(program)


def test_a_snapshot_is_cut_into_pieces_that_make_it_whole() -> None:
    """Each begins where the one before it ended."""

    async def script(world: World) -> None:
        world.files.write(7, bytes(range(250)))
        pieces = await world.get(6)
        taken = []
        while not pieces.at_end:
            taken.append(pieces.take(100))
        assert [start for start, _ in taken] == [0, 100, 200]
        assert b"".join(data for _, data in taken) == bytes(range(250))

    play(script)


def test_a_snapshot_is_read_once_for_all_and_given_back_by_the_last() -> None:
    """Memory holds it once however many nodes restart, and not at all once they have it."""

    async def script(world: World) -> None:
        world.files.write(7, b"state")
        held = [await world.get(6) for _ in range(5)]
        assert world.reads == 1
        await asyncio.sleep(KEEP_SECONDS + 1)
        assert (await world.get(6)).snapshot is held[0].snapshot and world.reads == 1
        del held
        gc.collect()
        await world.get(6)
        assert world.reads == 2

    play(script)


def test_whoever_asked_is_told_when_it_is_read() -> None:
    """A node need not wait for the next tick."""

    async def script(world: World) -> None:
        world.files.write(7, b"state")
        assert world.newest(6) is None and world.newest(6) is None
        while world.told < 2:
            await asyncio.sleep(0.001)
        assert world.newest(6) is not None

    play(script)


def test_an_older_snapshot_than_the_log_needs_is_not_sent() -> None:
    """An install cuts the log before its file is on the disk; the older one would leave a gap."""

    async def script(world: World) -> None:
        world.files.write(7, b"older")
        assert world.newest(20) is None
        await asyncio.sleep(READ_AGAIN_SECONDS)
        assert world.newest(20) is None and world.reads == 0
        world.files.write(21, b"newer")
        assert (await world.get(20)).snapshot.index == 21

    play(script)


def test_a_snapshot_that_cannot_be_read_is_tried_again_and_harms_nobody() -> None:
    """EMFILE passes; it ended the voter that was to send the snapshot."""

    async def script(world: World) -> None:
        world.files.write(7, b"state")
        tries = 0
        read = world.files.read

        def failing(index: int) -> bytes:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return read(index)

        world.files.read = failing  # type: ignore[method-assign]
        pieces = await world.get(6)
        assert pieces.snapshot.data == b"state" and tries == 3

    play(script)
