"""Turns of the event loop that a request holds for too long are counted by API, and logged now and then."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

import pytest

from raftlog.broker.dispatch import dispatch
from raftlog.broker.long_work.long_turns import LOG_EVERY_S, LONG_TURN_S, LongTurns
from raftlog.broker.network.server import BrokerServer
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from tests.broker.fakes import FakePartitionServer, produce, request
from tests.kit.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counts() -> defaultdict[int, int]:
    return defaultdict(int)


async def test_each_step_of_a_coroutine_is_a_turn_of_its_own(
    clock: Clock, counts: defaultdict[int, int]
) -> None:
    """Time in which it waits is not counted, however long that takes; its work in between is."""

    async def work(*seconds: float) -> str:
        for each in seconds:
            clock.advance(each)
            await asyncio.sleep(0)
            clock.advance(0.001)
            await asyncio.gather(others())
        return "done"

    async def others() -> None:
        clock.advance(10)

    turns = LongTurns(clock, counts)
    short, long = LONG_TURN_S * 0.9, LONG_TURN_S * 1.1
    assert await turns.timed(3, work(short, short, short)) == "done"
    assert not counts
    assert await turns.timed(3, work(short, long, short, long)) == "done"
    assert counts == {3: 2}


async def test_what_work_raises_and_that_it_is_cancelled_passes_through(
    clock: Clock, counts: defaultdict[int, int]
) -> None:
    """Timing is invisible to the awaiting and the awaited code."""
    seen: list[BaseException] = []

    async def fail() -> None:
        clock.advance(1)
        raise LookupError

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    turns = LongTurns(clock, counts)
    with pytest.raises(LookupError):
        await turns.timed(1, fail())
    assert counts == {1: 1}
    timed: Awaitable[Any] = turns.timed(1, wait())
    waiting = asyncio.ensure_future(timed)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(seen) == 1


def test_the_log_names_an_api_once_in_a_while(
    clock: Clock, counts: defaultdict[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """All are counted; a client that brings about a thousand of them does not fill the log."""
    turns = LongTurns(clock, counts)
    for _ in range(1_000):
        turns.note(ApiKey.METADATA, 1.0)
    turns.note(ApiKey.FETCH, 1.0)
    clock.advance(LOG_EVERY_S)
    turns.note(ApiKey.METADATA, 1.0)
    assert counts == {ApiKey.METADATA: 1_001, ApiKey.FETCH: 1}
    assert capsys.readouterr().out.count("request_blocked_event_loop") == 3


async def test_requests_that_hold_the_loop_are_counted_by_api(clock: Clock) -> None:
    """In the turn of its arrival, on the hot path and off it, and in the turns of its task."""
    fake = FakePartitionServer()
    fake.server = BrokerServer(fake.broker, dispatch)
    fake.server.stopwatch = clock
    fake.server.long_turns = LongTurns(clock, fake.server.counters.long_turns)
    hot = produce(1, (0, None))
    at_once = request(60, 0, 2, request_builders(60, 0).DescribeClusterRequest())
    later = request(3, 9, 3, request_builders(3, 9).MetadataRequest(topics=None))
    pipe = fake.connect()

    async def ask() -> None:
        for frame in (hot, at_once, later):
            pipe.send(frame)
            await pipe.wait()
            pipe.frames()

    await ask()
    assert not fake.server.counters.long_turns

    def slow() -> None:
        clock.advance(2 * LONG_TURN_S)

    fake.broker.env.wall_clock_ms = lambda: slow() or 1000  # type: ignore[func-returns-value]
    image = fake.broker.image()
    fake.broker.image = lambda: slow() or image  # type: ignore[func-returns-value]
    await ask()
    assert fake.server.counters.long_turns == {0: 1, 60: 1, 3: 1}
