"""Further actors of a scenario: the Jepsen workload, judged by its history, topic churn, and moves."""

from __future__ import annotations

import asyncio
import random

from raftlog.base.types import TopicPartition
from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.departed_logs import DepartedLogs
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.churn import Churn
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.mover import Mover
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.port import split_key
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simulated import SimPorts

STOPS_S = 10.0
"""The longest wait for an answer, virtual seconds."""


class Extras:
    """Employ any of them once the cluster serves; then `stop`, `finish` when all is calm, and `judge`."""

    def __init__(self, loop: SimLoop, cluster: SimCluster, history: Observations) -> None:
        self.loop = loop
        self.cluster = cluster
        self.history = history
        self.log: LogWorkload | None = None
        self.churn: Churn | None = None
        self.mover: Mover | None = None
        self.departed = DepartedLogs(cluster)
        self.ops: list[Op] = []
        self._missing: dict[str, int] = {}

    @property
    def acked(self) -> int:
        return self.log.acked_count if self.log else 0

    def employ_log(self, chance: random.Random) -> None:
        """Start the Jepsen workload with random options."""
        options = LogOptions(
            prefix="log",
            keys=chance.choice((1, 2, 4)),
            writes_per_key=chance.choice((20, 256)),
            clients=chance.choice((1, 2)),
            writers=chance.choice((0, 1)),
            readers=1,
            careless=chance.choice((0, 1)),
            subscribe=chance.random() < 0.3,
            rate=chance.choice((20.0, 60.0)),
            crash_every_s=chance.choice((1.0, 5.0)),
            final_readers=1,
        )
        recorder = Recorder(lambda: int(self.loop.time() * 1e9), self._keep)
        ports = SimPorts(self.loop, self.cluster.bootstrap)
        self.log = LogWorkload(recorder, ports, self.loop.stream("log workload"), options)
        # a host of its own, so that no task of it outlives the world
        self.loop.host("workload").call(self.log.start)

    def employ_churn(self) -> None:
        """Start to create and delete topics."""
        client = Client("churn", self.cluster.bootstrap)
        self.churn = Churn(client, history=self.history, chance=self.loop.stream("churn"))
        self.loop.host("churn").start(self.churn.run())

    def employ_mover(self, topic: str, partitions: int) -> None:
        """Start to move replicas. There are always three of them, since disks may be lost here."""
        self.mover = Mover(
            Client("mover", self.cluster.bootstrap),
            topic,
            partitions=partitions,
            nodes=tuple(self.cluster.nodes),
            history=self.history,
            chance=self.loop.stream("mover"),
        )
        self.mover.replicas = range(3, 4)
        self.loop.host("mover").start(self.mover.run())

    def _keep(self, op: Op) -> None:
        self.ops.append(op)
        chronicle = self.loop.chronicle
        if chronicle is None or op.f != "send" or op.type not in ("ok", "info"):
            return
        for _, key, (offset, _) in op.value or ():
            if offset is not None:
                where = TopicPartition(*split_key(key))
                chronicle.note(f"client-{op.process}", "acked", "", where=where, offsets=(offset, offset + 1))

    async def stop(self) -> None:
        """Start no new moves, and wait until the outcome of all earlier requests is certain."""
        if self.log is not None:
            self.log.stop()
        if self.churn is not None:
            self.churn.stopping = True
        if self.mover is not None:
            self.mover.stopping = True
            mover = self.mover
            await self.cluster.until(lambda: mover.done, STOPS_S, "the mover stops")
            await asyncio.sleep(max(0.0, mover.certain_at - self.loop.time()))

    async def finish(self, seconds: float) -> None:
        """Read everything after the storm, and delete the temporary topics. Raises AssertionError after so many virtual
        seconds.
        """
        if self.log is not None:
            self._missing = await self.loop.host("workload").start(self.log.finish(seconds))
        churn = self.churn
        if churn is not None:
            await self.cluster.until(lambda: churn.done, seconds, "passing topics deleted")
            await self.cluster.until(self._is_forgotten, seconds, "deleted topics gone from every node")
            churn.over = True

    async def held_logs(self) -> list[str]:
        """Return which logs their broker still holds after they left it."""
        return await self.departed.held() if self.departed else []

    def _is_forgotten(self) -> bool:
        assert self.churn is not None
        names = set(self.churn.names)
        return not any(
            each.topic in names
            for sim_node in self.cluster.running()
            if sim_node.node is not None and sim_node.node.broker is not None
            for each in sim_node.node.broker.replicas.partitions
        )

    def judge(self) -> list[str]:
        """Return what is wrong with what they saw."""
        if self.log is None:
            return []
        verdict = judge(Header(place="simulator", workload="log", seed=self.loop.seed), self.ops)
        never = [
            f"{key}: offset {offset} was acknowledged and never read" for key, offset in self._missing.items()
        ]
        return [*self.log.faults, *never, *verdict.faults()]
