"""Producer ids are invented by the dozen while responses get lost and leaders die: a retry is recognised all the same.

A partition remembers few producers here. Between a batch and its retry fewer ids are invented than it remembers. So
every later leader still knows the producer, after a restart, a truncation, or a copy of another leader's log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from raftlog.base.errors import KafkaError
from raftlog.replication.partition import Partition
from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.made_up import MadeUpProducers

REMEMBERED: Final = 16
AT_ONCE: Final = 12
"""Ids that are made up between two batches of any producer; with the producers themselves that is below REMEMBERED."""


async def made_up_producers(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Flood, hold the leader's answers back, then break its connections or it. Raises AssertionError."""
    with few_remembered():
        scene = Choreography(loop, settings={"log.flush.offset.checkpoint.interval.ms": "50"})
        await scene.begin()
        clients = [loop.host(each.client.name) for each in scene.producers]
        hostile = MadeUpProducers(scene.history)
        end = loop.time() + seconds
        while loop.time() < end:
            await _all_acknowledged(scene)
            leader = await scene.leader()
            for client in clients:
                loop.clog(scene.cluster.nodes[leader].host, client)
            await asyncio.sleep(scene.a_while(0.01, 0.05))
            for index in range(PARTITIONS):
                _flood(scene, hostile, index)
            await asyncio.sleep(scene.a_while(0.0, 0.05, 0.2))
            if scene.chance.random() < 0.7:
                scene.cluster.restart(leader, power_loss=scene.power())
            else:
                for client in clients:
                    loop.cut(scene.cluster.nodes[leader].host, client)
            loop.heal()
            await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
            scene.cluster.start()
        report = await scene.end()
    assert hostile.written > REMEMBERED * PARTITIONS, "nobody was pushed out: this proves nothing"
    return replace(report, faults={**report.faults, "producer made up": hostile.written})


@contextmanager
def few_remembered() -> Iterator[None]:
    """Make all replicas remember few producers; the number is the same on all brokers, so it is no setting."""
    before, ProducerState.default_max_idle_producers = ProducerState.default_max_idle_producers, REMEMBERED
    try:
        yield
    finally:
        ProducerState.default_max_idle_producers = before


async def _all_acknowledged(scene: Choreography) -> None:
    """Wait until each producer got an acknowledgement for a record that it sent after the last flood, or after the
    start.
    """

    def counts() -> Counter[str]:
        batches = (batch for of_one in scene.history.acked.values() for batch in of_one)
        return Counter(batch.values[0].split(b"/")[0].decode() for batch in batches)

    names = [each.client.name for each in scene.producers]
    for _ in range(2):  # the first may have been sent before
        before = counts()
        await scene.cluster.until(
            lambda before=before: all(counts()[each] >= before[each] + 5 for each in names),  # type: ignore[misc]
            SERVED_S,
            "something acknowledged to each producer",
        )


def _flood(scene: Choreography, hostile: MadeUpProducers, index: int) -> None:
    found = scene.cluster.leader_replica(TOPIC, index)
    if found is not None:
        leader, replica = found
        leader.host.call(_try_to_flood, hostile, replica)


def _try_to_flood(hostile: MadeUpProducers, replica: Partition) -> None:
    try:
        hostile.flood(replica, AT_ONCE)
    except KafkaError:
        return  # it leads no longer, or may not
