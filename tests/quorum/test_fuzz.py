"""The whole quorum under seeded faults, in virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest

from raftlog.quorum.messages import MessageSizes
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator import SimLoop, simulate


class QuorumFaults:
    """Faults by chance, never more than the oracle can see through: each is undone before the end."""

    def __init__(self, loop: SimLoop, cluster: QuorumCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.chance = random.Random(loop.stream("storm").random())
        self.down: set[int] = set()
        self.paused: set[int] = set()

    def strike(self) -> None:
        one, other = self.chance.sample(sorted(self.cluster.hosts), 2)
        faults = [self.crash, self.crash, self.pause, self.cut, self.clog, self.blackout]
        cures = [
            self.restart,
            self.restart,
            self.resume,
            self.resume,
            self.heal,
            self.heal,
            self.calm,
            self.calm,
        ]
        self.chance.choice([*faults, *cures])(one, other)

    def crash(self, one: int, _other: int) -> None:
        if one not in self.down:
            self.cluster.crash(one, power_loss=self.chance.random() < 0.8)
            self.down.add(one)
            self.paused.discard(one)

    def restart(self, _one: int, _other: int) -> None:
        for node in sorted(self.down):
            self.cluster.boot(node)
        self.down.clear()

    def pause(self, one: int, _other: int) -> None:
        if one not in self.down | self.paused:
            self.cluster.hosts[one].pause()
            self.paused.add(one)

    def resume(self, _one: int, _other: int) -> None:
        for node in sorted(self.paused):
            self.cluster.hosts[node].resume()
        self.paused.clear()

    def cut(self, one: int, other: int) -> None:
        self.loop.cut(self.cluster.hosts[one], self.cluster.hosts[other])

    def clog(self, one: int, other: int) -> None:
        self.loop.clog(self.cluster.hosts[one], self.cluster.hosts[other])

    def heal(self, _one: int, _other: int) -> None:
        self.loop.heal()

    def blackout(self, _one: int, _other: int) -> None:
        """Power loss of all at once."""
        if self.chance.random() < 0.5:
            for node in sorted(set(self.cluster.hosts) - self.down):
                self.crash(node, node)

    def calm(self, _one: int, _other: int) -> None:
        self.heal(0, 0)
        self.resume(0, 0)
        self.restart(0, 0)


async def storm(loop: SimLoop, voters: int, rounds: int) -> tuple[int, int]:
    """Append batches under faults and without, to every node that thinks it leads; then heal, and check against the
    oracle.
    """
    cluster = QuorumCluster(
        loop, voters, compaction=SnapshotPolicy(entries=40), sizes=MessageSizes(batch_bytes=40)
    )
    weather = QuorumFaults(loop, cluster)
    cluster.boot()
    number = 0
    for _ in range(rounds):
        for _ in range(weather.chance.randrange(0, 40)):
            number += 1
            cluster.append(b"%d" % number, weather.chance.choice([None, *cluster.nodes]))
        await asyncio.sleep(weather.chance.choice([0.0, 0.002, 0.005, 0.02, 0.1, 0.3, 1.0]))
        weather.strike()
        cluster.check()
    weather.calm(0, 0)
    await asyncio.sleep(1)
    await cluster.settle(b"the end")
    return len(cluster.oracle.committed), len(cluster.oracle.leaders)


@pytest.mark.parametrize("seed", range(6))
def test_a_storm_loses_nothing_that_was_committed(seed: int) -> None:
    """Crashes with power loss, pauses and partitions break no promise of Raft's figure 3, and it converges after."""
    voters = 5 if seed % 3 == 2 else 3
    run = simulate(lambda loop: storm(loop, voters, 60), seed=seed)
    committed, leaders = run.result
    assert committed > 100 and leaders > 2, "the storm was none"


def test_the_same_seed_gives_the_same_trace() -> None:
    """The room reads no real time, no real randomness and no hash order."""
    runs = [simulate(lambda loop: storm(loop, 3, 30), seed=99) for _ in range(2)]
    assert runs[0].digest == runs[1].digest
