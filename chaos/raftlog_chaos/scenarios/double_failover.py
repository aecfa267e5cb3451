"""Two failovers in quick succession among followers that have different parts of the log and cannot reach each other.

The leader in between wrote unreplicated records, at a lower offset than others reach (KIP-279). The three diverging
logs must become equal again.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop

NODES = 5
"""Two more than replicas, to keep a controller while the replicas come and go."""


async def double_failover(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Play it again and again, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop, nodes=NODES)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await scene.served(3)
        first = await scene.leader()
        second, third = (each for each in scene.state().replicas if each != first)
        hosts = {each: scene.cluster.nodes[each].host for each in (first, second, third)}
        loop.cut(hosts[second], hosts[third])
        loop.clog(hosts[first], hosts[scene.chance.choice((second, second, third))])
        await asyncio.sleep(scene.a_while(0.05, 0.3))
        scene.cluster.crash(first, power_loss=scene.power())
        successor = await scene.leader()
        await asyncio.sleep(scene.a_while(0.1, 0.3, 0.6))
        scene.cluster.crash(successor, power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.2))
        loop.heal()
        await asyncio.sleep(scene.a_while(0.0, 0.5))
        scene.cluster.start()
    return await scene.end()
