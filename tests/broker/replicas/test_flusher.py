"""Group commit: rounds, durability before counting, and what a failed sync does."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.disk import SyncNotBegun
from raftlog.base.env import Env, ThreadOffload
from raftlog.base.kernel_syncs import SyncCallback
from raftlog.broker.replicas import flusher as flushing
from raftlog.broker.replicas.flusher import Flusher
from tests.kit.waits import PATIENCE_S


class FakeFile:
    """A file; the kernel takes its syncs if `kernel` of its log is set, and ends them when the test says."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log

    def submit_sync(self, done: SyncCallback) -> bool:
        self.log.submit()
        if self.log.kernel is None or len(self.log.kernel) >= self.log.kernel_room:
            return False
        self.log.kernel.append(done)
        return True


class FakeTicket:
    paths = ()

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.files = [FakeFile(log) for _ in range(log.files)]
        self.directories = log.new_directories
        self.end_offset = log.log_end_offset

    def sync_files(self) -> None:
        self.log.ran_in.append(threading.current_thread())
        self.log.sync()

    def sync_directory(self, path: str) -> None:
        self.log.synced_directories.append(path)


class FakeLog:
    """A log with a scripted sync."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed_end_offset = 0
        self.new_directories: tuple[str, ...] = ()
        self.ran_in: list[threading.Thread] = []
        self.synced_directories: list[str] = []
        self.sync: Callable[[], None] = lambda: None
        self.submit: Callable[[], None] = lambda: None
        self.files = 1
        self.kernel: list[SyncCallback] | None = None
        """Syncs that the kernel has under way; None: it takes none."""
        self.kernel_room = 1000

    def begin_flush(self) -> FakeTicket | None:
        return FakeTicket(self) if self.flushed_end_offset < self.log_end_offset else None

    def complete_flush(self, ticket: FakeTicket) -> int:
        self.flushed_end_offset = ticket.end_offset
        return self.flushed_end_offset


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
    partition.log.kernel = kernel = []
    dirty(flusher, partition)
    await asyncio.sleep(0)
    assert kernel == []
    await asyncio.sleep(0)
    assert len(kernel) == 1


def flush_now(flusher: Flusher) -> asyncio.Future[None] | None:
    """Return `Flusher.flush_now`, which reports by a call, as a future."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return future if flusher.flush_now(lambda: future.set_result(None)) else None


async def test_waiters_are_notified_at_the_end_of_a_flush_but_later_if_it_failed() -> None:
    """A follower's next fetch leaves within the call; after a failure the partitions have to be offline first."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.kernel = kernel = []
    told: list[object] = []
    flusher.failed = lambda _error: told.append("failed")
    dirty(flusher, partition)
    assert flusher.flush_now(lambda: told.append(tuple(partition.noted)))
    kernel[0](None)
    assert told == [(1,)]
    dirty(flusher, partition)
    assert flusher.flush_now(lambda: told.append("this round"))
    dirty(flusher, partition)
    assert flusher.flush_now(lambda: told.append("the next"))
    kernel[1](OSError(errno.EIO, "input/output error"))
    assert told == [(1,), "failed"]
    await asyncio.sleep(0)
    assert set(told[2:]) == {"the next", "this round"}


async def test_a_round_that_need_not_wait_leaves_no_turn_behind() -> None:
    """The turns of a leader's round would wake the loop needlessly, or begin the next round too soon."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.kernel = kernel = []
    dirty(flusher, partition)
    await asyncio.sleep(0)
    assert flusher.flush_now(lambda: None)
    kernel.pop()(None)
    dirty(flusher, partition)
    await asyncio.sleep(0)
    assert kernel == [], "its own turns, not those of the round before"
    await asyncio.sleep(0)
    assert len(kernel) == 1


async def test_a_round_ends_when_the_kernel_has_synced_all_its_files() -> None:
    """No offset counts before; a rolled segment makes two files of one log."""
    flusher, partitions = new_flusher(), [FakePartition(), FakePartition()]
    kernel: list[SyncCallback] = []
    for partition in partitions:
        partition.log.kernel, partition.log.files = kernel, 2
        dirty(flusher, partition)
    ended = flush_now(flusher)
    assert len(kernel) == 4
    for done in kernel[:3]:
        done(None)
    assert [partition.noted for partition in partitions] == [[], []]
    kernel[3](None)
    await ended
    assert [partition.noted for partition in partitions] == [[1], [1]]
    assert not any(partition.log.ran_in for partition in partitions)


async def test_a_log_that_the_kernel_does_not_take_whole_is_synced_in_a_thread() -> None:
    """The round ends after both: a thread's sync proves no sync of the kernel."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.kernel, partition.log.files = (taken := []), 2
    partition.log.kernel_room = 1
    synced = asyncio.Event()
    loop = asyncio.get_running_loop()
    partition.log.sync = lambda: loop.call_soon_threadsafe(synced.set) and None
    dirty(flusher, partition)
    ended = flush_now(flusher)
    async with asyncio.timeout(PATIENCE_S):
        await synced.wait()
        assert partition.noted == []
        taken[0](None)
        await ended
    assert partition.noted == [1]


async def test_a_file_that_cannot_be_submitted_is_synced_in_a_thread() -> None:
    """A file that gave up its descriptor may fail to open again: without it no log of the round counts as synced."""
    flusher, sound, closed = new_flusher(), FakePartition(), FakePartition()
    sound.log.kernel = kernel = []
    failures: list[OSError] = []
    flusher.failed = failures.append

    def refuse() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    closed.log.submit = closed.log.sync = refuse
    dirty(flusher, sound)
    dirty(flusher, closed)
    ended = flush_now(flusher)
    kernel[0](None)
    async with asyncio.timeout(PATIENCE_S):
        await ended
    assert [each.errno for each in failures] == [errno.EMFILE]
    assert (sound.noted, closed.noted) == ([], [])


async def test_a_round_that_failed_to_begin_counts_nothing() -> None:
    """The kernel syncs the first of its two logs, and a thread would sync the second: it never does."""
    flusher, by_kernel, by_thread, broken = new_flusher(), FakePartition(), FakePartition(), FakePartition()
    by_kernel.log.kernel = kernel = []
    broken.log.begin_flush = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    for partition in (by_kernel, by_thread, broken):
        dirty(flusher, partition)
    with pytest.raises(ZeroDivisionError):
        flusher.flush_now(lambda: None)
    kernel[0](None)
    assert (by_thread.log.ran_in, by_thread.noted, broken.noted) == ([], [], [])


async def test_new_folders_are_synced_off_the_loop() -> None:
    """The first flush of a partition syncs three names as well; fifty of them would hold up the loop."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.new_directories = ("/data/t-0", "/data")
    dirty(flusher, partition)
    await flusher.drain()
    assert partition.log.ran_in[0] is not threading.main_thread()


async def test_a_waiter_for_the_flush_of_a_removed_log_is_released() -> None:
    """A replica may be removed between the append and the round."""
    flusher, partition = new_flusher(), FakePartition()
    dirty(flusher, partition)
    waiting = flusher.flushed()
    flusher.release(partition, lambda: None)
    await waiting
    assert partition.noted == []


async def test_a_followers_round_begins_within_the_call() -> None:
    """Its next fetch, which others wait for, need not wait for another loop iteration."""
    flusher, partition = new_flusher(), FakePartition()
    partition.log.kernel = []
    assert flush_now(flusher) is None
    dirty(flusher, partition)
    waiting = flush_now(flusher)
    assert len(partition.log.kernel) == 1
    dirty(flusher, partition)
    after = flush_now(flusher)
    assert len(partition.log.kernel) == 1, "one round at a time"
    partition.log.kernel[0](None)
    await waiting
    assert partition.noted == [1]
    await asyncio.sleep(0)
    partition.log.kernel[1](None)
    await after
    assert partition.noted == [1, 2]


async def test_what_became_dirty_during_a_round_waits_for_the_next() -> None:
    """A sync that began before the append does not cover it."""
    flusher, partition = new_flusher(), FakePartition()
    release = threading.Event()
    partition.log.sync = lambda: waited(release)
    dirty(flusher, partition)
    first = flush_now(flusher)
    await asyncio.sleep(0)
    dirty(flusher, partition)
    second = flusher.flushed()
    assert partition.noted == []
    release.set()
    await first
    assert partition.noted == [1]
    await second
    assert partition.noted == [1, 2]


@pytest.mark.parametrize("error", [OSError(5, "EIO"), AssertionError("our own fault")], ids=["disk", "bug"])
async def test_a_failed_sync_is_never_repeated(error: Exception) -> None:
    """The kernel may have dropped the pages; the directory goes offline and every waiter gets an error."""
    flusher, partition = new_flusher(), FakePartition()
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


async def test_one_failed_sync_of_the_kernel_takes_the_directory_offline() -> None:
    """Once, when the round has ended: whatever the others of the round said."""
    flusher, partitions = new_flusher(), [FakePartition() for _ in range(3)]
    failures: list[OSError] = []
    flusher.failed = failures.append
    kernel: list[SyncCallback] = []
    for partition in partitions:
        partition.log.kernel = kernel
        dirty(flusher, partition)
    waiting = flush_now(flusher)
    first = OSError(5, "EIO")
    for done, error in zip(kernel, (None, first, OSError(5, "again")), strict=True):
        assert failures == []
        done(error)
    await waiting
    assert failures == [first]
    assert [partition.noted for partition in partitions] == [[], [], []]


async def test_a_removed_partition_is_let_go_only_between_rounds() -> None:
    """Its files must not be renamed under a sync."""
    flusher, partition = new_flusher(), FakePartition()
    release = threading.Event()
    partition.log.sync = lambda: waited(release)
    dirty(flusher, partition)
    waiting = flush_now(flusher)
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


class Unopened:
    """A sync for which there is no descriptor so many times, and which then fails with `error` or succeeds."""

    def __init__(self, times: int, error: OSError | None = None) -> None:
        self.times, self.error = times, error

    def __call__(self) -> None:
        if self.times:
            self.times -= 1
            raise SyncNotBegun(errno.EMFILE, "Too many open files", "/data/t-0")
        if self.error is not None:
            raise self.error


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses take no time."""
    monkeypatch.setattr(flushing, "FIRST_PAUSE_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_sync_that_was_not_begun_is_tried_again() -> None:
    """EMFILE is no failure of the disk: the round goes on later, with one line, and no log counts before."""
    flusher, partition = new_flusher(), FakePartition()
    failures: list[OSError] = []
    flusher.failed = failures.append
    partition.log.sync = Unopened(3)
    with capture_logs() as lines:
        dirty(flusher, partition)
        async with asyncio.timeout(PATIENCE_S):
            await flusher.flushed()
    assert (failures, partition.noted, len(partition.log.ran_in)) == ([], [1], 4)
    assert [each["event"] for each in lines] == ["flush_stalled", "flush_resumed"]
    assert "/data/t-0" in lines[0]["reason"] and "ulimit" in lines[0]["advice"]


@pytest.mark.usefixtures("impatient")
async def test_a_sync_that_fails_once_it_is_begun_is_a_failed_one() -> None:
    """It is never repeated, however often it could not be begun before."""
    flusher, partition = new_flusher(), FakePartition()
    failures: list[OSError] = []
    flusher.failed = failures.append
    failed = OSError(errno.EIO, "EIO")
    partition.log.sync = Unopened(2, failed)
    dirty(flusher, partition)
    async with asyncio.timeout(PATIENCE_S):
        await flusher.flushed()
    assert (failures, partition.noted, len(partition.log.ran_in)) == ([failed], [], 3)


async def test_a_failed_sync_of_a_round_outweighs_syncs_that_were_not_begun() -> None:
    """Whichever ends first: the directory goes offline."""
    for first in (True, False):
        flusher, partitions = new_flusher(), [FakePartition(), FakePartition()]
        failures: list[OSError] = []
        flusher.failed = failures.append
        failed = OSError(errno.EIO, "EIO")
        for number, partition in enumerate(partitions):
            partition.log.sync = Unopened(0, failed) if (number == 0) is first else Unopened(1000)
            dirty(flusher, partition)
        async with asyncio.timeout(PATIENCE_S):
            await flusher.flushed()
        assert failures == [failed]


@pytest.mark.usefixtures("impatient")
async def test_syncs_that_cannot_be_begun_for_long_take_the_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other brokers lead its partitions then, and a restart gives a leaking process its descriptors back."""
    monkeypatch.setattr(flushing, "GIVE_UP_S", 0.0)
    flusher, partition = new_flusher(), FakePartition()
    failures: list[OSError] = []
    flusher.failed = failures.append
    partition.log.sync = Unopened(1_000_000)
    dirty(flusher, partition)
    async with asyncio.timeout(PATIENCE_S):
        await flusher.flushed()
    assert [each.errno for each in failures] == [errno.EMFILE]
    assert partition.noted == []


class EverySecond(list[str]):
    """Synced folders; every second sync fails for want of a descriptor."""

    calls = 0

    def append(self, path: str) -> None:
        self.calls += 1
        if self.calls % 2 == 0:
            raise SyncNotBegun(errno.EMFILE, "Too many open files", path)
        super().append(path)


@pytest.mark.usefixtures("impatient")
async def test_a_round_that_gets_on_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try syncs one more folder of many, so the time without progress begins anew."""
    monkeypatch.setattr(flushing, "GIVE_UP_S", 0.0)
    flusher, partition = new_flusher(), FakePartition()
    failures: list[OSError] = []
    flusher.failed = failures.append
    partition.log.new_directories = tuple(f"/data/t-{number}" for number in range(10))
    partition.log.synced_directories = EverySecond()
    dirty(flusher, partition)
    async with asyncio.timeout(PATIENCE_S):
        await flusher.flushed()
    assert (failures, partition.noted) == ([], [1])
    assert set(partition.log.synced_directories) == set(partition.log.new_directories)
