"""What an event loop cannot give: disk, wall clock, chance, and a place for calls that block.

Everything else of the environment *is* the running asyncio loop (`loop.time()`, `call_at`, `create_server`,
`create_connection`), so that a simulated loop replaces the whole world. `*_at` is loop seconds, `*_ms` wall time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from raftlog.base.disk import Disk, RealDisk

T = TypeVar("T")


def raise_failure(task: asyncio.Task[Any]) -> None:
    """Done callback of a task that must not fail: what it raised goes to the loop's exception handler, as a callback's
    failure does, rather than being kept until somebody asks."""
    if not task.cancelled():
        task.result()


class Offload(Protocol):
    """Run a call that may block for long (sync, cold read) away from the loop."""

    def __call__(self, call: Callable[[], T], /) -> asyncio.Future[T]: ...


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class ThreadOffload:
    """`Offload` on a few daemon threads."""

    def __init__(self, threads: int = 4) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="raftlog-io")

    def __call__(self, call: Callable[[], T], /) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, call)


@dataclass(slots=True)
class Env:
    """The ports of one node. `random` is never used for secrets."""

    disk: Disk = field(default_factory=RealDisk)
    wall_clock_ms: Callable[[], int] = _wall_clock_ms
    random: random.Random = field(default_factory=random.Random)
    offload: Offload = field(default_factory=ThreadOffload)
    threads: bool = True
    """False in simulations: `offload` then runs on the loop, after a virtual delay."""
