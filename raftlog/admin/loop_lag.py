"""Measures by a timer how late the event loop runs callbacks, and how much of its time the process computes.

A node is one loop, so its lateness is what every request waits on top of its own work.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from raftlog.base.env import shared_time
from raftlog.base.histogram import Histogram

EVERY_S: Final = 0.02
"""A stall of a busy loop is seen as at least its length less this."""
CALM_EVERY_S: Final = 0.25
"""The same of a process that rests, since each look wakes it up."""
RESTS_BELOW: Final = 0.02
"""The share of time since the last look below which a process rests."""
AVERAGED_S: Final = 1.0
"""The time that the average share of idle time is of, about."""
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopLag:
    """`start` once, `stop` once. `seconds`: how late its timer was, each time.

    `own_seconds`: the part of it for which the loop itself computed; the rest it waited for the disk or for a core.
    """

    def __init__(self) -> None:
        self.seconds = Histogram(BOUNDS_S)
        self.own_seconds = Histogram(BOUNDS_S)
        self.idle = 1.0
        """The share of recent time in which the process did not compute, 0 to 1."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._every_s = EVERY_S
        self._seen = (0.0, 0.0)
        self._thread_s = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._seen = (time.monotonic(), time.process_time())
        self._thread_s = time.thread_time()
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_at = shared_time(loop.time(), self._every_s)
        self._timer = loop.call_at(self._due_at, self._measure)

    def _measure(self) -> None:
        late = max(0.0, asyncio.get_running_loop().time() - self._due_at)
        computed_s, self._thread_s = time.thread_time() - self._thread_s, time.thread_time()
        self.seconds.observe(late)
        self.own_seconds.observe(min(late, computed_s))
        seen = (time.monotonic(), time.process_time())
        passed, computed = seen[0] - self._seen[0], seen[1] - self._seen[1]
        if passed > 0:
            busy = min(1.0, computed / passed)
            self.idle += min(1.0, passed / AVERAGED_S) * (1.0 - busy - self.idle)
            self._every_s = CALM_EVERY_S if busy < RESTS_BELOW else EVERY_S
        self._seen = seen
        self._arm()
