"""Jepsen's workload in a storm: sends, polls, groups and crashing clients, on topics that are created all the while.

Endurance looks at three partitions from inside. Here everything is judged by what clients saw, as it is for real
processes: the same operations, the same history, the same checkers.
"""

from __future__ import annotations

import asyncio
import random

from raftlog_chaos.checkers import judge
from raftlog_chaos.faults.fault_swarm import FaultSwarm
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.port import split_key
from raftlog_chaos.workloads.simulated import SimPorts

RECOVERY_S = 60.0
"""Within this after the storm all nodes are unfenced, and within this again all that is acknowledged is read."""


class Jepsen:
    """One cluster, its clients, and their history."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("jepsen").random())
        self.cluster = SimCluster(loop, settings=self._settings())
        self.weather = FaultSwarm(loop, self.cluster)
        self.ops: list[Op] = []
        self.missing: dict[str, int] = {}
        """Acknowledged offsets by key that the final phase did not reach."""
        self.load = LogWorkload(
            Recorder(lambda: int(loop.time() * 1e9), self.ops.append),
            SimPorts(loop, self.cluster.bootstrap),
            loop.stream("load"),
            self._options(),
        )

    def _settings(self) -> dict[str, str]:
        return {
            "broker.session.timeout.ms": self.chance.choice(("1000", "3000")),
            "replica.lag.time.max.ms": self.chance.choice(("1000", "5000")),
            "offsets.topic.num.partitions": self.chance.choice(("1", "4")),
        }

    def _options(self) -> LogOptions:
        return LogOptions(
            writes_per_key=self.chance.choice((32, 256)),
            careless=self.chance.choice((0, 1)),
            subscribe=self.chance.random() < 0.5,
            rate=self.chance.choice((50.0, 100.0)),
            crash_every_s=self.chance.choice((4.0, 30.0)),
        )

    async def finish(self) -> float:
        """Calm the weather, then read everything; returns the virtual seconds that took. Raises AssertionError."""
        began_at = self.loop.time()
        await self.weather.clear_up(RECOVERY_S)
        self.missing = await self.load.finish(RECOVERY_S)
        return self.loop.time() - began_at

    def judge(self) -> list[str]:
        """Return everything that is wrong."""
        header = Header(place="sim", workload="jepsen", seed=self.loop.seed)
        return [
            *self.cluster.failures,
            *self.load.faults,
            *judge(header, self.ops).faults(),
            *(
                f"{key}: not read up to {offset} within {RECOVERY_S} s"
                for key, offset in self.missing.items()
            ),
        ]

    def report(self, recovery_s: float) -> Report:
        states = [self.cluster.state(*split_key(key)) for key in self.load.keys]
        return Report(
            acked=self.load.acked_count,
            records=self.load.polled_count,
            elections=sum(state.leader_epoch for state in states if state is not None),
            faults=self.weather.fault_counts(),
            recovery_s=round(recovery_s, 3),
        )


async def jepsen(loop: SimLoop, seconds: float = 15.0) -> Report:
    """Serve Jepsen's clients in a storm of some virtual seconds, read everything, judge. Raises AssertionError."""
    scenario = Jepsen(loop)
    scenario.cluster.start()
    await scenario.cluster.until_ready()
    scenario.load.start()
    await asyncio.sleep(0.3)
    await scenario.weather.storm(seconds)
    recovery_s = await scenario.finish()
    faults = scenario.judge()
    assert not faults, "; ".join(faults[:10])
    return scenario.report(recovery_s)
