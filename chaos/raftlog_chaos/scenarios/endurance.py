"""The scenario of every seed: a cluster serves clients through a storm of faults, and afterwards no record is missing.

`endure(loop)` is the whole of it; `run(seed)` runs it in a world of its own. A failure is an AssertionError.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.replication.partition import Partition
from raftlog_chaos.checkers.records import judge_records, judge_replicas, read_batches, values_of
from raftlog_chaos.faults.fault_swarm import FaultSwarm
from raftlog_chaos.scenarios.extras import Extras
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.hosts import OFFLOAD_S
from raftlog_chaos.simulator.loop import Run, SimLoop, simulate
from raftlog_chaos.workloads.consumer import Consumer
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.producer import CarelessProducer, Producer
from raftlog_chaos.workloads.raw_client import Client, create_topic

__all__ = ["PARTITIONS", "RECOVERY_S", "TOPIC", "Endurance", "Report", "endure", "run"]

TOPIC = "endurance"
PARTITIONS = 3
REPLICAS = 3
RECOVERY_S = 60.0
"""Within this after the storm all is as it was: acknowledged, in sync, equal. Virtual seconds."""


class Endurance:
    """One cluster, its clients, and what they saw."""

    def __init__(self, loop: SimLoop, *, nodes: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("endurance").random())
        loop.network.latency_s = self.chance.choice(((0.0001, 0.0006), (0.0001, 0.0006), (0.001, 0.02)))
        self.cluster = SimCluster(
            loop,
            nodes,
            settings={
                "log.segment.bytes": self.chance.choice(("2048", "16384", "1073741824")),
                "replica.lag.time.max.ms": self.chance.choice(("1000", "5000")),
                "broker.session.timeout.ms": self.chance.choice(("1000", "3000")),
                **(settings or {}),
            },
            compaction=SnapshotPolicy(entries=self.chance.choice((20, 100, 5000))),
        )
        self.history = Observations(self.cluster.failures, loop.chronicle)
        self._furnish_disks()
        self.weather = FaultSwarm(loop, self.cluster)
        self.producers: list[Producer] = []
        self.others: list[CarelessProducer | Consumer] = []

    def _furnish_disks(self) -> None:
        """Slow syncs move flushes to threads, cold reads move reads there."""
        sync_s = self.chance.choice((0.0, 0.001, 0.004))
        offload_s = self.chance.choice((OFFLOAD_S, (0.001, 0.05)))
        cold = self.chance.choice((0.0, 0.2))
        for sim_node in self.cluster.nodes.values():
            sim_node.host.offload_s = offload_s
            sim_node.host.disk.cold_read_rate = cold
            if sync_s:
                sim_node.usual_sync = sim_node.host.disk.on_sync = lambda: self.loop.spend(sync_s)

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        loop = self.loop
        admin = Client("admin", self.cluster.bootstrap)
        await loop.host("admin").start(create_topic(admin, TOPIC, partitions=PARTITIONS))
        for index in range(PARTITIONS):
            for name, kind in (("p", Producer), ("q", Producer), ("careless", CarelessProducer)):
                if name != "q" or index == 0:
                    self._employ(kind, f"{name}{index}", index)
            self._employ(Consumer, f"c{index}", index)

    def _employ(
        self, kind: type[Producer] | type[CarelessProducer] | type[Consumer], name: str, index: int
    ) -> None:
        chance = self.loop.stream(f"client/{name}")
        worker = kind(Client(name, self.cluster.bootstrap), TOPIC, index, history=self.history, chance=chance)
        if isinstance(worker, Producer):
            worker.pause_s = chance.choice((0.005, 0.02, 0.1))
            self.producers.append(worker)
        elif isinstance(worker, Consumer):
            worker.pause_s = chance.choice((0.0, 0.002, 0.01))
            self.others.append(worker)
        else:
            self.others.append(worker)
        self.loop.host(name).start(worker.run())

    async def finish(self) -> float:
        """End the faults and wait until all is well; returns the virtual seconds that took."""
        began_at = self.loop.time()
        for worker in (*self.producers, *self.others):
            worker.stopping = True
        await self.weather.clear_up(RECOVERY_S)
        await self._until(lambda: all(each.done for each in self.producers), "everything acknowledged")
        await self._until(lambda: all(map(self.in_sync, range(PARTITIONS))), "all replicas in sync")
        await self._until(self.images_agree, "equal metadata")
        return self.loop.time() - began_at

    async def _until(self, condition: object, what: str) -> None:
        assert callable(condition)
        try:
            await self.cluster.until(condition, RECOVERY_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error} ({self.describe()})") from None

    def describe(self) -> str:
        """Describe the state of the partitions for a person."""
        lines = []
        for index in range(PARTITIONS):
            state = self.cluster.state(TOPIC, index)
            replicas = [
                f"{node}:{type(each.role).__name__}@{each.leader_epoch} {each.high_watermark}/{each.log_end_offset}"
                for node in self.cluster.nodes
                if (each := self.cluster.replica(node, TOPIC, index)) is not None
            ]
            lines.append(f"{index}: {state} {' '.join(replicas)}")
        return " | ".join(lines)

    def replicas(self, index: int) -> dict[int, Partition]:
        found = {node: self.cluster.replica(node, TOPIC, index) for node in self.cluster.nodes}
        return {node: each for node, each in found.items() if each is not None}

    def in_sync(self, index: int) -> bool:
        state = self.cluster.state(TOPIC, index)
        replicas = self.replicas(index)
        ends = {(each.high_watermark, each.log_end_offset) for each in replicas.values()}
        return (
            state is not None
            and sorted(state.isr) == sorted(state.replicas) == sorted(replicas)
            and len(ends) == 1
            and len(set(*ends)) == 1
        )

    def images_agree(self) -> bool:
        offsets = {each.node.metadata.image.offset for each in self.cluster.running() if each.node}
        return len(offsets) == 1

    def judge(self) -> list[str]:
        """Return everything that is wrong."""
        faults = list(self.cluster.failures)
        for index in range(PARTITIONS):
            where = (TOPIC, index)
            replicas = self.replicas(index)
            end = min(each.high_watermark for each in replicas.values())
            batches = {node: [read_batches(each.log, end)] for node, each in replicas.items()}
            faults += judge_replicas(where, batches, end)
            for node, (data,) in batches.items():
                faults += [
                    f"node {node}: {fault}" for fault in judge_records(where, self.history, values_of(data))
                ]
        return faults

    def report(self, recovery_s: float) -> Report:
        states = [self.cluster.state(TOPIC, index) for index in range(PARTITIONS)]
        return Report(
            acked=self.history.acked_count,
            records=sum(
                max(each.log_end_offset for each in self.replicas(index).values())
                for index in range(PARTITIONS)
            ),
            elections=sum(state.leader_epoch for state in states if state is not None),
            faults=self.weather.fault_counts(),
            recovery_s=round(recovery_s, 3),
        )


async def endure(loop: SimLoop, seconds: float = 15.0) -> Report:
    """Serve through some virtual seconds of faults, recover, and check everything. Raises AssertionError.

    Some seeds have five nodes, some add the Jepsen workload, some create and delete topics, some move replicas.
    """
    chance = loop.stream("cast")
    scenario = Endurance(loop, nodes=chance.choice((3, 3, 3, 3, 5)))
    extras = Extras(loop, scenario.cluster, scenario.history)
    await scenario.begin()
    if chance.random() < 0.5:
        extras.employ_log(chance)
    if chance.random() < 0.4:
        extras.employ_churn()
    if len(scenario.cluster.nodes) > REPLICAS and chance.random() < 0.6:
        extras.employ_mover(TOPIC, PARTITIONS)
    await asyncio.sleep(0.3)
    await scenario.weather.storm(seconds)
    await extras.stop()
    recovery_s = await scenario.finish()
    await extras.finish(RECOVERY_S)
    faults = scenario.judge() + extras.judge() + await extras.held_logs()
    assert not faults, "; ".join(faults[:10])
    report = scenario.report(recovery_s)
    return replace(report, acked=report.acked + extras.acked)


def run(seed: int, seconds: float = 15.0) -> Run[Report]:
    """Run one seed in a world of its own. Raises AssertionError."""
    return simulate(lambda loop: endure(loop, seconds), seed=seed, limit_s=seconds + 10 * RECOVERY_S)
