"""A replica comes back with an empty disk, while news of its former incarnation is still in flight (KIP-903).

All the others hold everything, and one of them stays: no record may be lost, whichever node dies next.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def wiped(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Wipe one node at a time, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await scene.served(3)
        leader = await scene.leader()
        victim = scene.chance.choice(scene.followers(leader))
        if scene.chance.random() < 0.7:
            await _with_delayed_news(scene, leader, victim)
        else:
            _wipe(scene, victim)
            await asyncio.sleep(scene.a_while(0.0, 0.1, 0.5))
        scene.cluster.crash(*scene.chance.choice(((leader,), (leader,), tuple(scene.cluster.nodes))))
        scene.cluster.start(victim)
        await asyncio.sleep(scene.a_while(0.2, 0.5))
        loop.heal()
        await scene.others_follow(victim)
    return await scene.end()


async def _with_delayed_news(scene: Choreography, leader: int, victim: int) -> None:
    """The replica restarts and is about to be in sync; its leader's AlterPartition reaches the controller after the
    wipe.
    """
    hosts = {each: sim_node.host for each, sim_node in scene.cluster.nodes.items()}
    controller = scene.cluster.leader_id()
    scene.cluster.restart(victim)
    await asyncio.sleep(scene.a_while(0.0, 0.02, 0.1))
    if controller is not None and controller != leader:
        scene.loop.clog(hosts[leader], hosts[controller])
    await asyncio.sleep(scene.a_while(0.1, 0.3, 0.5))
    _wipe(scene, victim)
    await asyncio.sleep(scene.a_while(0.05, 0.2))
    scene.loop.heal()
    scene.loop.cut(hosts[leader], hosts[victim])
    await asyncio.sleep(scene.a_while(0.02, 0.1))


def _wipe(scene: Choreography, victim: int) -> None:
    """The node gets a new disk, without its vote and its metadata, and starts at once."""
    scene.cluster.crash(victim)
    scene.cluster.wipe(victim)
    scene.cluster.start(victim)
