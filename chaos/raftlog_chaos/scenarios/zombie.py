"""A leader is cut off from the others or stalls, while its clients keep their connections to it.

Another leader is elected meanwhile. The old leader's responses from then on must hold, as must the time when it learns
of its successor.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop


async def zombie(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Isolate leaders from the other nodes, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(5)
        leader = await scene.leader()
        hide(scene, leader)
        await asyncio.sleep(scene.a_while(0.5, 1.5, 2.5))
        scene.cluster.resume(leader)
        loop.heal()
        await asyncio.sleep(scene.a_while(0.0, 0.2))
        if scene.chance.random() < 0.3:
            scene.cluster.restart(await scene.leader(), power_loss=scene.power())
    return await scene.end()


def hide(scene: Choreography, leader: int) -> None:
    """Isolate a node from the other nodes, not from clients: it stalls, receives no messages, its messages are lost, or
    both.
    """
    nodes = scene.cluster.nodes
    host = nodes[leader].host
    others = [sim_node.host for each, sim_node in nodes.items() if each != leader]
    how = scene.chance.choice(("pause", "cut", "deaf", "mute"))
    if how == "pause":
        scene.cluster.pause(leader)
    for other in others:
        if how == "cut":
            scene.loop.cut(host, other)
        elif how == "deaf":
            scene.loop.clog(other, host)
        elif how == "mute":
            scene.loop.clog(host, other)
