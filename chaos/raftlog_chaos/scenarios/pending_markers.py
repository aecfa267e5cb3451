"""A follower of a compacted topic starts anew between a transaction's marker and the commit of that marker.

It has the marker, and cannot know yet whether it stays: so what the transaction wrote must not replace earlier
committed records. It cleans its log in that very moment, while it is isolated from its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import PORT
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import Client, create_topic

TABLE: Final = "table"
KEY: Final = b"key"
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "broker.session.timeout.ms": "3000",
}
CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "400"}
FIRST_PRODUCER_ID: Final = 7_200
PACE_S: Final = 0.2
"""Between two batches of the other writers, virtual seconds: they are not the subject."""
ALONE_S: Final = 1.0
"""The time for an isolated follower to clean its log, virtual seconds."""


async def pending_markers(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Start a follower anew at that moment, again and again for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    scene.pace([PACE_S] * len(scene.producers))
    client = Client("table", scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(client, TABLE, partitions=1, configs=CONFIGS))
    rounds = 0
    end = loop.time() + seconds
    while loop.time() < end or not rounds:
        await scene.whole()
        await _round(scene, FIRST_PRODUCER_ID + rounds)
        rounds += 1
        scene.cluster.start()
        await scene.cluster.until_ready(seconds=SERVED_S)
        await scene.cluster.until(scene.cluster.all_in_sync, SERVED_S, "all in sync")
    report = await scene.end()
    return replace(report, faults={**report.faults, "restart between marker and commit": rounds})


async def _round(scene: Choreography, producer_id: int) -> None:
    leader = await _leader(scene)
    follower, other = scene.chance.sample([each for each in scene.cluster.nodes if each != leader], 2)
    stamp = ProducerIdAndSequence(producer_id, 0, 0)
    await _at(scene, leader, lambda table: _put(table, b"decided"))
    await _at(scene, leader, lambda table: _put(table, b"undecided", stamp))
    await _at(scene, leader, _fill_segment)
    await _reached(
        scene, follower, lambda table: table.high_watermark, "what comes before the marker is committed"
    )
    scene.cluster.pause(other)  # it is in sync, so that no record is committed without it
    marker = TxnMarker(producer_id, 0, commit=True, coordinator_epoch=0)
    await _at(scene, leader, lambda table: table.append_marker(marker, now_ms=0))
    await _at(scene, leader, _fill_segment)
    await _reached(scene, follower, lambda table: table.log_end_offset, "the follower has the marker")
    await asyncio.sleep(scene.a_while(0.1, 0.3))
    await _start_anew(scene, follower, leader)
    await asyncio.sleep(ALONE_S)
    scene.loop.heal()
    scene.cluster.resume(other)


async def _start_anew(scene: Choreography, follower: int, leader: int) -> None:
    """Restart a follower, gently or not, and isolate it from its leader."""
    hosts = scene.cluster.nodes
    if scene.chance.random() < 0.5:
        scene.cluster.leave(follower)
        await scene.cluster.until(lambda: not hosts[follower].running, SERVED_S, "a gentle stop")
    else:
        scene.cluster.crash(follower, power_loss=scene.power())
    scene.loop.clog(hosts[leader].host, hosts[follower].host, (PORT,))
    scene.loop.clog(hosts[follower].host, hosts[leader].host, (PORT,))
    scene.cluster.start(follower)


async def _leader(scene: Choreography) -> int:
    def leads() -> int:
        state = scene.cluster.state(TABLE, 0)
        leader = -1 if state is None else state.leader
        replica = scene.cluster.replica(leader, TABLE, 0) if leader > 0 else None
        return leader if replica is not None and replica.is_leader else 0

    await scene.cluster.until(leads, SERVED_S, "a leader")
    return leads()


async def _at(scene: Choreography, node_id: int, deed: Callable[[Partition], object]) -> None:
    """Call a function on a node's replica, in its process."""
    replica = scene.cluster.replica(node_id, TABLE, 0)
    assert replica is not None
    scene.cluster.nodes[node_id].host.call(deed, replica)
    await asyncio.sleep(scene.a_while(0.002, 0.01))


async def _reached(
    scene: Choreography, follower: int, position: Callable[[Partition], int], what: str
) -> None:
    """Wait until a follower's position is where its leader's log ends now."""
    leader = await _leader(scene)
    replica = scene.cluster.replica(leader, TABLE, 0)
    assert replica is not None
    due = replica.log_end_offset

    def is_reached() -> bool:
        found = scene.cluster.replica(follower, TABLE, 0)
        return found is not None and position(found) >= due

    await scene.cluster.until(is_reached, SERVED_S, what)


def _put(table: Partition, value: bytes, stamp: ProducerIdAndSequence | None = None) -> None:
    records = [new_record(KEY, value, timestamp=-1)]
    if stamp is None:
        table.append_produced(memoryview(build_batch(records)), acks=-1, now_ms=0)
        return
    verification = table.begin_verification(stamp.producer_id, stamp.producer_epoch)
    if verification is not None:
        verification.confirm()  # it is the coordinator, too
    batch = build_batch(records, producer=stamp, attributes=TRANSACTIONAL_BIT)
    table.append_produced(memoryview(batch), acks=-1, now_ms=0)


def _fill_segment(table: Partition) -> None:
    """Write of other keys until what was written before is in a closed segment."""
    for number in range(4):
        records = [new_record(b"filler %d" % number, bytes(150), timestamp=-1)]
        table.append_produced(memoryview(build_batch(records)), acks=-1, now_ms=0)
