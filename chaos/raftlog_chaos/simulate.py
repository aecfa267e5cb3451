"""A custom workload against a simulated cluster: virtual time, faults by seed, the very nodes of production.

`simulate(workload, seed=7)` runs an `async def workload(context)` on plain asyncio: `asyncio.open_connection` and
whatever stands on it reach the nodes of `context.bootstrap`. Threads, real sockets and C clients do not work in there.

    import asyncio
    from raftlog_chaos.simulate import AWAY, WorkloadContext, simulate

    async def count(context: WorkloadContext) -> int:
        await context.create_topic("numbers")
        client, acked = context.client("counter"), {}
        while context.stormy:
            number = context.random.getrandbits(32)
            try:
                acked[await client.produce("numbers", 0, b"%d" % number)] = b"%d" % number
            except AWAY:                      # no leader, or it died on the way: it may be there, or not
                await asyncio.sleep(0.05)
        await context.recovered()
        records = dict(await client.read("numbers", 0))
        for offset, value in acked.items():
            assert records[offset] == value, f"numbers-0: offset {offset} was lost"
        return len(acked)

    run = simulate(count, seed=7, seconds=5.0, faults=("power-cut", "pause", "cut"))
    print(run.result, "acknowledged in", run.virtual_s, "virtual seconds;", run.faults)

An AssertionError of the workload, an invariant of the cluster that broke, and anomalies among the operations that went
into `context.recorder` raise `PromiseBroken`. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from raftlog_chaos.checkers import judge
from raftlog_chaos.faults.fault_swarm import FaultSwarm
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.simulator.loop import simulate as run_world
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.simple import SimpleClient

__all__ = ["AWAY", "PromiseBroken", "SimpleClient", "SimulatedRun", "WorkloadContext", "simulate"]

T = TypeVar("T")

RECOVERY_S: Final = 60.0
"""After the faults have ended all nodes are unfenced and every replica is in sync within this, virtual seconds."""

FINISH_S: Final = 120.0
"""After that the workload must end within this, virtual seconds."""


class PromiseBroken(AssertionError):
    """The cluster, or the workload, found something wrong. The message names the seed."""


@dataclass(frozen=True, slots=True)
class SimulatedRun(Generic[T]):
    """The result of a simulation. Equal digests: equal runs. `faults`: how often each struck. `history`: what
    was recorded.
    """

    result: T
    digest: str
    virtual_s: float
    faults: Mapping[str, int]
    history: Sequence[Op]


class WorkloadContext:
    """The surroundings of a workload: where the nodes are, chance that the seed decides, and a recorder."""

    def __init__(self, loop: SimLoop, cluster: SimCluster, faults: Sequence[str] | None) -> None:
        self.loop = loop
        self.cluster = cluster
        self.weather = FaultSwarm(loop, cluster, faults)
        self.random = random.Random(loop.stream("workload").random())
        self.history: list[Op] = []
        self.recorder = Recorder(lambda: int(loop.time() * 1e9), self.history.append)
        """Operations that go in here are judged at the end, as histories of real clusters are."""
        self.stormy = True
        """Whether faults still strike."""
        self.calm = asyncio.Event()
        """Set once all is well again."""

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        """(host, port) of each node."""
        return self.cluster.bootstrap

    def start(self, name: str, program: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine beside the workload on a machine of its own, `name`."""
        return self.loop.host(name).start(program)

    def client(self, name: str = "workload") -> SimpleClient:
        """Return a small client that speaks Kafka's protocol over the simulated network."""
        return SimpleClient(Client(name, self.bootstrap))

    async def create_topic(
        self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        """Create a topic with as many replicas as nodes, three at most; tries until it is there."""
        await self.client("admin").create_topic(name, partitions=partitions, configs=configs)

    async def recovered(self) -> None:
        """Wait until no fault strikes any more, every node runs, and every replica is in sync."""
        await self.calm.wait()


Workload = Callable[[WorkloadContext], Awaitable[T]]


def simulate(
    workload: Workload[T],
    *,
    seed: int = 0,
    seconds: float = 10.0,
    nodes: int = 3,
    faults: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> SimulatedRun[T]:
    """Run a workload through `seconds` virtual seconds of faults, then recovery, then to its end.

    `faults`: some of raftlog_chaos.faults.fault_swarm.FAULTS; by default the seed draws a mix, with () there are none.
    `settings` go to all nodes.
    Raises PromiseBroken, and whatever else the workload raises.
    """
    contexts: list[WorkloadContext] = []

    async def program(loop: SimLoop) -> T:
        context = WorkloadContext(loop, _cluster(loop, nodes, settings or {}), faults)
        contexts.append(context)
        return await _run(workload, context, seconds)

    try:
        run = run_world(program, seed=seed, limit_s=seconds + 2 * RECOVERY_S + FINISH_S)
        context = contexts[0]
        _judge(context)
    except AssertionError as error:
        raise PromiseBroken(f"seed {seed}: {error}") from error
    return SimulatedRun(run.result, run.digest, run.seconds, context.weather.fault_counts(), context.history)


def _cluster(loop: SimLoop, nodes: int, settings: Mapping[str, str]) -> SimCluster:
    replicas = {"default.replication.factor": str(min(3, nodes)), "min.insync.replicas": str(min(2, nodes))}
    return SimCluster(loop, nodes, settings={**replicas, **settings})


async def _run(workload: Workload[T], context: WorkloadContext, seconds: float) -> T:
    cluster, weather = context.cluster, context.weather
    cluster.start()
    await cluster.until_ready()
    task = context.start("workload", _as_coroutine(workload, context))
    await weather.storm(seconds)
    context.stormy = False
    await weather.clear_up(RECOVERY_S)
    context.calm.set()
    await cluster.until(task.done, FINISH_S, "the workload ends")
    cluster.check()
    return task.result()


async def _as_coroutine(workload: Workload[T], context: WorkloadContext) -> T:
    return await workload(context)


def _judge(context: WorkloadContext) -> None:
    """The recorded history is judged as any is."""
    if context.history:
        verdict = judge(Header(place="simulator", seed=context.loop.seed), context.history)
        assert verdict.valid, verdict.text()
