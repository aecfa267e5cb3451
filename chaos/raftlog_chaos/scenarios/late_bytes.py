"""A follower's request on a connection that it gave up reaches its leader after all, behind its request on the next.

A fetch offset is a promise, and TCP keeps promises longer than those who made them: the kernel sends what it has taken
even when the process is done with the connection. The producers rest by then, so that nothing later hides the harm.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop

REST_S = 4.0
IN_SYNC_S = 6.0
"""How long producers rest at least, and within which all are in sync again, virtual seconds."""


async def late_bytes(loop: SimLoop, seconds: float = 12.0) -> Report:
    """For some virtual seconds, again and again. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    paces = [each.pause_s for each in scene.producers]
    end = loop.time() + seconds
    while loop.time() < end:
        scene.pace(paces)
        await scene.served(5)
        leader = await scene.leader()
        await _give_up(scene, scene.followers(leader)[0], leader)
        scene.pace([REST_S for _ in paces])
        await asyncio.sleep(scene.a_while(0.1, 0.5))
        loop.heal()
        await scene.cluster.until(scene.cluster.all_in_sync, IN_SYNC_S, "in sync with nothing new to fetch")
    scene.pace(paces)
    return await scene.end()


async def _give_up(scene: Choreography, follower: int, leader: int) -> None:
    """Hold back what the follower asks, or what it is told too, until it tries on another connection."""
    hosts = {each: sim_node.host for each, sim_node in scene.cluster.nodes.items()}
    scene.loop.clog(hosts[follower], hosts[leader])
    if scene.chance.random() < 0.3:
        scene.loop.clog(hosts[leader], hosts[follower])
    await asyncio.sleep(scene.chance.uniform(1.0, 4.0))
