"""The system has no file descriptors left for a while: no data is lost, and no disk is considered failed.

A sync or a roll that could not begin is retried and gets further each time. That holds although every third file of its
partition cannot be opened. A metadata journal that could not be rewritten after a snapshot is retried, too: topics that
are created meanwhile cause snapshots. No replica truncates its log meanwhile, so no node has a reason to stop itself.
"""

from __future__ import annotations

import asyncio
from errno import EMFILE, ENFILE, ENOMEM

from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.disk import Extent
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import Client, create_topic

SETTINGS = {"log.segment.bytes": "2048"}
"""A segment rolls after a few batches: each roll opens files, and has a folder to sync."""

THIRDS = 0.4
"""The share of runs in which every third file of one partition cannot be opened, and no others."""
BATCHES_OF_SOME_SEGMENTS = 30

JOURNAL = "/data/raftlog-metadata"
SNAPSHOT_ENTRIES = (2, 5, 5000)
"""A snapshot of the metadata is made after so many entries, and the journal is written anew behind it."""


async def out_of_files(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Fail the opening of files, on one node, or on all before their power fails. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    scene.cluster.compaction = SnapshotPolicy(entries=scene.chance.choice(SNAPSHOT_ENTRIES))
    thirds = loop.stream("thirds").random() < THIRDS
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await scene.served(3)
        everywhere = scene.chance.random() < 0.3
        leader = await scene.leader()
        one = scene.chance.choice((leader, *scene.followers(leader)))
        sick = tuple(scene.cluster.nodes) if everywhere else (one,)
        extent = Extent(
            under=scene.chance.choice(("/data", f"/data/{TOPIC}-{scene.partition}", JOURNAL)),
            rate=scene.chance.choice((1.0, 0.5)),
        )
        if thirds:  # never the journal's files: a node that is fenced for those would cut its log
            extent = Extent(under=f"/data/{TOPIC}-{scene.partition}", every=3)
        for each in sick:
            error = scene.chance.choice((EMFILE, ENFILE, ENOMEM))
            scene.cluster.nodes[each].host.disk.fail("open", error=error, extent=extent)
        topic = f"made-at-{loop.time():.3f}"
        loop.host(topic).start(create_topic(Client(topic, scene.cluster.bootstrap), topic, partitions=1))
        if thirds:
            await _rolled(scene)
        await asyncio.sleep(scene.a_while(0.1, 0.5, 1.5))
        if everywhere:
            scene.cluster.crash(*sick)
        for each in sick:
            scene.cluster.nodes[each].host.disk.mend()
    await scene.whole()
    _judge_disks(scene)
    return await scene.end()


async def _rolled(scene: Choreography) -> None:
    """Wait until the partition has taken more than fits into a few segments."""

    def acked() -> int:
        return len(scene.history.acked.get((TOPIC, scene.partition), ()))

    wanted = acked() + BATCHES_OF_SOME_SEGMENTS
    await scene.cluster.until(lambda: acked() >= wanted, SERVED_S, "segments rolled")


def _judge_disks(scene: Choreography) -> None:
    for sim_node in scene.cluster.running():
        logs = sim_node.node and sim_node.node.broker and sim_node.node.broker.replicas.logs
        assert logs and logs.online == logs.volumes, f"node {sim_node.node_id} took its disk for a failed one"
