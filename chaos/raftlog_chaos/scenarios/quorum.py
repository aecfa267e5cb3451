"""A quorum under faults, without brokers: no committed entry is lost, and at the end all logs are equal.

Messages and snapshots are split into many parts, and the log is compacted often. The seed chooses how slow the disks
are. So seconds of a run contain events that take hours in production.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from itertools import cycle

from raftlog.quorum.messages import MessageSizes
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import OBSERVER, QuorumCluster
from raftlog_chaos.scenarios.quorum_storm import QuorumFaultSwarm
from raftlog_chaos.simulator.hosts import OFFLOAD_S
from raftlog_chaos.simulator.loop import SimLoop


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one run."""

    voters: int
    committed: int
    acked: int
    elections: int
    faults: dict[str, int]


class QuorumShape:
    """The random parameters of a run: the number of voters, their speed, and the size of a batch."""

    def __init__(self, loop: SimLoop) -> None:
        chance = random.Random(loop.stream("shape").random())
        loop.network.latency_s = chance.choice(((0.0001, 0.0006), (0.001, 0.01), (0.001, 0.04)))
        self.voters = chance.choice((3, 3, 5))
        self.padding = chance.choice((0, 0, 700, 2500))
        """Extra bytes of a batch. Batches larger than a disk sector can be torn by a power cut."""
        self.sizes = MessageSizes(
            batch_bytes=self.padding + 40, chunk_bytes=chance.choice((64, 700, 1 << 20))
        )
        self.compaction = SnapshotPolicy(entries=chance.choice((20, 40, 5000)))
        disks_s = (OFFLOAD_S, (0.001, 0.02), (0.001, 0.06))
        alike = chance.random() < 0.5
        self.offloads_s = chance.choices(disks_s, k=1 if alike else self.voters)
        """Ranges of disk latency: the same for all voters, or a range for each voter."""

    def cluster(self, loop: SimLoop) -> QuorumCluster:
        """Return a cluster with these parameters, not yet started."""
        cluster = QuorumCluster(loop, self.voters, compaction=self.compaction, sizes=self.sizes)
        for host, offload_s in zip(cluster.hosts.values(), cycle(self.offloads_s), strict=False):
            host.offload_s = offload_s
        return cluster


async def quorum_storm(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Append batches with and without faults, to each node that claims to lead; then heal. Raises AssertionError."""
    shape = QuorumShape(loop)
    cluster = shape.cluster(loop)
    storm = QuorumFaultSwarm(loop, cluster)
    cluster.boot()
    cluster.boot_observer()
    await cluster.leader()
    end = loop.time() + seconds
    number = 0
    while loop.time() < end:
        for _ in range(storm.chance.choice((0, 1, 1, 3, 12))):
            number += 1
            padding = b"." * storm.chance.randint(0, shape.padding)
            cluster.append(b"%d%s" % (number, padding), storm.chance.choice([None, None, *cluster.nodes]))
        await storm.wait()
        cluster.check()
        storm.strike()
        cluster.check()
    storm.end()
    await asyncio.sleep(1)
    await cluster.settle(b"end")
    await cluster.until(lambda: cluster.machines[OBSERVER].data == cluster.oracle.committed)
    return Report(
        voters=shape.voters,
        committed=len(cluster.oracle.committed),
        acked=cluster.oracle.acked,
        elections=len(cluster.law.leaders),
        faults=dict(storm.counts),
    )
