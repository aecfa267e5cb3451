"""Sends the newest snapshot to nodes that lack what it covers: read off the loop, sent in pieces.

Its bytes are in memory once for all receivers, and are freed when the last of them has it. No call here blocks: a
snapshot that is not read yet is None, and a callback follows when it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import ref

from raftlog.base.env import Offload
from raftlog.base.log import get_logger
from raftlog.quorum.snapshot import SnapshotFiles

log = get_logger("quorum")

READ_RETRY_SECONDS: Final = 0.5
"""Pause after a failed read, or a read that found no snapshot new enough."""

SNAPSHOT_CACHE_SECONDS: Final = 5.0
"""How long a snapshot stays in memory for its first reader."""


class LoadedSnapshot:
    """A snapshot's bytes in memory, as long as they are referenced."""

    __slots__ = ("__weakref__", "data", "index")

    def __init__(self, index: int, data: bytes) -> None:
        self.index = index
        self.data = data


class SnapshotCursor:
    """One node's position in a snapshot. `start`: where its next piece begins."""

    __slots__ = ("snapshot", "start")

    def __init__(self, snapshot: LoadedSnapshot) -> None:
        self.snapshot = snapshot
        self.start = 0

    @property
    def at_end(self) -> bool:
        return self.start >= len(self.snapshot.data)

    def next_chunk(self, size: int) -> tuple[int, bytes]:
        """Return the next piece and where it begins."""
        start = self.start
        self.start = min(start + size, len(self.snapshot.data))
        return start, self.snapshot.data[start : self.start]


class SnapshotSender:
    """Snapshots of one voter for others. Its log begins where the newest snapshot ends, once that is on the disk."""

    def __init__(self, offload: Offload, files: SnapshotFiles) -> None:
        self._offload = offload
        self._files = files
        self._held: Callable[[], LoadedSnapshot | None] = lambda: None
        self._waiting: list[Callable[[], None]] = []
        self._reading = False
        self._not_before = 0.0

    def cursor_of_newest(self, first_index: int, when_read: Callable[[], None]) -> SnapshotCursor | None:
        """Return the pieces of a snapshot that reaches a log beginning at `first_index`.

        None while it is being read, or written: then `when_read` is called once, unless reading fails. Ask again later
        in any case.
        """
        held = self._held()
        if held is not None and held.index >= first_index:
            return SnapshotCursor(held)
        loop = asyncio.get_running_loop()
        if self._reading:
            self._waiting.append(when_read)
        elif loop.time() >= self._not_before:
            self._reading = True
            self._not_before = loop.time() + READ_RETRY_SECONDS
            self._waiting.append(when_read)
            self._offload(lambda: self._read(first_index)).add_done_callback(self._took)
        return None

    def _read(self, first_index: int) -> LoadedSnapshot | None:
        newest = self._files.indexes()[-1:]
        return (
            LoadedSnapshot(newest[0], self._files.read(newest[0]))
            if newest and newest[0] >= first_index
            else None
        )

    def _took(self, future: asyncio.Future[LoadedSnapshot | None]) -> None:
        self._reading = False
        waiting, self._waiting = self._waiting, []
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("quorum_snapshot_unreadable", reason=repr(error))
            return
        held = future.result()
        if held is None:
            return
        self._not_before = 0.0
        self._held = lambda: held
        asyncio.get_running_loop().call_later(SNAPSHOT_CACHE_SECONDS, self._let_go, ref(held))
        for when_read in waiting:
            when_read()

    def _let_go(self, held: Callable[[], LoadedSnapshot | None]) -> None:
        if self._held() is held():
            self._held = held
