"""The memory for the objects of large decoded requests and their responses.

A request of five megabytes becomes ninety megabytes of objects, so a few of them at once would exhaust a node's
memory. Requests that do not fit together are handled one by one. A larger request waits longer, but only by seconds.
So small requests overtake it and no request waits for ever. One request always goes, however large. Requests up to
SMALL_BYTES have room of their own beside the account, so they never wait behind large requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Final

from raftlog.base.memory import Account
from raftlog.protocol.reader import MAX_OBJECT_BYTES, OBJECT_BYTES_PER_RECEIVED_BYTE

ANSWER_SHARE: Final = 2
"""The objects of a request and its response together, as a multiple of the request's objects."""

PART_BYTES: Final = 1024
"""A part of a request, with its response, takes no more than this in objects."""

BYTES_PER_SECOND: Final = 16 << 20
"""Requests wait in the order of arrival time plus size divided by this rate, so small requests overtake large ones."""

SMALL_BYTES: Final = 2 << 20
"""A request of at most this size does not wait while the extra room for small requests has space."""
SMALL_SHARE: Final = 8
"""The extra room, as a fraction of the account's limit: one eighth."""

HELD_S: Final = 10.0
"""A request gives its room back after this time, because it is blocked by something other than memory."""


def expected_bytes(received: int, parts_max: int) -> int:
    """Return the maximum size of the objects of a request of `received` bytes, with its response.

    The request has at most `parts_max` parts.
    """
    objects = min(OBJECT_BYTES_PER_RECEIVED_BYTE * received, MAX_OBJECT_BYTES)
    return min(ANSWER_SHARE * objects, PART_BYTES * parts_max)


class ObjectMemory:
    """Limits the memory of decoded requests to that of an account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._small_bytes = 0
        self._order = count()
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        """A heap of (due time, number, bytes, turn); cancelled turns are skipped."""

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room for `size` bytes, and hold it for the body of the `async with`, HELD_S at most."""
        if size <= SMALL_BYTES and self._small_bytes + size <= self._account.limit // SMALL_SHARE:
            self._small_bytes += size
            try:
                yield
            finally:
                self._small_bytes -= size
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (loop.time() + size / BYTES_PER_SECOND, next(self._order), size, turn))
        self._admit()
        is_kept = True

        def give() -> None:
            nonlocal is_kept
            if is_kept and turn.done() and not turn.cancelled():
                is_kept = False
                self._account.release(size)
            self._admit()

        timer = None
        try:
            await turn
            timer = loop.call_later(HELD_S, give)
            yield
        finally:
            if timer is not None:
                timer.cancel()
            turn.cancel()  # it may still wait
            give()

    def _admit(self) -> None:
        account, waiting = self._account, self._waiting
        while waiting:
            _, _, size, turn = waiting[0]
            if not turn.cancelled():
                if account.used and account.used + size > account.limit:
                    return
                account.acquire(size)
                turn.set_result(None)
            heappop(waiting)
