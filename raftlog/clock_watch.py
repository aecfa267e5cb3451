"""One node's watch over its clock: the believed time reaches the disk. Knows neither roles nor connections."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from raftlog.base.env import Env, shared_time
from raftlog.base.log import get_logger
from raftlog.base.record_ages import read_believed_time, write_believed_time

CHECK_INTERVAL_S: Final = 10.0
"""The interval at which the clocks are compared, so that a jump is noticed soon."""

CLOCK_CHECKPOINT_S: Final = 60.0
"""Seconds between two writes of the believed time."""

log = get_logger(__name__)


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
                async with asyncio.timeout_at(shared_time(loop.time(), CHECK_INTERVAL_S)):
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
