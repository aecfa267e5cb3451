"""How many requests of clients one turn of the event loop handles as they arrive: those of TURN_S. Others wait in line.

A thousand connections that each send something at the same time would otherwise hold the loop for a second. Requests of
other brokers never wait here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.02

FREE_READS: Final = 8
"""So many reads of connections are handled before the time counts, since most turns of the loop have no more."""


class Arrivals:
    """Whoever reads something counts it in `reads`; from FREE_READS on it asks `admits` first, and waits if not."""

    __slots__ = ("_ends_at", "_is_timed", "_line", "_loop", "_stopwatch", "reads")

    def __init__(self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float]) -> None:
        self._loop = loop
        self._stopwatch = stopwatch
        self.reads = 0
        self._is_timed = False
        self._ends_at = 0.0
        self._line: deque[Callable[[], None]] = deque()

    def admits(self) -> bool:
        """Return whether what has arrived may be handled at once."""
        now = self._stopwatch()
        if not self._is_timed:
            self._is_timed = True
            self._ends_at = now + TURN_S
            self._loop.call_soon(self._begin_turn)
        return now < self._ends_at and not self._line

    def wait(self, handle: Callable[[], None]) -> None:
        """Have `handle` called, which raises nothing, when it is its turn."""
        self._line.append(handle)

    def _begin_turn(self) -> None:
        self._ends_at = self._stopwatch() + TURN_S
        while self._line:
            self._line.popleft()()
            if self._stopwatch() >= self._ends_at:
                break
        if self._line:
            self._loop.call_soon(self._begin_turn)
        else:
            self._is_timed = False
            self.reads = 0
