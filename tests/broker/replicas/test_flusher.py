"""Group commit: rounds, durability before counting, and what a failed sync does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raftlog.base.env import Env, ThreadOffload
from raftlog.broker.replicas.flusher import Flusher
from tests.kit.waits import PATIENCE_S


class FakeTicket:
    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.directories = log.new_directories
        self.end_offset = log.log_end_offset

    def sync_files(self) -> None:
        self.log.ran_in.append(threading.current_thread())
        self.log.sync()

    def sync_directory(self, path: str) -> None:
        self.log.synced_directories.append(path)


class FakeLog:
    """A log whose sync does what the test says."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed_end_offset = 0
        self.new_directories: tuple[str, ...] = ()
        self.ran_in: list[threading.Thread] = []
        self.synced_directories: list[str] = []
        self.sync: Callable[[], None] = lambda: None

    def begin_flush(self) -> FakeTicket | None:
        return FakeTicket(self) if self.flushed_end_offset < self.log_end_offset else None

    def complete_flush(self, ticket: FakeTicket) -> None:
        self.flushed_end_offset = ticket.end_offset


class FakePartition:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.noted: list[int] = []

    def note_flushed(self, end_offset: int) -> None:
        self.noted.append(end_offset)


def waited(release: threading.Event) -> None:
    assert release.wait(PATIENCE_S)


def new_flusher() -> Any:
    return Flusher(Env(offload=ThreadOffload(2)), asyncio.get_running_loop())


class FakeClock:
    """Time passes only while something syncs."""

    def __init__(self, flusher: Any) -> None:
        self.now = 1.0
        flusher._time = lambda: self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def dirty(flusher: Any, partition: FakePartition, records: int = 1) -> None:
    partition.log.log_end_offset += records
    flusher.mark(partition)


async def test_what_became_dirty_in_one_loop_iteration_is_one_round() -> None:
    """Group commit: each dirty log once a round."""
    flusher, partitions = new_flusher(), [FakePartition() for _ in range(3)]
    for partition in partitions:
        dirty(flusher, partition)
        dirty(flusher, partition)
    await flusher.flushed()
    assert (flusher.rounds, flusher.syncs) == (1, 3)
    assert [partition.noted for partition in partitions] == [[2], [2], [2]]
    assert flusher.flushed() is None


async def test_a_leaders_round_lets_its_followers_be_sent_to_first() -> None:
    """Their fetches are answered in one turn of the loop and sent at its end; a sync before would hold them up."""
    flusher, partition = new_flusher(), FakePartition()
    dirty(flusher, partition)
    await asyncio.sleep(0)
    assert partition.noted == []
    await asyncio.sleep(0)
    assert partition.noted == [1]


async def test_rounds_leave_the_loop_after_slow_ones_and_are_tried_there_again() -> None:
    """performance.md 4: on the loop while recent ones were fast, in threads otherwise."""
    flusher, partition = new_flusher(), FakePartition()
    clock = FakeClock(flusher)

    async def sync(seconds: float) -> bool:
        partition.log.sync = partial(clock.advance, seconds)
        dirty(flusher, partition)
        await flusher.drain()
        return partition.log.ran_in[-1] is threading.main_thread()

    assert await sync(0.0)
    assert await sync(0.02)  # stays away for a second
    assert not await sync(0.0)
    clock.advance(1.01)
    assert await sync(0.0)
    assert await sync(0.02)
    assert not await sync(1.0)  # a thread found it slow as well: fifty seconds
    clock.advance(49.0)
    assert not await sync(0.0)
    clock.advance(1.01)
    assert await sync(0.0)


async def test_one_hiccup_keeps_no_round_off_the_loop() -> None:
    """A fast disk takes a few milliseconds now and then."""
    flusher, partition = new_flusher(), FakePartition()
    clock = FakeClock(flusher)
    for seconds in (0.0001, 0.0001, 0.004, 0.0001):
        partition.log.sync = partial(clock.advance, seconds)
        dirty(flusher, partition)
        await flusher.drain()
    assert {*partition.log.ran_in} == {threading.main_thread()}


async def test_a_slow_sync_sends_the_rest_of_its_round_off_the_loop() -> None:
    """A disk that turns slow holds the loop for one sync, not for one of each partition."""
    flusher, partitions = new_flusher(), [FakePartition() for _ in range(5)]
    clock = FakeClock(flusher)
    for partition in partitions:
        partition.log.sync = partial(clock.advance, 0.005)
        dirty(flusher, partition)
    ended = flusher.flush_now()
    assert ended is not None
    assert [len(partition.noted) for partition in partitions] == [0] * 5
    await ended
    ran_on_loop = [partition.log.ran_in[0] is threading.main_thread() for partition in partitions]
    assert ran_on_loop == [True, False, False, False, False]
    assert [partition.noted for partition in partitions] == [[1]] * 5


async def test_new_folders_are_synced_off_the_loop() -> None:
    """The first flush of a partition syncs three names as well; fifty of them would hold up the loop."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.new_directories = ("/data/t-0", "/data")
    dirty(flusher, partition)
    await flusher.drain()
    assert partition.log.ran_in[0] is not threading.main_thread()


async def test_who_waits_for_a_log_that_is_let_go_is_not_left_waiting() -> None:
    """A replica may be removed between the append and the round."""
    flusher, partition = new_flusher(), FakePartition()
    flusher._off_loop_until = float("inf")
    dirty(flusher, partition)
    waiting = flusher.flush_now()
    flusher.release(partition, lambda: None)
    await waiting
    assert partition.noted == []


async def test_a_fast_disk_is_synced_within_the_call() -> None:
    """A follower's next fetch need not wait for another loop iteration."""
    flusher, partition = new_flusher(), FakePartition()
    dirty(flusher, partition)
    assert flusher.flush_now() is None
    assert partition.noted == [1]
    flusher._off_loop_until = float("inf")
    dirty(flusher, partition)
    waiting = flusher.flush_now()
    assert partition.noted == [1]
    await waiting
    assert partition.noted == [1, 2]


async def test_what_became_dirty_during_a_round_waits_for_the_next() -> None:
    """A sync that began before the append proves nothing about it."""
    flusher, partition = new_flusher(), FakePartition()
    flusher._off_loop_until = float("inf")
    release = threading.Event()
    partition.log.sync = lambda: waited(release)
    dirty(flusher, partition)
    first = flusher.flush_now()
    await asyncio.sleep(0)
    dirty(flusher, partition)
    second = flusher.flushed()
    assert partition.noted == []
    release.set()
    await first
    assert partition.noted == [1]
    await second
    assert partition.noted == [1, 2]


@pytest.mark.parametrize("off_loop_until", [0.0, float("inf")], ids=["on the loop", "in threads"])
@pytest.mark.parametrize("error", [OSError(5, "EIO"), AssertionError("our own fault")], ids=["disk", "bug"])
async def test_a_failed_sync_is_never_repeated(error: Exception, off_loop_until: float) -> None:
    """H17: the kernel may have dropped the pages; the directory goes offline and nobody is left waiting."""
    flusher, partition = new_flusher(), FakePartition()
    flusher._off_loop_until = off_loop_until
    failures: list[OSError] = []
    flusher.failed = failures.append

    def fail() -> None:
        raise error

    partition.log.sync = fail
    dirty(flusher, partition)
    async with asyncio.timeout(PATIENCE_S):
        await flusher.flushed()
    assert len(failures) == 1
    partition.log.sync = lambda: None
    dirty(flusher, partition)
    assert flusher.flushed() is None
    await asyncio.sleep(0)
    assert partition.noted == []
    assert len(partition.log.ran_in) == 1


async def test_a_removed_partition_is_let_go_only_between_rounds() -> None:
    """Its files must not be renamed under a sync."""
    flusher, partition = new_flusher(), FakePartition()
    flusher._off_loop_until = float("inf")
    release = threading.Event()
    partition.log.sync = lambda: waited(release)
    dirty(flusher, partition)
    waiting = flusher.flush_now()
    await asyncio.sleep(0)
    gone: list[str] = []
    flusher.release(partition, lambda: gone.append("gone"))
    assert gone == []
    release.set()
    await waiting
    await flusher.drain()
    assert gone == ["gone"]
    flusher.release(partition, lambda: gone.append("again"))
    assert gone == ["gone", "again"]


async def test_a_folder_that_new_partitions_share_is_synced_once_a_round() -> None:
    """After the files of all: thousands of new partitions lie in one log directory."""
    flusher, partitions = new_flusher(), [FakePartition() for _ in range(40)]
    order: list[str] = []
    for number, partition in enumerate(partitions):
        partition.log.sync = lambda: order.append("file")
        partition.log.new_directories = (f"/data/t-{number}", "/data")
        partition.log.synced_directories = order
        dirty(flusher, partition)
    await flusher.flushed()
    assert order.count("/data") <= 4, "one in each thread"
    assert {*order} == {"file", "/data", *(f"/data/t-{number}" for number in range(40))}
