"""The environment of a node on a simulated host."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from raftlog.base.env import Env
from raftlog.base.kernel_syncs import SyncCallback
from raftlog_chaos.simulator.hosts import Host, Process

T = TypeVar("T")

REFUSED_RATE: Final = 0.05
"""The share of syncs that the kernel refuses, as if too many were in flight."""


class SimOffload:
    """`Offload` on the loop: the call runs at a seeded moment of its delay, the answer comes at its end."""

    def __init__(self, host: Host) -> None:
        self._loop = host.loop
        self._host = host
        self._random = host.loop.stream(f"offload/{host.name}/{host.process.number}")

    def __call__(self, call: Callable[[], T], /) -> asyncio.Future[T]:
        assert self._loop.process().host is self._host, "a host used another host's environment"
        future: asyncio.Future[T] = self._loop.create_future()
        shortest, longest = self._host.offload_s
        delay = self._random.uniform(shortest, longest)
        self._loop.call_later(
            delay * self._random.random(), self._run, call, future, self._loop.time() + delay
        )
        return future

    def _run(self, call: Callable[[], T], future: asyncio.Future[T], done_at: float) -> None:
        answer: Callable[[], None]
        try:
            result = call()
        except Exception as error:  # belongs to the caller, as with a thread pool
            failure = error
            answer = lambda: None if future.cancelled() else future.set_exception(failure)  # noqa: E731
        else:
            answer = lambda: None if future.cancelled() else future.set_result(result)  # noqa: E731
        self._loop.call_at(done_at + self._loop.take_spent(), answer)


class SimKernelSyncs:
    """Syncs beside the loop, by `SimOffload`; by chance the kernel takes no more of them."""

    def __init__(self, host: Host, offload: SimOffload) -> None:
        self._random = host.loop.stream(f"kernel syncs/{host.name}/{host.process.number}")
        self._offload = offload

    def submit(self, sync: Callable[[], None], done: SyncCallback) -> bool:
        """Begin a sync, or return False, as `File.submit_sync` does."""
        if self._random.random() < REFUSED_RATE:
            return False
        self._offload(sync).add_done_callback(partial(self._ended, done))
        return True

    @staticmethod
    def _ended(done: SyncCallback, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        done(error)


class SimEnv(Env):
    """The ports of one life of a host. Make a new object after every crash."""

    def __init__(self, host: Host) -> None:
        offload = SimOffload(host)
        host.disk.submit_sync = SimKernelSyncs(host, offload).submit
        host.disk.wall_clock_ms = host.wall_clock_ms
        super().__init__(
            disk=host.disk,
            wall_clock_ms=host.wall_clock_ms,
            random=host.random(),
            unguessable=host.loop.stream(f"ids/{host.name}/{host.process.number}"),
            offload=offload,
            on_bug=partial(_fail_simulation, host, host.process),
            threads=False,
        )


def _fail_simulation(host: Host, process: Process) -> None:
    """A connection's guard hides no bug here, unless its process was killed in the midst of what failed."""
    if process.alive:
        host.loop.failures.append({"message": "a connection crashed", "exception": sys.exc_info()[1]})
