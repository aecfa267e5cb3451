"""Deadlines of requests that wait: many, mostly removed before they are due, so they share one timer of the loop.

They are kept in buckets of `GRAIN_MS`, so a waiter expires up to one bucket late, never early.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from raftlog.base.guard import Guard

GRAIN_MS: Final = 10
_PER_SECOND: Final = 1000 / GRAIN_MS
_SLACK: Final = 64
"""Stale entries of the order that are tolerated before it is rebuilt."""


class DeadlineWaiter(Protocol):
    """A waiter with a deadline, on behalf of a connection.

    If it fails, that connection is closed; no other deadline is missed.
    """

    @property
    def connection(self) -> Guard: ...

    def expired(self) -> None:
        """Handle that the time is up; called once, unless the waiter was removed before."""


class Deadlines:
    """A set of waiters by deadline. Memory is bounded by the waiters that are in it."""

    __slots__ = ("_buckets", "_loop", "_order", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[DeadlineWaiter, None]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # uvloop's handle of a time in the past has no `TimerHandle.when`

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, waiter: DeadlineWaiter, wait_ms: int) -> int:
        """Expire `waiter` after `wait_ms`; return the ticket to remove it with."""
        ticket = int(self._loop.time() * _PER_SECOND + wait_ms / GRAIN_MS) + 1
        bucket = self._buckets.get(ticket)
        if bucket is None:
            self._open_bucket(ticket)[waiter] = None
        else:
            bucket[waiter] = None
        return ticket

    def remove(self, waiter: DeadlineWaiter, ticket: int) -> None:
        """Remove a waiter; no effect if it expired already."""
        bucket = self._buckets.get(ticket)
        if bucket is not None:
            bucket.pop(waiter, None)
            if not bucket:
                del self._buckets[ticket]

    def close(self) -> None:
        """Forget all waiters."""
        self._buckets.clear()
        self._order.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open_bucket(self, ticket: int) -> dict[DeadlineWaiter, None]:
        bucket = self._buckets[ticket] = {}
        heappush(self._order, ticket)
        if len(self._order) > 2 * len(self._buckets) + _SLACK:
            self._order = list(self._buckets)
            heapify(self._order)
        self._arm(ticket)
        return bucket

    def _arm(self, ticket: int) -> None:
        at = ticket / _PER_SECOND
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._expire)
        self._timer_at = at

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time() * _PER_SECOND
        order = self._order
        while order and (order[0] <= now or order[0] not in self._buckets):
            self._expire_bucket(heappop(order))
            order = self._order
        if order:
            self._arm(order[0])

    def _expire_bucket(self, ticket: int) -> None:
        bucket = self._buckets.get(ticket)
        while bucket:  # a waiter may remove another while it expires
            waiter = next(iter(bucket))
            self.remove(waiter, ticket)
            waiter.connection.run_guarded(waiter.expired)
