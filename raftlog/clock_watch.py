"""One node's watches: the believed time of its clock reaches the disk, and it knows how late its event loop runs.

Knows neither roles nor connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from raftlog.base.env import Env, shared_time
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.base.record_ages import read_believed_time, write_believed_time

CLOCK_LOOK_S: Final = 10.0
"""Seconds between two looks at the clocks, so that a jump is noticed soon."""

CLOCK_CHECKPOINT_S: Final = 60.0
"""Seconds between two writes of the believed time."""

LOOK_S: Final = 0.1
"""How often a node that was late of late looks how late its loop is, seconds."""

CALM_LOOK_S: Final = 0.5
"""How often a node looks that was not, since each look wakes it up."""

log = get_logger(__name__)
quorum_log = get_logger("quorum")


class ClockWatch:
    """Looks at the clocks and keeps the believed time on the disk, so that a start with a wrong clock is noticed.

    Written once a minute, when the clock becomes believed, and at a stop. If the disk refuses it, the file has an older
    time, and the next start is more likely to doubt the clock.
    """

    def __init__(self, env: Env, folder: str) -> None:
        self._env = env
        self._folder = folder
        self._is_due = asyncio.Event()
        self._written_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._is_closing = self._has_failed = False

    def resume(self, most_ms: int) -> None:
        """Have the node's ages go on from the time on the disk. Raises OSError."""
        self._env.disk.mkdir(self._folder)
        self._env.ages.on_believed = self._is_due.set
        self._env.ages.resume(read_believed_time(self._env.disk, self._folder), most_ms=most_ms)

    def start(self) -> asyncio.Task[None]:
        """Look and write from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def close(self) -> None:
        """Stop, after a last write of the time, if known."""
        if self._task is not None:
            self._is_closing = True
            self._is_due.set()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_closing:
            try:
                async with asyncio.timeout_at(shared_time(loop.time(), CLOCK_LOOK_S)):
                    await self._is_due.wait()
            except TimeoutError:
                self._env.ages.now_ms()
            if self._is_due.is_set() or loop.time() - self._written_at >= CLOCK_CHECKPOINT_S:
                self._is_due.clear()
                await self._write()

    async def _write(self) -> None:
        believed_ms = self._env.ages.time_to_keep()
        if believed_ms is None:
            return
        self._written_at = asyncio.get_running_loop().time()
        try:
            await self._env.offload(partial(write_believed_time, self._env.disk, self._folder, believed_ms))
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.warning("clock_checkpoint_failed", directory=self._folder, reason=str(error))


class LoopWatch:
    """Looks how late this node's loop is, and says once that it is slow, and that it is no longer."""

    def __init__(self, lateness: Lateness, node_id: int) -> None:
        self.on_look: Callable[[float], None] = lambda late_s: None
        """Called with each look, with how long the loop stood still before."""
        self._lateness = lateness
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._said = False

    def start(self) -> None:
        """Look from now on."""
        self._due_at = shared_time(self._loop.time(), LOOK_S if self._lateness.was_late else CALM_LOOK_S)
        self._timer = self._loop.call_at(self._due_at, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now, lateness = self._loop.time(), self._lateness
        lateness.note(now - self._due_at, now)
        self.on_look(now - self._due_at)
        if lateness.is_slow != self._said:
            self._said = lateness.is_slow
            if self._said:
                quorum_log.warning(
                    "node_slow",
                    node_id=self._node_id,
                    late_s=round(lateness.late_s, 3),
                    patience_s=round(lateness.patience_s, 3),
                    advice="its event loop runs late: give the process more of a core, or less to do",
                )
            else:
                quorum_log.info("node_slow_ended", node_id=self._node_id)
        self.start()
