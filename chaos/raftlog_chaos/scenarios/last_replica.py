"""All replicas but one are gone, then the last as well, and others come back before it (KIP-966, KAFKA-1211).

With fewer in sync than min.insync.replicas nothing more is acknowledged. And a replica out of sync waits for the last
replica of the ISR, however long that takes.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop

NODES = 5
"""Two more than replicas, so that there is a controller while two of the replicas are gone."""


async def last_replica(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Leave one replica alone, take it away too, bring the others back first. Raises AssertionError."""
    scene = Choreography(loop, nodes=NODES)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(3)
        leader = await scene.leader()
        for follower in scene.followers(leader):
            scene.cluster.crash(follower, power_loss=scene.power())
            await asyncio.sleep(scene.a_while(0.0, 0.3, 1.0))
        if scene.chance.random() < 0.7:
            await scene.cluster.until(lambda: len(scene.state().isr) == 1, 10, "an ISR of one")
        await _nothing_is_acknowledged(scene, leader, scene.a_while(0.1, 0.5))
        scene.cluster.crash(leader, power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.3))
        scene.cluster.start(*(each for each in scene.cluster.nodes if each != leader))
        await asyncio.sleep(scene.a_while(0.3, 1.0, 1.5))
        scene.cluster.start()
    return await scene.end()


async def _nothing_is_acknowledged(scene: Choreography, leader: int, seconds: float) -> None:
    """No record is acknowledged for so long with a known small ISR; records appended before may have been in time."""
    await asyncio.sleep(0.1)
    replica = scene.cluster.replica(leader, TOPIC, scene.partition)
    if replica is None or len(scene.state().isr) > 1:
        return
    end = replica.log_end_offset
    await asyncio.sleep(seconds)
    if scene.state().isr == (leader,):
        late = [
            each for each in scene.history.acked.get((TOPIC, scene.partition), ()) if each.base_offset >= end
        ]
        assert not late, f"{late[0]} was acknowledged by one replica, min.insync.replicas is 2"
