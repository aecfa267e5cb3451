"""A follower's request on a connection that it closed reaches its leader after all, behind its request on the next.

A fetch offset is a promise, and TCP can deliver it late. The kernel sends the bytes that it has taken even after the
process closed the connection. The producers are idle by then, so that no later write hides the damage.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop

REST_S = 4.0
IN_SYNC_S = 6.0
"""The shortest pause of producers, within which all replicas are in sync again, virtual seconds."""


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
    """Hold back the follower's requests, or the responses too, until it retries on another connection."""
    hosts = {each: sim_node.host for each, sim_node in scene.cluster.nodes.items()}
    scene.loop.clog(hosts[follower], hosts[leader])
    if scene.chance.random() < 0.3:
        scene.loop.clog(hosts[leader], hosts[follower])
    await asyncio.sleep(scene.chance.uniform(1.0, 4.0))
