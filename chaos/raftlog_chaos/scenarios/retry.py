"""Responses get lost and the leader dies, so that every producer resends batches that may be there already.

Every later leader must recognise a retry, and answer with the offset of its original (KIP-98).
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def retry(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Now and then, hold the leader's answers back, then break its connections. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    clients = [loop.host(each.client.name) for each in scene.producers]
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(8)
        leader = await scene.leader()
        for client in clients:
            loop.clog(scene.cluster.nodes[leader].host, client)
        await asyncio.sleep(scene.a_while(0.02, 0.1, 0.3))
        how = scene.chance.choice(("kill", "leave", "cut"))
        if how == "kill":
            scene.cluster.restart(leader, power_loss=scene.power())
        elif how == "leave":
            scene.cluster.leave(leader)
        else:
            for client in clients:
                loop.cut(scene.cluster.nodes[leader].host, client)
        loop.heal()
        await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
        scene.cluster.start()
    return await scene.end()
