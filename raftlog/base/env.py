"""The environment beside an event loop: disk, wall clock, randomness, and a place for calls that block.

Everything else of the environment *is* the running asyncio loop (`loop.time()`, `call_at`, `create_server`,
`create_connection`), so that a simulated loop replaces the whole world. `*_at` is loop seconds, `*_ms` wall time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from math import ceil, floor
from queue import SimpleQueue
from random import Random, SystemRandom
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

from raftlog.base.disk import Disk, RealDisk
from raftlog.base.lateness import Lateness
from raftlog.base.record_ages import Ages
from raftlog.base.turns import TurnQueue

T = TypeVar("T")


def raise_failure(task: asyncio.Task[Any]) -> None:
    """Raise a failed task's exception at once in the loop's exception handler. The done callback of tasks that must
    not fail.
    """
    if not task.cancelled():
        task.result()


class Offload(Protocol):
    """Run a call that may block for long (sync, cold read) away from the loop."""

    def __call__(self, call: Callable[[], T], /) -> asyncio.Future[T]: ...


def _nothing() -> None:
    pass


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def machine_uptime_s() -> float:
    """Return how long the machine has been up, with the time in which it slept where the system counts that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def timer_time(at: float) -> float:
    """Return the time, in loop seconds, for a timer that must not fire before `at`. It is the next whole millisecond,
    since uvloop rounds to the nearest. An early callback would set it again, and spin.
    """
    whole = ceil(at * 1000 - 1e-6) / 1000  # 1e-6: float error must not lose a whole millisecond
    return whole if whole >= at else whole + 0.001


SHARED_S: Final = 0.125
"""Seconds between two times that timers share: an idle node costs as much as its wake-ups."""

SHARED_PHASE: Final = ContextVar("SHARED_PHASE", default=0.0)
"""Seconds by which shared times lie before whole eighths of a second. The clocks of two machines do not agree on those,
so simulated machines must not either.
"""


def shared_time(now: float, seconds: float) -> float:
    """Return the next time of recurring work with an interval of `seconds`: a time that other timers share.

    It is the last whole eighth of a second within `seconds`, so that a single wake-up serves them all. A shorter
    interval stays as it is.
    """
    if seconds < SHARED_S:
        return now + seconds
    phase = SHARED_PHASE.get()
    latest = now + seconds + phase + 0.001  # a timer may come a bit early
    return floor(latest / SHARED_S) * SHARED_S - phase


Job = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class ThreadOffload:
    """`Offload` on a few daemon threads, started when needed.

    It uses no executor, because each sync of a busy disk is one job. An executor's futures and locks would cost as much
    as the rest of a follower's round. The threads have the context of its creation, so they log to the same place.
    """

    def __init__(self, threads: int = 4) -> None:
        self._most = threads
        self._threads: list[Thread] = []
        self._open = 0
        self._idle: asyncio.Event | None = None
        """Set when all calls have ended, while `drain` waits."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._context = copy_context()

    def __call__(self, call: Callable[[], T], /) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._open += 1
        if self._open > len(self._threads) < self._most:
            number = len(self._threads) + 1
            work = partial(self._context.copy().run, self._work)
            self._threads.append(Thread(target=work, name=f"raftlog-io_{number}", daemon=True))
            self._threads[-1].start()
        self._jobs.put((call, future, loop))
        return future

    async def drain(self) -> None:
        """Wait until every call has ended, and its result was delivered."""
        while self._open:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """End each thread once it is idle; no call may be submitted after this."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._finish, future, result, error)
            except RuntimeError:
                pass  # the loop was closed: no caller waits any more
            del job, call, future, result, error

    def _finish(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._open -= 1
        if not future.cancelled():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._idle is not None and not self._open:
            self._idle.set()


@dataclass(slots=True)
class Env:
    """The ports of one node. `random` is only for backoff and election timeouts, because its output is predictable."""

    disk: Disk = field(default_factory=RealDisk)
    wall_clock_ms: Callable[[], int] = _wall_clock_ms
    uptime_s: Callable[[], float] = _loop_time
    """A clock that cannot be set, for checking the wall clock; the machine's clock also counts its sleep."""
    random: Random = field(default_factory=Random)
    unguessable: Random = field(default_factory=SystemRandom)
    """For ids that a client could abuse if it guessed them: of members, sessions, topics, folders."""
    offload: Offload = field(default_factory=ThreadOffload)
    open_files: int = 4096
    """Descriptors that logs may keep open between uses; connections need some too."""
    sockets: int = 16384
    """Descriptors for clients' connections."""
    http_sockets: int = 256
    """Descriptors for connections of the HTTP API."""
    memory_bytes: int = 1 << 30
    """The memory of the container or the machine; see `raftlog.base.memory`."""
    collect_garbage: Callable[[], None] = _nothing
    """Collect cyclic garbage, if memory has grown since the last time. Called on the loop now and then."""
    trim_memory: Callable[[], None] = _nothing
    """Return free memory to the system."""
    on_bug: Callable[[], None] = _nothing
    """Called when a connection is closed because of a bug: simulations fail then."""
    lateness: Lateness = field(default_factory=Lateness)
    """The lateness of the node's loop; `control` measures it, and timeouts for other nodes are extended by it."""
    threads: bool = True
    """False in simulations: `offload` then runs on the loop, after a virtual delay."""
    turns: TurnQueue = field(default_factory=TurnQueue)
    """The queue of all long work of the node, for its turns of the loop."""
    ages: Ages = field(init=False)
    """The time for deleting data by age; used on the loop."""

    def __post_init__(self) -> None:
        self.ages = Ages(self._wall_clock_of_now, self._uptime_of_now)

    def _wall_clock_of_now(self) -> int:
        """Tests and faults replace this clock."""
        return self.wall_clock_ms()

    def _uptime_of_now(self) -> float:
        """Likewise."""
        return self.uptime_s()
