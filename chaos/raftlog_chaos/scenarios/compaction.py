"""A compacted topic is cleaned on every replica while leaders die and followers are away: no key is lost or comes back.

Each replica's records are judged after each of its cleanings by the watcher (`expected_table.py`). Another log,
the dirtiest of all, holds batches that were made to stop compaction: the table must be cleaned in spite of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.keyed import KeyedWriter
from raftlog_chaos.workloads.made_up import impossible_batch
from raftlog_chaos.workloads.raw_client import Client, create_topic

TABLE = "table"
HOSTILE = "hostile"
SETTINGS = {"log.cleaner.backoff.ms": "150", "log.flush.offset.checkpoint.interval.ms": "100"}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"}
CLEANED_S = 60.0


async def compaction(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Overwrite and delete keys for some virtual seconds, with crashes; clean all; judge. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    configs = {
        **CONFIGS,
        "segment.bytes": scene.chance.choice(("400", "1000", "3000")),
        "delete.retention.ms": scene.chance.choice(("0", "50", "500")),
    }
    client = Client("table", scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(client, TABLE, partitions=1, configs=configs))
    hostile = {**CONFIGS, "segment.bytes": "400", "min.cleanable.dirty.ratio": "0"}
    await loop.host("admin").start(create_topic(client, HOSTILE, partitions=1, configs=hostile))
    await write_impossible(scene)
    writer = KeyedWriter(loop.stream("keyed"))
    await write_between_crashes(scene, writer, seconds, crashes=0.01)
    await clean_all(scene, writer)
    report = await scene.end()
    assert writer.transactions, (
        "no transaction came to its end: what is told of them here would prove nothing"
    )
    seen = {"cleaning": cleanings(scene), "transaction": writer.transactions}
    return replace(report, faults={**report.faults, **seen})


async def write_impossible(scene: Choreography) -> None:
    """Fill a few segments with batches that compaction cannot rebuild."""

    def fill(replica: Partition) -> None:
        for _ in range(20):
            replica.append_produced(memoryview(impossible_batch()), acks=1, now_ms=0, max_timestamp=1)

    def leader() -> Partition | None:
        state = scene.cluster.state(HOSTILE, 0)
        replica = None if state is None else scene.cluster.replica(state.leader, HOSTILE, 0)
        return replica if replica is not None and replica.is_leader else None

    await scene.cluster.until(lambda: leader() is not None, SERVED_S, "a leader")
    replica = leader()
    assert replica is not None
    scene.cluster.nodes[replica.host.broker_id].host.call(fill, replica)


def write_to_table(scene: Choreography, writer: KeyedWriter) -> None:
    """Append a batch or a marker on the leader, if there is a leader."""
    found = scene.cluster.leader_replica(TABLE, 0)
    if found is not None:
        leader, replica = found
        leader.host.call(writer.step, replica)


async def write_between_crashes(
    scene: Choreography, writer: KeyedWriter, seconds: float, *, crashes: float
) -> None:
    """Write to the table while nodes crash, with this chance at each write, and wait until all are there again."""
    end = scene.loop.time() + seconds
    while scene.loop.time() < end:
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        scene.cluster.check()
        write_to_table(scene, writer)
        if scene.chance.random() < crashes:
            _crash_one(scene)
    scene.stop()
    await scene.whole()


def _crash_one(scene: Choreography) -> None:
    """Crash a leader for a moment, or a follower for so long that the others go on and clean without it."""
    running = [each.node_id for each in scene.cluster.running()]
    if len(running) < len(scene.cluster.nodes):
        return
    chosen = scene.chance.choice(running)
    scene.cluster.crash(chosen, power_loss=scene.power())
    scene.loop.call_later(scene.a_while(0.0, 0.3, 1.5), scene.cluster.start, chosen)


async def clean_all(scene: Choreography, writer: KeyedWriter) -> None:
    """Keep writing until every replica has cleaned once more, up to the present end of the committed records."""
    due = max(
        replica.log_end_offset
        for node_id in scene.cluster.nodes
        if (replica := scene.cluster.replica(node_id, TABLE, 0)) is not None
    )

    def all_cleaned() -> bool:
        write_to_table(scene, writer)
        replicas = [scene.cluster.replica(node_id, TABLE, 0) for node_id in scene.cluster.nodes]
        return all(each is not None and each.log.cleaned_until >= due for each in replicas)

    await scene.cluster.until(all_cleaned, CLEANED_S + SERVED_S, "every replica cleaned")


def cleanings(scene: Choreography) -> int:
    """How many cleanings the nodes' present lives have finished."""
    brokers = [sim_node.node.broker for sim_node in scene.cluster.running() if sim_node.node is not None]
    return sum(each.housekeeping.compaction.cleanings for each in brokers if each is not None)
