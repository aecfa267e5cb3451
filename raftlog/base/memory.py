"""A broker's memory budget for data of clients and other brokers: accounts, and the rule for their limits.

Only arithmetic: the users of an account decide what to do without room (`broker/network/request_memory.py`,
`broker/network/connection.py`, `broker/network/fetch_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

MIB: Final = 1 << 20

USUAL_MAX_BYTES: Final = 512 * MIB
"""Default of raftlog.memory.max.bytes where there is twice as much memory or more."""

SHARE_OF_MEMORY: Final = 2
"""Otherwise the default is this fraction of the container's or machine's memory."""


def max_bytes(given: int, memory_bytes: int) -> int:
    """Return raftlog.memory.max.bytes in force: `given`, or if that is -1 the default for this much memory."""
    return given if given > 0 else min(USUAL_MAX_BYTES, memory_bytes // SHARE_OF_MEMORY)


MIN_BODIES_BYTES: Final = 4 * MIB
"""Minimum for bodies of requests to the HTTP API: room for two of the largest."""


class Waiter(Protocol):
    """A callback for an account without room."""

    def memory_freed(self) -> None:
        """Handle that the account is no longer short, inside `Account.release`. An earlier waiter may use the freed
        bytes first.
        """


class Account:
    """Bytes held for one purpose. `limit` is advisory: callers check it before they acquire memory, or exceed it on
    purpose.
    """

    __slots__ = ("_waiting", "limit", "most", "name", "plenty", "times_full", "used")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.plenty = limit * 3 // 4
        """The account is short from here on: the last quarter is for small requests and for work that must not wait."""
        self.used = 0
        self.most = 0
        """The largest `used` so far."""
        self.times_full = 0
        self._waiting: dict[Waiter, None] = {}

    @property
    def is_short(self) -> bool:
        return self.used >= self.plenty

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit

    def acquire(self, size: int) -> None:
        """Count `size` bytes more."""
        before = self.used
        self.used = now = before + size
        self.most = max(self.most, now)
        if before < self.limit <= now:
            self.times_full += 1

    def release(self, size: int) -> None:
        """Count `size` bytes less."""
        self.used -= size
        assert self.used >= 0, f"more was released than acquired: {self.name}"
        if self._waiting and self.used < self.plenty:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.memory_freed()

    def add_waiter(self, waiter: Waiter) -> None:
        """Call `waiter` once the account is no longer short. It then checks again, and may wait again."""
        self._waiting[waiter] = None

    def remove_waiter(self, waiter: Waiter) -> None:
        """Remove a waiter; it need not be waiting."""
        self._waiting.pop(waiter, None)


class MemoryBudget:
    """The accounts of one broker.

    Each has a rule of its own for what happens without room. That is why they are not one account:

    | account | part of the whole | without room |
    |---|---|---|
    | requests | 3/16 | connections that send a large frame are read one after the other |
    | answers | 4/16 | requests other than Produce wait; the slowest readers are closed |
    | unappended | 4/16 | batches are refused, and producers send them again |
    | objects | 1/16 | large requests are handled one after the other |
    | connections | 2/16 | only brokers get a place |
    | sessions | 1/16 | sessions are evicted, and consumers fetch without a session |
    | bodies (`account_of_bodies`) | 1/16 | HTTP requests get 503 |
    """

    __slots__ = ("answers", "connections", "objects", "requests", "sessions", "unappended")

    def __init__(self, max_bytes: int, *, requests: int = -1, answers: int = -1) -> None:
        """`requests` and `answers` in bytes, if an operator set them; otherwise by the rule."""
        self.requests = Account("requests", requests if requests > 0 else max_bytes * 3 // 16)
        """Received and not handled, or still being handled (queued.max.request.bytes)."""
        self.answers = Account("answers", answers if answers > 0 else max_bytes // 4)
        """Ready and not taken by the client (raftlog.answers.max.bytes)."""
        self.objects = Account("objects", max_bytes // 16)
        """The decoded objects of large requests."""
        self.unappended = Account("unappended", max_bytes // 4)
        """Produced batches that wait for a transaction's verification, or for a check of their records; and the
        decompressed bytes of the one that is checked."""
        self.connections = Account("connections", max_bytes // 8)
        """The memory of an idle connection, for all connections."""
        self.sessions = Account("sessions", max_bytes // 16)
        """Partitions in fetch sessions."""

    def __iter__(self) -> Iterator[Account]:
        for name in self.__slots__:
            yield getattr(self, name)


def account_of_bodies(whole: int) -> Account:
    """Return the account of the bodies that arrive at the admin API, with its part of `whole` bytes."""
    return Account("bodies", max(whole // 16, MIN_BODIES_BYTES))
