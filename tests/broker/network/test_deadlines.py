"""raftlog.broker.network.deadlines: no deadline fires early, removed deadlines never, memory follows the content."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.guard import Guard
from raftlog.broker.network.deadlines import GRAIN_MS, Deadlines
from tests.kit.clock import Clock
from tests.kit.waits import PATIENCE_S


class Waiter(Guard):
    """A waiting request, and the connection that it waits for."""

    def __init__(self, clock: Clock, then: Callable[[], object] = lambda: None) -> None:
        self.clock, self.then = clock, then
        self.expired_at: list[float] = []
        self.crashes: list[str] = []

    @property
    def connection(self) -> Guard:
        return self

    def crash(self, what: str) -> None:
        self.crashes.append(what)

    def expired(self) -> None:
        self.expired_at.append(self.clock.time())
        self.then()


def deadlines() -> tuple[Clock, Deadlines]:
    clock = Clock()
    loop: Any = clock
    return clock, Deadlines(loop)


@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans(), st.integers(0, 50))))
def test_each_waiter_expires_once_in_time_unless_removed(steps: list[tuple[int, bool, int]]) -> None:
    """Never early, at most one grain late, whatever is added and removed around it."""
    clock, subject = deadlines()
    begun = []
    for wait_ms, removed, pause_ms in steps:
        waiter = Waiter(clock)
        ticket = subject.add(waiter, wait_ms)
        begun.append((waiter, clock.now, wait_ms, removed))
        if removed:
            subject.remove(waiter, ticket)
        clock.advance(pause_ms / 1000)
    clock.advance(10)
    for waiter, began_at, wait_ms, removed in begun:
        assert len(waiter.expired_at) == (0 if removed else 1)
        for at in waiter.expired_at:
            late_ms = (at - began_at) * 1000 - wait_ms
            assert -1e-6 <= late_ms <= GRAIN_MS + 1e-6
    assert len(subject) == 0
    assert not clock.timers


def test_an_expiring_deadline_may_remove_another_of_the_same_moment() -> None:
    """The removed deadline does not expire any more."""
    clock, subject = deadlines()
    second = Waiter(clock)
    first = Waiter(clock, lambda: subject.remove(second, ticket))
    subject.add(first, 100)
    ticket = subject.add(second, 100)
    clock.advance(1)
    assert first.expired_at and not second.expired_at


def test_an_expired_deadline_may_be_set_again() -> None:
    """With no wait at all, it still is not an endless loop."""
    clock, subject = deadlines()
    waiter = Waiter(clock)
    waiter.then = lambda: subject.add(waiter, 0) if len(waiter.expired_at) < 3 else None
    subject.add(waiter, 0)
    clock.advance(1)
    assert len(waiter.expired_at) == 3


def test_a_failing_deadline_closes_its_connection_and_the_others_still_expire() -> None:
    """The loop's handler would end the node, and the others of that moment would wait for ever."""
    clock, subject = deadlines()
    failing, other = Waiter(clock, lambda: 1 / 0), Waiter(clock)
    subject.add(failing, 100)
    subject.add(other, 100)
    clock.advance(1)
    assert (len(failing.crashes), len(other.expired_at)) == (1, 1)


def test_removed_waiters_leave_no_memory() -> None:
    """A client that sends ever longer timeouts must not grow the broker."""
    clock, subject = deadlines()
    for wait_ms in range(0, 1_000_000, 20):
        waiter = Waiter(clock)
        subject.remove(waiter, subject.add(waiter, wait_ms))
    assert len(subject) == 0
    assert len(subject._order) < 200
    assert len(subject._buckets) == 0
    assert len([each for each in clock.timers if not each.cancelled]) <= 1


async def test_a_real_loop_drives_it() -> None:
    """The same on asyncio's own timers."""
    loop = asyncio.get_running_loop()
    subject = Deadlines(loop)
    done = loop.create_future()
    clock: Any = loop

    began_at = loop.time()
    subject.add(Waiter(clock, lambda: done.set_result(clock.time())), 15)
    assert await asyncio.wait_for(done, PATIENCE_S) - began_at >= 0.0145
