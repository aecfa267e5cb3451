"""`__consumer_offsets` is cleaned on every replica while groups commit and their coordinators die.

Acknowledged offsets are read back from logs full of holes, by coordinators that begin in the middle of a cleaning. And
the logs stay small, however much is committed. The watcher checks each replica's table (`expected_table.py`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.commits import employ_committer
from raftlog_chaos.scenarios.compaction import cleanings
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.committer import Committer

GROUPS = 4
SEGMENT_BYTES = 2000
MAX_BYTES = 8 * SEGMENT_BYTES
"""Limit for one replica: a dozen keys, the active segment, and the writes between two runs of the cleaner."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.min.cleanable.ratio": "0.2",
    "log.cleaner.backoff.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "100",
}


async def offsets_cleaned(loop: SimLoop, seconds: float = 4.0) -> Report:
    """For some virtual seconds, kill the coordinator, or all. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    scene.pace([1.0] * len(scene.producers))
    committers = [employ_committer(scene, f"g{number}") for number in range(GROUPS)]
    end, died = loop.time() + seconds, 0
    while loop.time() < end:
        await _progress(scene, committers, 25)
        state = scene.cluster.state(CONSUMER_OFFSETS_TOPIC, 0)
        assert state is not None
        nodes = (state.leader,) if scene.chance.random() < 0.8 else tuple(scene.cluster.nodes)
        scene.cluster.crash(*(each for each in nodes if each > 0), power_loss=scene.power())
        died += 1
        await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
        scene.cluster.start()
    await scene.whole()
    await _progress(scene, committers, 100)
    await scene.cluster.until(lambda: _largest(scene) < MAX_BYTES, SERVED_S, "every replica's log is small")
    for each in committers:
        each.stopping = True
    report = await scene.end()
    return replace(report, faults={**report.faults, "coordinator killed": died, "cleaning": cleanings(scene)})


def _largest(scene: Choreography) -> int:
    replicas = [scene.cluster.replica(each, CONSUMER_OFFSETS_TOPIC, 0) for each in scene.cluster.nodes]
    sizes = [each.log.size_bytes for each in replicas if each is not None and each.log.cleaned_until > 0]
    return max(sizes) if len(sizes) == len(scene.cluster.nodes) else MAX_BYTES


async def _progress(scene: Choreography, committers: list[Committer], commits: int) -> None:
    wanted = sum(each.acked for each in committers) + commits
    await scene.cluster.until(lambda: sum(each.acked for each in committers) >= wanted, SERVED_S, "committed")
