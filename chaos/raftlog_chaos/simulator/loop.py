"""An asyncio event loop with virtual time and a network in memory: one seed, one run.

Between hosts any order of ready callbacks is possible and the seed picks one; within a process asyncio's
order holds. When no callback is ready, time jumps to the next timer. Real sockets, threads and subprocesses are
refused.
"""

# The override signatures are typeshed's variadic generics, the attributes BaseEventLoop's own seams.
# mypy: disable-error-code="override,attr-defined,unused-ignore"

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raftlog_chaos.chronicle import Chronicle
from raftlog_chaos.simulator.connection import SimTransport
from raftlog_chaos.simulator.handles import SimHandle, SimTimer, label_of
from raftlog_chaos.simulator.hosts import Host, Process, current_process
from raftlog_chaos.simulator.network import Network, SimServer
from raftlog_chaos.simulator.trace import Trace

T = TypeVar("T")

STEP_S = 1e-6
"""Virtual seconds one callback takes, so that a busy loop still sees time pass."""

MAX_STEPS = 50_000_000
"""Callbacks one simulation may run."""
OVER_THE_LIMIT = "over the limit"
"""The message, after the seed, of a simulation that spent its steps or its time."""

START_S = 1_000.0
"""Loop time at the beginning: like a real monotonic clock, not zero."""


class SimulationStalled(RuntimeError):
    """No callback is ready, no timer is set, and the caller's condition does not hold."""


class SimulationFailed(AssertionError):
    """Code inside raised an uncaught error, or a limit was passed. The message names the seed."""


class SimFuture(asyncio.Future[T]):
    """A future with a stable hash, so that sets of futures iterate alike in every run."""

    def __init__(self, *, loop: SimLoop) -> None:
        self._serial = loop.next_serial()
        self.process = loop.process()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class SimTask(asyncio.Task[T]):
    """A task with a stable hash and a stable name."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        loop: SimLoop,
        *,
        name: str | None,
        context: contextvars.Context,
    ) -> None:
        self._serial = loop.next_serial()
        self.process = context.get(current_process, loop.main.process)
        name = name or f"task-{self._serial}"
        self.label = f"{name} {getattr(coroutine, '__qualname__', '')}"
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._serial


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a whole simulated world. Code outside any host runs on the host "main"."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.trace = Trace()
        self.failures: list[dict[str, Any]] = []
        self._now = START_S
        self._spent = 0.0
        self._serial = 0
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._busy: list[Process] = []
        """Processes with callbacks to run, in order of arrival; paused processes are removed lazily."""
        self._schedule = self.stream("schedule").random
        self.observer: Callable[[Process], None] | None = None
        """Called after every step with the process that took it. It must only look: not a trace of it may show."""
        self._hosts: dict[str, Host] = {}
        self._dead: list[Process] = []
        self.chronicle: Chronicle | None = None
        """If set, it records the events for human readers."""
        self.stop_at = float("inf")
        self.max_steps = MAX_STEPS
        self.network = Network(self)
        self.main = self.host("main")

    # -- the world ----------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """Return the host of that name, made at its first mention."""
        if name not in self._hosts:
            self._hosts[name] = Host(self, name, len(self._hosts))
        return self._hosts[name]

    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def crash(self, host: Host, *, power_loss: bool = True, silent: bool = False) -> None:
        host.crash(power_loss=power_loss, silent=silent)

    def pause(self, host: Host) -> None:
        host.pause()

    def resume(self, host: Host) -> None:
        host.resume()

    def cut(self, one: Host, other: Host) -> None:
        """Reset every connection between two hosts and refuse new connections until `heal`."""
        self.network.cut(one, other)

    def clog(self, source: Host, target: Host, ports: Iterable[int] = ()) -> None:
        """Hold back, in silence, all bytes from source to target until `heal`, or those to or from some ports."""
        self.network.clog(source, target, ports)

    def heal(self, one: Host | None = None, other: Host | None = None) -> None:
        """Undo cuts and clogs between two hosts, of one host, or everywhere."""
        self.network.heal(one, other)

    def keep_chronicle(self) -> Chronicle:
        """Keep a chronicle of this world from now on."""
        chronicle = self.chronicle = Chronicle(lambda: self._now - START_S)
        self.trace.on_note = chronicle.note_world
        return chronicle

    def stream(self, name: str) -> random.Random:
        """Return a stream of chance that depends on the seed and the name alone."""
        return random.Random(f"{self.seed}/{name}")

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def remember(self, process: Process) -> None:
        """Keep a killed process until the end, so that none of its objects is collected and thereby run."""
        self._dead.append(process)

    def process(self) -> Process:
        """Return the process that the running code belongs to."""
        return current_process.get(self.main.process)

    # -- asyncio's scheduling -----------------------------------------------------------------------

    def time(self) -> float:
        return self._now + self._spent

    def spend(self, seconds: float) -> None:
        """Let the running callback take so long: its process is busy meanwhile, the others go on."""
        self._spent += seconds

    def take_spent(self) -> float:
        """Return what the running callback has spent and forget it: it ran in a thread, which waits alone."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _occupy(self, process: Process) -> None:
        """Hold a process until the time is over that its callback spent; "main" is no process and has no time."""
        until = self._now + self.take_spent()
        if process is self.main.process:
            return
        process.held += 1
        self.call_at(until, self._resume, process, context=self.main.process.context)

    def _resume(self, process: Process) -> None:
        process.held -= 1
        self.woke(process)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        if context is None:
            context = contextvars.copy_context()
        process = context.get(current_process) or self.main.process
        handle = SimHandle(callback, args, self, context, process)
        if process.alive:
            if not process.ready:
                self._busy.append(process)
            process.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check_thread()
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()
        if context is None:
            context = contextvars.copy_context()
        process = context.get(current_process) or self.main.process
        timer = SimTimer(when, callback, args, loop=self, context=context, process=process)
        self._serial = serial = self._serial + 1
        heapq.heappush(self._timers, (when, serial, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]  # the typeshed signature varies between Python versions
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_closed()
        context = contextvars.copy_context() if context is None else context
        task = SimTask(coro, self, name=name, context=context)
        task.process.own(task)
        return task

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers fall out of the heap when their time comes."""

    def woke(self, process: Process) -> None:
        """Let a process run that was paused."""
        if process.ready and process not in self._busy:
            self._busy.append(process)

    def _run_once(self) -> None:
        """Run single callbacks until the loop is stopped."""
        note = self.trace.step
        while not self._stopping:
            process = self._next_process()
            if process is None:
                self._jump_to_next_timer()
                continue
            handle = process.ready.popleft()
            if not process.ready:
                self._busy.remove(process)
            if handle._cancelled:
                continue
            self._now += STEP_S
            steps = note(self._now, process.name, label_of(handle._callback))
            if steps > self.max_steps or self._now > self.stop_at:
                self._stop_at_limit()
            handle._run()
            if self._spent:
                self._occupy(process)
            if self.observer is not None:
                self.observer(process)

    def _next_process(self) -> Process | None:
        """Release the timers that are due, and choose among the processes with callbacks to run."""
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            self._release(heapq.heappop(timers)[2])
        busy = self._busy
        while busy:
            index = int(self._schedule() * len(busy)) if len(busy) > 1 else 0
            process = busy[index]
            if process.ready and not process.paused and not process.held:
                return process
            del busy[index]
        return None

    def _release(self, timer: SimTimer) -> None:
        timer._scheduled = False
        process = timer.process
        if process.alive and not timer._cancelled:
            if not process.ready:
                self._busy.append(process)
            process.ready.append(timer)

    def _stop_at_limit(self) -> None:
        spent = f"{self._now - START_S:.3f} s, {self.trace.steps} steps"
        raise SimulationFailed(f"seed {self.seed}: {OVER_THE_LIMIT} after {spent}")

    def _jump_to_next_timer(self) -> None:
        timers = self._timers
        while timers and (timers[0][2]._cancelled or not timers[0][2].process.alive):
            heapq.heappop(timers)
        if timers:
            self._now = max(self._now, timers[0][0])
        elif not self._stopping:
            raise SimulationStalled(f"seed {self.seed}: nothing left to happen at {self._now:.6f} s")

    def _processes(self) -> list[Process]:
        return [host.process for host in self._hosts.values()]

    # -- asyncio's network --------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]  # a subset: what has no meaning here is refused
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: object = None,
        ssl: object = None,
        start_serving: bool = True,
        **ignored: object,
    ) -> SimServer:
        """Listen on this process's host. Backlog, reuse and family options have no meaning here."""
        if sock is not None or ssl is not None:
            raise RuntimeError("a simulation has neither real sockets nor TLS")
        server = self.network.listen(protocol_factory, host, port or 0)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]  # a subset: what has no meaning here is refused
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: object = None,
        ssl: object = None,
        **ignored: object,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect to a host by name or address."""
        if sock is not None or ssl is not None or host is None or port is None:
            raise RuntimeError("a simulation has neither real sockets nor TLS")
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | bytes | None, port: object, **ignored: object
    ) -> list[tuple[Any, ...]]:
        address = self.network.resolve(str(host), self.process().host).address
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError("a simulation has no threads: use env.offload")

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """Ignore the handler: a simulated process gets no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    # -- the end ------------------------------------------------------------------------------------

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an uncaught error: in a simulation it is a finding, not a log line.

        Except if no code could catch it: its receiver died before, or in the midst of the callback that failed.
        """
        failed = context.get("future") or context.get("handle")
        if not isinstance(failed, SimFuture | SimTask | SimHandle | SimTimer) or failed.process.alive:
            self.failures.append(context)

    def shut_down(self) -> None:
        """Kill every host, cancel what runs on "main", and close."""
        self._collect_unread_failures()
        for host in self._hosts.values():
            if host is not self.main:
                host.crash(silent=True, power_loss=False)
        self.stop_at = float("inf")
        self.max_steps += self.max_steps
        self.main.process.paused = False
        left = sorted((each for each in self.main.process.tasks if not each.done()), key=hash)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=60))
        self.run_until_complete(self.shutdown_asyncgens())
        for process in self._dead:
            process.bury()
        self.close()

    def _collect_unread_failures(self) -> None:
        """Collect failed tasks that were never awaited: asyncio would report them when they are garbage-collected."""
        for process in (*self._processes(), *self._dead):
            for task in sorted(process.tasks, key=hash):
                if task is process.interrupted:
                    continue
                if task.done() and not task.cancelled() and task._log_traceback:
                    self.failures.append(
                        {"message": f"{task.get_name()} failed", "exception": task.exception()}
                    )

    def close(self) -> None:
        self._timers.clear()
        super().close()


@dataclass(slots=True, frozen=True)
class Run(Generic[T]):
    """The result of a simulation. Equal digests: equal runs. `seconds` is virtual."""

    result: T
    digest: str
    steps: int
    seconds: float


def simulate(
    program: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int = 0, limit_s: float = 3_600.0
) -> Run[T]:
    """Run `program(loop)` to its end in a new world. Raises SimulationFailed for uncaught errors."""
    loop = SimLoop(seed)
    loop.stop_at = START_S + limit_s
    try:
        result = loop.run_until_complete(program(loop))
        run = Run(result, loop.trace.digest, loop.trace.steps, loop.time() - START_S)
    finally:
        loop.shut_down()
    if loop.failures:
        message, error = loop.failures[0].get("message"), loop.failures[0].get("exception")
        raise SimulationFailed(f"seed {seed}: {message}: {error!r}") from error
    return run
