"""A broker's memory budget for data of clients and other brokers: accounts, and the rule for their limits.

This module only counts. The users of an account decide what happens when it is full
(`broker/network/request_memory.py`, `broker/network/connection.py`, `broker/network/fetch_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

MIB: Final = 1 << 20

USUAL_MAX_BYTES: Final = 512 * MIB
"""Default of raftlog.memory.max.bytes on a machine with at least twice as much memory."""

SHARE_OF_MEMORY: Final = 2
"""On a smaller machine or container, the default is its memory divided by this."""


def max_bytes(given: int, memory_bytes: int) -> int:
    """Return raftlog.memory.max.bytes in force: `given`, or the default for `memory_bytes` if that is -1."""
    return given if given > 0 else min(USUAL_MAX_BYTES, memory_bytes // SHARE_OF_MEMORY)


MIN_BODIES_BYTES: Final = 4 * MIB
"""Least memory for bodies of HTTP requests: two of the largest fit."""


class Waiter(Protocol):
    """A user of an account that waits for memory."""

    def memory_freed(self) -> None:
        """Continue after memory was freed. `Account.release` calls this once the account is no longer short.

        Waiters that were called before may have acquired the freed bytes already, so check again.
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
        """At this use the account is short: the last quarter is for small requests and for work that must not wait."""
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

    They are separate because a full account has a different effect in each case:

    | account | part of the budget | effect when it is full |
    |---|---|---|
    | requests | 3/16 | connections that send a large frame are read one after the other |
    | answers | 4/16 | requests other than Produce wait; the slowest readers are closed |
    | unappended | 4/16 | batches are refused, and producers send them again |
    | objects | 1/16 | large requests are handled one after the other |
    | connections | 2/16 | only brokers get a place |
    | sessions | 1/16 | sessions are evicted, and consumers fetch without a session |
    | bodies (`account_of_bodies`) | 1/16 | HTTP requests get 503 |
    | contents (`NodeView.contents`) | 1/32 beside it | downloads of records get 503 |
    """

    __slots__ = ("answers", "connections", "objects", "requests", "sessions", "unappended")

    def __init__(self, max_bytes: int, *, requests: int = -1, answers: int = -1) -> None:
        """`requests` and `answers` in bytes, if an operator set them; otherwise by the rule."""
        self.requests = Account("requests", requests if requests > 0 else max_bytes * 3 // 16)
        """Requests from their arrival until they are handled (queued.max.request.bytes)."""
        self.answers = Account("answers", answers if answers > 0 else max_bytes // 4)
        """Responses that the client has not read yet (raftlog.answers.max.bytes)."""
        self.objects = Account("objects", max_bytes // 16)
        """The decoded objects of large requests."""
        self.unappended = Account("unappended", max_bytes // 4)
        """Produced batches that wait for the verification of their transaction or for a check of their records.

        The decompressed bytes of the batch that is being checked count too.
        """
        self.connections = Account("connections", max_bytes // 8)
        """The memory of all connections, each counted as when it is idle."""
        self.sessions = Account("sessions", max_bytes // 16)
        """Partitions in fetch sessions."""

    def __iter__(self) -> Iterator[Account]:
        for name in self.__slots__:
            yield getattr(self, name)


def account_of_bodies(whole: int) -> Account:
    """Return the account for bodies of requests to the admin API: a part of the `whole` budget, in bytes."""
    return Account("bodies", max(whole // 16, MIN_BODIES_BYTES))
