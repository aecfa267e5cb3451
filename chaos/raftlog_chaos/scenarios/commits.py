"""Groups commit their offsets while their coordinators die, again and again (similar to KAFKA-9807).

An acknowledged offset is never lost, and an offset that was read once is not taken back.
"""

from __future__ import annotations

import asyncio

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.committer import Committer
from raftlog_chaos.workloads.raw_client import Client

GROUPS = 3


async def commits(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Kill the coordinator whenever there is a coordinator, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop, settings={"offsets.topic.num.partitions": "1"})
    await scene.begin()
    committers = [employ_committer(scene, f"g{number}") for number in range(GROUPS)]
    end = loop.time() + seconds
    while loop.time() < end:
        await _progress(scene, committers)
        state = scene.cluster.state(CONSUMER_OFFSETS_TOPIC, 0)
        assert state is not None
        await asyncio.sleep(scene.a_while(0.0, 0.03))
        nodes = (state.leader,) if scene.chance.random() < 0.6 else tuple(scene.cluster.nodes)
        scene.cluster.crash(*(each for each in nodes if each > 0), power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
        scene.cluster.start()
    for each in committers:
        each.stopping = True
    return await scene.end()


async def _progress(scene: Choreography, committers: list[Committer]) -> None:
    wanted = sum(each.acked for each in committers) + 5
    await scene.cluster.until(lambda: sum(each.acked for each in committers) >= wanted, SERVED_S, "committed")


def employ_committer(scene: Choreography, name: str) -> Committer:
    """Start a group with a single member that commits for the scene's partition."""
    chance = scene.loop.stream(f"client/{name}")
    client = Client(name, scene.cluster.bootstrap)
    committer = Committer(client, TOPIC, scene.partition, history=scene.history, chance=chance)
    scene.loop.host(name).start(committer.run())
    return committer
