"""Connections without progress are closed, after a number of checks rather than seconds; those with some are not."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from raftlog.broker.network.idle_connections import CHECK_INTERVAL_S, FAREWELL_CHECKS
from raftlog.broker.network.progress import HOLDING_UP, PRESSED, USUAL
from raftlog.broker.network.request_memory import WINDOW_BYTES
from tests.broker.fakes import FakeClient, FakePartition, FakePartitionServer, batch, fetch, produce
from tests.kit.clock import Clock

PATIENCE = int(USUAL.patience_s) + 1
"""Looks after which whatever stands still is freed."""

MIB = 1 << 20
LARGE = 10_000_000


def look(fake: FakePartitionServer, times: int = 1) -> None:
    for _ in range(times):
        fake.server.watch._check_all()


def begin_frame(pipe: FakeClient, size: int = LARGE) -> None:
    pipe.feed(size.to_bytes(4, "big") + b"\0")


def closed_for(fake: FakePartitionServer) -> dict[str, int]:
    return dict(fake.server.counters.closed_by_broker)


def whole_fetch(correlation_id: int = 1) -> bytes:
    return fetch(correlation_id, (0, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30)


def with_records(*sizes: int, **config: int) -> FakePartitionServer:
    """A world with such batches in its first partition."""
    fake = FakePartitionServer(**config)
    for size in sizes:
        fake.partition.append_produced(memoryview(batch(1, size)), acks=1, now_ms=0)
    return fake


async def test_a_frame_that_dribbles_is_given_up() -> None:
    """One byte in ten minutes held a hundred megabytes of buffer."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    begin_frame(pipe)
    look(fake, PATIENCE - 1)
    assert not pipe.transport.closed
    pipe.feed(b"\0")
    look(fake, 2)
    assert pipe.transport.closed
    assert closed_for(fake) == {"slow_sender_closed": 1}


async def test_a_large_frame_from_a_slow_but_honest_client_may_take_hours() -> None:
    """The rule is a rate, not a time."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    begin_frame(pipe)
    for _ in range(20 * PATIENCE):
        pipe.feed(bytes(USUAL.bytes_per_second))
        look(fake)
    assert not pipe.transport.closed


async def test_each_frame_has_its_own_time() -> None:
    """Small requests that are always just under way are no dribble."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    frame = produce(1, (0, batch()))
    pipe.feed(frame[:10])
    for _ in range(3):
        look(fake, PATIENCE - 2)
        pipe.feed(frame[10:] + frame[:10])
    assert not pipe.transport.closed


async def test_a_connection_that_waits_for_a_grant_is_not_blamed_and_has_its_time_after() -> None:
    """It is not read: it cannot send."""
    fake = FakePartitionServer(queued_max_request_bytes=1_000_000)
    holder, waiting = fake.connect(), fake.connect()
    holder.feed((LARGE).to_bytes(4, "big") + bytes(900_000))
    waiting.feed((2 * LARGE).to_bytes(4, "big") + bytes(1_000))
    assert not waiting.transport.reading
    holder.transport.reading = True
    look(fake, int(HOLDING_UP.patience_s))
    assert not waiting.transport.closed
    look(fake)
    assert holder.transport.closed, "it has the grant, and sends nothing"
    holder.connection.connection_lost(None)
    assert waiting.transport.reading and not waiting.transport.closed
    look(fake, int(HOLDING_UP.patience_s))
    assert not waiting.transport.closed


async def test_low_memory_shortens_the_time_allowed_for_a_frame() -> None:
    """A slow frame may delay others only for seconds."""
    fake = FakePartitionServer(queued_max_request_bytes=100_000)
    quick, slow = fake.connect(), fake.connect()
    for pipe in (quick, slow):
        pipe.feed(LARGE.to_bytes(4, "big") + bytes(45_000))
    quick.feed(b"\0")
    assert [each.transport.reading for each in (quick, slow)] == [False, True], "the second has the grant"
    for _ in range(int(HOLDING_UP.patience_s) + 1):
        slow.feed(bytes(USUAL.bytes_per_second))
        look(fake)
    assert slow.transport.closed
    assert quick.transport.reading
    for _ in range(10):
        quick.feed(bytes(PRESSED.bytes_per_second))
        look(fake)
    assert not quick.transport.closed


async def test_a_silent_frame_under_a_grant_is_given_up_before_anyone_waits() -> None:
    """Its bytes are what memory is short of. The attack `a-byte-at-a-time` loses 54 connections so, and else 6."""
    fake = FakePartitionServer(queued_max_request_bytes=100_000)
    holder = fake.connect()
    holder.feed(LARGE.to_bytes(4, "big") + bytes(80_000))
    assert fake.server.requests.is_short and holder.transport.reading, "it has the grant"
    look(fake, int(PRESSED.patience_s))
    assert not holder.transport.closed
    look(fake)
    assert holder.transport.closed


async def test_a_small_request_waits_for_no_large_one_that_comes_slowly() -> None:
    """Eight clients with frames of 100 MB, one at the slowest rate allowed, shut all others out for an hour."""
    fake = FakePartitionServer(queued_max_request_bytes=4_000_000)
    holders = [fake.connect() for _ in range(8)]
    for holder in holders:
        holder.feed((100_000_000).to_bytes(4, "big") + bytes(500_000))
    assert fake.server.requests.is_short
    small = fake.connect()
    for number in range(1, 200):
        frame = produce(number, (0, batch(1, 40_000)))
        small.feed(frame)
        small.feed(small.unread)
        assert small.correlation_ids()[-1] == number


async def test_a_large_frame_for_which_others_wait_has_to_come_fast() -> None:
    """Four clients with frames of 100 MB at the slowest rate kept every batch of more than 64 KiB out for an hour."""
    fake = FakePartitionServer(queued_max_request_bytes=4_000_000)
    holders = [fake.connect() for _ in range(8)]
    for holder in holders:
        holder.feed((100_000_000).to_bytes(4, "big") + bytes(450_000))
    honest = fake.connect()
    frame = produce(1, (0, batch(1, 900_000)))
    honest.feed(frame)
    assert not honest.transport.reading
    for _ in range(int(HOLDING_UP.patience_s) + 1):
        assert honest.correlation_ids() == []
        for holder in holders:
            if holder.transport.reading and not holder.transport.closed:
                holder.feed(bytes(2 * PRESSED.bytes_per_second))
        look(fake)
    assert [each.transport.closed for each in holders].count(True) == 1
    assert closed_for(fake) == {"slow_sender_closed": 1}
    next(each for each in holders if each.transport.closed).connection.connection_lost(None)
    assert honest.transport.reading
    honest.feed(honest.unread)
    assert honest.correlation_ids() == [1]


async def test_a_grant_for_which_others_wait_has_to_come_fast_also_when_memory_is_free_again() -> None:
    """A promise to it kept them waiting for hours, though hardly anything was used."""
    fake = FakePartitionServer(queued_max_request_bytes=4_000_000)
    fake.server.requests.acquire(3_500_000)
    holder, honest = fake.connect(), fake.connect()
    holder.feed((100_000_000).to_bytes(4, "big") + bytes(1_000))
    honest.feed(produce(1, (0, batch(1, 900_000)))[:1_000])
    assert (holder.transport.reading, honest.transport.reading) == (True, False)
    fake.server.requests.release(3_500_000)
    assert not fake.server.requests.is_short
    for _ in range(int(HOLDING_UP.patience_s) + 1):
        if honest.transport.reading:
            break
        holder.feed(bytes(USUAL.bytes_per_second))
        look(fake)
    holder.connection.connection_lost(None)
    assert closed_for(fake) == {"slow_sender_closed": 1}
    assert honest.transport.reading


async def test_a_client_that_never_reads_is_freed() -> None:
    """`transport.close()` alone would wait for it for ever."""
    fake = with_records(3 * MIB)
    pipe = fake.connect()
    pipe.transport.room = 1000
    pipe.send(whole_fetch())
    assert fake.server.memory.answers.used > 2 * MIB
    look(fake, PATIENCE + 1)
    assert pipe.transport.closed
    assert closed_for(fake) == {"slow_reader_closed": 1}
    assert fake.server.memory.answers.used == 0


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    """Bytes against time; a client that reads in bursts may pause between them."""
    fake = with_records(MIB)
    pipe = fake.connect()
    pipe.transport.room = 1000
    pipe.send(whole_fetch())
    while pipe.transport.unsent:
        look(fake, PATIENCE // 2)
        pipe.transport.drain(PATIENCE // 2 * USUAL.bytes_per_second)
        await asyncio.sleep(0)
    assert pipe.correlation_ids() == [1]
    assert not pipe.transport.closed


async def test_a_closed_connection_does_not_wait_for_a_reader_for_ever() -> None:
    """The server closes it, and its client reads no bytes: unsent bytes are dropped after a grace period."""
    fake = with_records(3 * MIB)
    pipe = fake.connect()
    pipe.transport.room = 1000
    pipe.send(whole_fetch())
    pipe.connection.close("no_longer_wanted")
    pipe.transport.closed = False  # close() waits
    look(fake, FAREWELL_CHECKS)
    assert pipe.transport.closed
    assert fake.server.memory.answers.used == 0


async def test_a_transport_that_ends_without_telling_leaves_nothing_behind() -> None:
    """uvloop may never call connection_lost."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    pipe.connection.abort()
    look(fake, 3)
    assert not fake.server.connections
    assert not fake.partition.parked
    assert len(fake.server.watch) == 0


async def test_answers_that_stand_still_make_room_when_half_the_memory_is_used() -> None:
    """The largest first, and no more of them than it takes; clients that read keep their connections."""
    fake = with_records(6 * MIB, raftlog_answers_max_bytes=24 * MIB)
    large, small, reading = fake.connect(), fake.connect(), fake.connect()
    for pipe in (large, reading):
        pipe.transport.room = 1000
        pipe.send(whole_fetch())
    fake.partition.batches[0] = (0, 1, batch(1, 2 * MIB))
    small.transport.room = 1000
    small.send(whole_fetch())
    with capture_logs() as logs:
        for _ in range(int(PRESSED.patience_s) + 1):
            reading.transport.drain(PRESSED.bytes_per_second)
            look(fake)
    assert [each.transport.closed for each in (large, small, reading)] == [True, False, False]
    assert [line["event"] for line in logs] == ["memory_reclaimed"]


async def test_answers_held_back_by_another_of_the_same_connection_count_as_well() -> None:
    """A produce request that never commits must not pin the fetches behind it, whatever its client reads."""
    stuck, full = FakePartition(index=0), FakePartition(index=1)
    stuck.auto_commit = False
    fake = FakePartitionServer(stuck, full, raftlog_answers_max_bytes=8 * MIB)
    full.append_produced(memoryview(batch(1, 6 * MIB)), acks=1, now_ms=0)
    pipe = fake.connect()
    pipe.send(
        produce(1, (0, batch()), acks=-1), fetch(2, (1, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30)
    )
    assert fake.server.memory.answers.used > 6 * MIB
    look(fake, int(PRESSED.patience_s) + 1)
    assert pipe.transport.closed
    assert fake.server.memory.answers.used == 0


async def test_no_check_runs_while_no_connection_waits() -> None:
    """An idle node sleeps."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch())))
    assert len(fake.server.watch) == 0
    assert fake.server.watch._timer is None
    begin_frame(pipe)
    assert fake.server.watch._timer is not None
    pipe.feed(bytes(WINDOW_BYTES))
    pipe.connection.connection_lost(None)
    look(fake)
    assert len(fake.server.watch) == 0


@pytest.mark.parametrize("method", ["check_progress", "close_now"])
async def test_a_look_that_fails_costs_that_connection_only(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are looked at all the same."""
    fake = with_records(6 * MIB, raftlog_answers_max_bytes=8 * MIB)
    failing, other = fake.connect(), fake.connect()
    failing.transport.room = 1000
    failing.send(whole_fetch())
    begin_frame(other)
    monkeypatch.setattr(type(failing.connection), method, _failing_for(failing, method))
    look(fake, PATIENCE + 1)
    assert failing.transport.closed
    assert closed_for(fake)["request_crashed"] >= 1
    if method == "check_progress":
        assert other.transport.closed


def _failing_for(pipe: FakeClient, method: str) -> object:
    sound = getattr(type(pipe.connection), method)

    def fail(connection: object, *args: object, **facts: object) -> None:
        if connection is pipe.connection:
            raise ZeroDivisionError
        sound(connection, *args, **facts)

    return fail


async def test_closing_a_connection_during_a_check_starts_no_second_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two clocks would count each second twice, so that honest slow clients lose half of their patience."""
    fake = FakePartitionServer()
    clock = Clock()
    monkeypatch.setattr(fake.server.watch, "_loop", clock)
    first, second = fake.connect(), fake.connect()
    begin_frame(first)
    for _ in range(PATIENCE // 2):
        clock.advance(CHECK_INTERVAL_S)
    begin_frame(second)
    for _ in range(PATIENCE // 2 + 1):
        clock.advance(CHECK_INTERVAL_S)
    assert first.transport.closed and not second.transport.closed
    assert len(clock.timers) == 1
