"""A leader's log directories run out of space: other nodes lead in its place, and it returns later.

Its leaderships move once, although preferred leaders are elected all the while, and it leads no new partition. The
metadata is on another disk: a voter with a full journal falls silent, and that alone would move its leaderships.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.base.types import NO_BROKER
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import Client, create_topic

LOGS: Final = "/data/logs"
METADATA: Final = "/data/metadata"
SETTINGS: Final = {
    "log.dirs": LOGS,
    "metadata.log.dir": METADATA,
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
PACE_S: Final = 0.2
"""A run lasts as long as a directory counts as full, so producers pause a while after each batch, virtual seconds."""
GIVEN_AWAY_S: Final = 5.0
"""A node with a full disk gives its leaderships to others within this, virtual seconds."""
ELECTIONS: Final = 3
"""Most elections of one partition while a disk is full: the lead goes, and perhaps once more where a node was late."""

NEW_TOPIC: Final = "made-meanwhile"
NEW_PARTITIONS: Final = 6


async def full_disk(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Fill the disk of a leader for some virtual seconds, and make room again. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    for each in scene.cluster.nodes.values():
        each.host.disk.add_folders(LOGS, METADATA)
    await scene.begin()
    scene.pace([PACE_S] * len(scene.producers))
    await scene.whole()
    full = await scene.leader()
    before = _epochs(scene)
    disk = scene.cluster.nodes[full].host.disk
    disk.fill(LOGS)
    await scene.cluster.until(lambda: full not in _leaders(scene), GIVEN_AWAY_S, "leaderships given away")
    await create_topic(
        Client("admin", scene.cluster.bootstrap, timeout_s=5.0), NEW_TOPIC, partitions=NEW_PARTITIONS
    )
    led = _leaders(scene, NEW_TOPIC, NEW_PARTITIONS)
    assert full not in led, f"node {full} leads a new partition, and its disk is full"
    assert led and NO_BROKER not in led, "a new partition has no leader"
    end = loop.time() + seconds
    while loop.time() < end:
        await _all_served(scene, full)
        await asyncio.sleep(scene.a_while(0.1, 1.0))
        assert full not in _leaders(scene), f"node {full} leads again, and its disk is full"
    elections = max(after - was for was, after in zip(before, _epochs(scene), strict=True))
    assert elections <= ELECTIONS, f"{elections} elections of one partition while a disk was full"
    disk.make_room()
    await scene.cluster.until(lambda: full in _leaders(scene), SERVED_S, f"node {full} leads again")
    return await scene.end()


def _leaders(scene: Choreography, topic: str = TOPIC, partitions: int = PARTITIONS) -> set[int]:
    states = [scene.cluster.state(topic, index) for index in range(partitions)]
    return {state.leader for state in states if state is not None}


def _epochs(scene: Choreography) -> list[int]:
    states = [scene.cluster.state(TOPIC, index) for index in range(PARTITIONS)]
    return [0 if state is None else state.leader_epoch for state in states]


async def _all_served(scene: Choreography, full: int) -> None:
    """Wait until every partition has acknowledged something more."""

    def counts() -> list[int]:
        return [len(scene.history.acked.get((TOPIC, index), ())) for index in range(PARTITIONS)]

    before = counts()
    await scene.cluster.until(
        lambda: all(now > was for was, now in zip(before, counts(), strict=True)),
        SERVED_S,
        f"all partitions served while node {full} has no room",
    )
