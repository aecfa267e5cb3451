"""The whole cluster loses its power amid the work, again and again: what was acknowledged was on the disks."""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop

CHECKPOINTS_MS = ("5", "50", "700")
"""How often recovery points are written: the more often, the sooner a wrong recovery point claims too much."""


async def blackouts(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Cut the power of all nodes while they serve, for some virtual seconds. Raises AssertionError."""
    every_ms = loop.stream("blackouts").choice(CHECKPOINTS_MS)
    scene = Choreography(loop, settings={"log.flush.offset.checkpoint.interval.ms": every_ms})
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(scene.chance.choice((5, 20)))
        await asyncio.sleep(scene.a_while(0.0, 0.05))
        scene.cluster.crash(*scene.cluster.nodes)
        await scene.others_follow(-1)
        await scene.cluster.until_ready()
    return await scene.end()
