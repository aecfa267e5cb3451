"""The leader dies, again and again, and each comes back when the next may be dead already.

Leaders change faster than followers learn of it: a record committed in one epoch must be found in every later epoch.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def relay(loop: SimLoop, seconds: float = 3.0) -> Report:
    """For some virtual seconds, kill the leader of one partition whenever there is a leader. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    await scene.served(5)
    end = loop.time() + seconds
    while loop.time() < end:
        leader = await scene.leader()
        await asyncio.sleep(scene.a_while(0.0, 0.01, 0.1, 0.3))
        scene.cluster.crash(leader, power_loss=scene.power())
        loop.call_later(scene.a_while(0.0, 0.02, 0.2, 0.6), scene.cluster.start, leader)
        await asyncio.sleep(scene.a_while(0.0, 0.05, 0.3))
    return await scene.end()
