"""Bounds the time that clients' requests take in one turn of the event loop; the rest waits in line, in its order.

A thousand connections that each send something at the same time would otherwise hold the loop for a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from raftlog.base.disk import Buffer
from raftlog.protocol.frames import PREFIX_BYTES, api_key_at

TURN_S: Final = 0.02
"""A turn ends after the first read that exceeds this time."""

FREE_READS: Final = 4
"""This many reads are handled before the time counts, since most turns of the loop have no more."""

HANDLED_AT_ONCE: Final = 16
"""Requests of a connection that are handled as they arrive. A large request counts as several. Later requests wait for
a turn of the loop (`TurnQueue`), so thousands of small requests from one client delay no others."""


class Arrivals:
    """A connection counts what it reads in `reads`. Beyond FREE_READS it checks how many requests it may handle."""

    __slots__ = ("_ends_at", "_handshake_api_key", "_is_timed", "_line", "_loop", "_stopwatch", "reads")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float], *, handshake_api_key: int
    ) -> None:
        self._loop = loop
        self._stopwatch = stopwatch
        self._handshake_api_key = handshake_api_key
        self.reads = 0
        """Since the last turn that was timed."""
        self._is_timed = False
        self._ends_at = 0.0
        self._line: deque[Callable[[], None]] = deque()

    def limit(self, read: Buffer, size: int) -> int:
        """Return how many of the requests in the first `size` bytes of `read` may be handled now.

        HANDLED_AT_ONCE; or 0 if the turn's time is up, and 1 if a step of the peer handshake is the first of them. The
        connection calls `wait` for the rest.
        """
        now = self._stopwatch()
        if not self._is_timed:
            self._is_timed = True
            self._ends_at = now + TURN_S
            self._loop.call_soon(self._begin_turn)
        if now < self._ends_at and not self._line:
            return HANDLED_AT_ONCE
        return int(
            size > PREFIX_BYTES and api_key_at(read, 0, size - PREFIX_BYTES) == self._handshake_api_key
        )

    def wait(self, handle: Callable[[], None]) -> None:
        """Have `handle`, which never raises, called in its turn.

        Call this only after `limit` returned that the connection has to wait.
        """
        self._line.append(handle)

    def _begin_turn(self) -> None:
        if not self._line:
            self._is_timed = False
            self.reads = 0
            return
        self._ends_at = self._stopwatch() + TURN_S
        while self._line:
            self._line.popleft()()
            if self._stopwatch() >= self._ends_at:
                break
        # until then the rest of the time is for what is read meanwhile
        self._loop.call_soon(self._begin_turn)
