"""A disk fails syncs or writes for a moment; later all nodes lose power, and the node with that disk restarts first.

After a failed sync the contents of the disk are unknown, and a later sync does not change that. Such a replica counts
for nothing until it has been read anew. It must say so before it reports what it has.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop


async def disk_errors(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Fail one node's disk, then the power of all, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await scene.served(3)
        leader = await scene.leader()
        sick = scene.chance.choice((leader, *scene.followers(leader)))
        disk = scene.cluster.nodes[sick].host.disk
        scene.cluster.nodes[sick].troubled = True
        disk.fail(scene.chance.choice(("sync", "sync", "write")), under=f"/data/{TOPIC}-{scene.partition}")
        await asyncio.sleep(scene.a_while(0.05, 0.2, 0.5))
        disk.mend()
        await asyncio.sleep(scene.a_while(0.0, 0.1, 0.5))
        scene.cluster.crash(*scene.cluster.nodes)
        scene.cluster.start(sick)
        await scene.others_follow(sick)
    return await scene.end()
