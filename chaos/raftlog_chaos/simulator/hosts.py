"""Hosts of the simulated world and the processes that run on them.

The process of a piece of code is in a context variable, as asyncio copies contexts into callbacks and tasks. Node code
need not know that it shares its loop. A crash is kill -9: no code of the process runs again, no `finally` either.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from raftlog.base.env import SHARED_PHASE, SHARED_S
from raftlog.base.log import BEFORE_LINE
from raftlog_chaos.simulator.disk import SimDisk

if TYPE_CHECKING:
    from raftlog_chaos.simulator.handles import SimHandle, SimTimer
    from raftlog_chaos.simulator.loop import SimLoop

T = TypeVar("T")

WALL_EPOCH_MS = 1_767_225_600_000
"""Wall time at loop second 0 (2026-01-01 UTC)."""

OFFLOAD_S = (0.00005, 0.002)
"""Shortest and longest virtual time an offloaded call (a sync, a cold read) takes, unless set otherwise."""

current_process: contextvars.ContextVar[Process] = contextvars.ContextVar("current_process")


class Process:
    """One life of a host, from its start to its crash."""

    __slots__ = (
        "_graves",
        "alive",
        "context",
        "held",
        "host",
        "interrupted",
        "name",
        "number",
        "paused",
        "ready",
        "tasks",
    )

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.name = host.name
        self.number = number
        self.alive = True
        self.paused = False
        self.interrupted: asyncio.Task[Any] | None = None
        """The task that ran when the process was killed: its outcome is meaningless."""
        self.held = 0
        """Callbacks that still take their time."""
        self.ready: deque[SimHandle | SimTimer] = deque()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._graves: list[asyncio.Task[Any]] = []
        self.context = contextvars.Context()
        self.context.run(current_process.set, self)
        phase = host.loop.stream(f"shared times/{host.name}").uniform(0, SHARED_S)
        self.context.run(SHARED_PHASE.set, phase)
        self.context.run(BEFORE_LINE.set, host.write_line)

    def kill(self) -> None:
        """Run no more code of this process.

        Its tasks stay referenced, lest collecting them runs their `finally`.
        """
        assert self.alive
        self.alive = False
        self.interrupted = asyncio.current_task(self.host.loop)
        self._graves = sorted((each for each in self.tasks if not each.done()), key=hash)
        self.ready.clear()  # last: it may hold the only reference to a task that has not begun
        for task in self._graves:
            asyncio._unregister_task(task)

    def own(self, task: asyncio.Task[Any]) -> None:
        """Add a new task to this process, perhaps from a callback during which it was killed."""
        self.tasks.add(task)
        if not self.alive:
            self._graves.append(task)
            asyncio._unregister_task(task)

    def bury(self) -> None:
        """Close what a kill left behind; only at the end of a simulation, when it has no effect any more."""
        for task in self._graves:
            # asyncio's own switch for tasks abandoned on purpose
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert coroutine is not None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a task that had not begun was "never awaited"
                    self.context.copy().run(coroutine.close)
            except Exception:  # noqa: S110 - dying words of a killed process
                pass
        self._graves = []


def _has_arrived(handle: SimHandle | SimTimer) -> bool:
    """Whether a callback brings bytes from another host, rather than being due."""
    return getattr(getattr(handle._callback, "__self__", None), "carries_bytes", False)


class Host:
    """A machine with a name, an address, a disk that outlives its processes, and a wall clock of its own."""

    def __init__(self, loop: SimLoop, name: str, index: int) -> None:
        self.loop = loop
        self.name = name
        self.index = index
        self.address = f"10.0.{index // 250}.{index % 250 + 1}"
        self.disk = SimDisk(loop.stream(f"disk/{name}"))
        self.clock_offset_ms = 0
        self._drift = 0.0
        self._drifts_since = 0.0
        self.offload_s = OFFLOAD_S
        self.silent = False
        self.log_failure_rate = 0.0
        """The share of the lines of its log that cannot be written."""
        self.lines_failed = 0
        self._log_chance = loop.stream(f"log/{name}").random
        self._order = loop.stream(f"order/{name}").random
        self.process = Process(self, 0)

    @property
    def alive(self) -> bool:
        return self.process.alive

    def start(self, program: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine here, in the running process or, after a crash, in a new process.

        A task of a crashed process never ends: do not await it across a crash.
        """
        if not self.process.alive:
            self.process = Process(self, self.process.number + 1)
            self.silent = False
            self.disk.power_up()
            self.loop.network.host_started(self)
            self.note(f"started {self.process.number}")
        return self.process.context.copy().run(self.loop.create_task, program)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Run a function in this host's process at its next turn."""
        self.loop.call_soon(function, *args, context=self.process.context.copy())

    def crash(self, *, power_loss: bool = True, silent: bool = False) -> None:
        """Kill -9. `power_loss`: the disk forgets what was not synced. `silent`: peers get no reset."""
        if not self.process.alive:
            return
        self.note(f"crashed {power_loss=} {silent=}")
        process = self.process
        process.kill()
        self.silent = silent
        self.loop.network.process_died(process, silent=silent)
        self.loop.remember(process)
        if power_loss:
            self.disk.crash()
        else:
            self.disk.release()

    def pause(self) -> None:
        """Pause the process as SIGSTOP does: the kernel still accepts connections and bytes."""
        self.process.paused = True
        self.note("paused")

    def resume(self) -> None:
        """Resume the process (SIGCONT). Due callbacks run before what has arrived (uvloop), or as it came (asyncio
        polls first).
        """
        process = self.process
        process.paused = False
        if self._order() < 0.5:
            process.ready = deque(sorted(process.ready, key=_has_arrived))
        self.loop.woke(self.process)
        self.note("resumed")

    def set_clock(self, offset_ms: int, *, drift: float = 0.0) -> None:
        """Let the wall clock jump to so far off the true time, and go too fast from now on, by that share of it."""
        self.clock_offset_ms = offset_ms
        self._drift = drift
        self._drifts_since = self.loop.time()

    def wall_clock_ms(self) -> int:
        """Return the wall time in ms, `clock_offset_ms` off, with the drift since."""
        now = self.loop.time()
        drifted_s = self._drift * (now - self._drifts_since)
        return WALL_EPOCH_MS + int((now + drifted_s) * 1000) + self.clock_offset_ms

    def random(self) -> random.Random:
        """Return this process's own stream of chance: the same for the same seed, host and life."""
        return self.loop.stream(f"host/{self.name}/{self.process.number}")

    def write_line(self) -> None:
        """Fail now and then, as a log does after its reader is gone. Called for each line, at every log level."""
        if self.log_failure_rate and self._log_chance() < self.log_failure_rate:
            self.lines_failed += 1
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def note(self, event: str) -> None:
        """Add an event of this host to the trace."""
        self.loop.trace.note(self.loop.time(), self.name, event)

    def __repr__(self) -> str:
        return f"<Host {self.name}>"
