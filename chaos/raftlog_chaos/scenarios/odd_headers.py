"""Clients send headers that say little or wrong about the times of their records, and nodes restart meanwhile.

Retention and compaction look at each log many times a second, for records of an hour ago. A run lasts seconds, so no
fresh record may expire, on any replica, whatever its header said; old records of honest clients may. Segments of
records without timestamps roll by the clock, neither with each batch nor never.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from raftlog.replication.partition import Partition
from raftlog_chaos.checkers.ages import judge_fresh, judge_headers
from raftlog_chaos.checkers.records import read_batches
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.odd_headers import HOUR_MS, ODD, OLD, UNTIMED, OddWriter
from raftlog_chaos.workloads.raw_client import Client, create_topic

SETTINGS: Final = {
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.segment.bytes": "1048576",
}
RETAINED, AGING, LAGGING, UNTIMED_TOPIC = "retained", "aging", "lagging", "untimed"
TOPICS: Final[dict[str, dict[str, str]]] = {
    RETAINED: {"retention.ms": str(HOUR_MS)},
    AGING: {"retention.ms": str(HOUR_MS)},
    LAGGING: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": str(HOUR_MS),
    },
    UNTIMED_TOPIC: {"retention.ms": str(HOUR_MS)},
}
KINDS: Final = {
    RETAINED: tuple(ODD),
    AGING: (*UNTIMED, OLD),
    LAGGING: (*UNTIMED, OLD),
    UNTIMED_TOPIC: UNTIMED,
}
"""The kinds of batches in each topic. No fresh timestamp beside them hides the age of records without a timestamp."""
SEGMENT_MS: Final = ("300", "600")
MIN_BATCHES: Final = 40
SEGMENTS_PER_BATCH: Final = 0.75
"""The maximum for a topic without timestamps. More would mean that each batch begins a new segment."""


async def odd_headers(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Write odd headers for some virtual seconds and restart nodes; then judge each replica. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    writers = [await _employ(scene, topic) for topic in TOPICS]
    end = loop.time() + seconds
    while loop.time() < end or min(each.batches for each in writers) < MIN_BATCHES:
        await asyncio.sleep(scene.a_while(0.1, 0.5))
        node_id = scene.chance.choice((*scene.cluster.nodes,))
        if scene.chance.random() < 0.4:
            scene.cluster.leave(node_id)
            await scene.cluster.until(lambda n=node_id: not scene.cluster.nodes[n].running, SERVED_S, "left")  # type: ignore[misc]
        else:
            scene.cluster.crash(node_id, power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.2))
        scene.cluster.start()
        await scene.cluster.until_ready(seconds=SERVED_S)
    for each in writers:
        each.stopping = True
    scene.stop()
    await scene.cluster.until(lambda: all(each.done for each in writers), SERVED_S, "all writers done")
    await scene.whole()
    await scene.cluster.until(lambda: all(_are_equal(scene, each) for each in TOPICS), SERVED_S, "all equal")
    await asyncio.sleep(1.0)  # retention and compaction look at each log once more
    faults = [fault for each in writers for fault in _judge(scene, each)]
    assert not faults, "; ".join(faults[:10])
    report = await scene.end()
    return replace(report, faults={**report.faults, "odd batch": sum(each.batches for each in writers)})


async def _employ(scene: Choreography, topic: str) -> OddWriter:
    """Create a topic and start its writer."""
    loop, name = scene.loop, f"odd-{topic}"
    configs = {**TOPICS[topic], "segment.ms": scene.chance.choice(SEGMENT_MS)}
    client = Client(name, scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(client, topic, partitions=1, configs=configs))
    host = loop.host(name)
    writer = OddWriter(
        client, topic, KINDS[topic], wall_clock_ms=host.wall_clock_ms, chance=loop.stream(f"client/{name}")
    )
    host.start(writer.run())
    return writer


def _replicas(scene: Choreography, topic: str) -> dict[int, Partition]:
    found = {node: scene.cluster.replica(node, topic, 0) for node in scene.cluster.nodes}
    return {node: each for node, each in found.items() if each is not None}


def _are_equal(scene: Choreography, topic: str) -> bool:
    replicas = _replicas(scene, topic).values()
    return (
        len(replicas) == len(scene.cluster.nodes)
        and len({(each.high_watermark, each.log_end_offset) for each in replicas}) == 1
    )


def _judge(scene: Choreography, writer: OddWriter) -> list[str]:
    faults = list(writer.refused)
    for node, replica in _replicas(scene, writer.topic).items():
        found = judge_headers(read_batches(replica.log, replica.high_watermark))
        found += judge_fresh(replica.log, replica.high_watermark, writer.acked)
        segments = len(replica.log.segments)
        if writer.topic == UNTIMED_TOPIC and not 1 < segments < writer.batches * SEGMENTS_PER_BATCH:
            found.append(f"{segments} segments hold {writer.batches} batches")
        faults += [f"node {node}, {writer.topic}: {each}" for each in found]
    return faults
