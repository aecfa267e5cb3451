"""The memory for the objects that large requests are decoded into, and for those of their answers.

A request of five megabytes becomes ninety megabytes of objects, so a few of them at once would take what a node has.
Those that do not fit together go one after the other, the smallest first, and one always goes, however large.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Final

from raftlog.protocol.reader import most_object_bytes

ANSWER_SHARE: Final = 2
"""Objects of a request and of its answer together take so many times those of the request."""

PART_BYTES: Final = 1024
"""A part of a request, with its answer, takes no more than this in objects."""


def expected_bytes(received: int, parts_max: int) -> int:
    """Return what a request of `received` bytes and at most so many parts may take in objects until it is answered."""
    return min(ANSWER_SHARE * most_object_bytes(received), PART_BYTES * parts_max)


class ObjectMemory:
    """`room` for so many bytes of objects, of `limit` bytes that are used at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._order = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of (bytes, number, who waits); one that was cancelled is passed over."""

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room for `size` bytes, and keep it for the body of the `async with`."""
        turn = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (size, next(self._order), turn))
        self._admit()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self.used -= size
            turn.cancel()
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            size, _, turn = self._waiting[0]
            if not turn.cancelled():
                if self.used and self.used + size > self._limit:
                    return
                self.used += size
                turn.set_result(None)
            heappop(self._waiting)
