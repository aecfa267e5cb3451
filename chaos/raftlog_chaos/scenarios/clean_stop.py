"""A node stops gently and comes back; later all lose their power, and it restarts first.

A clean stop vouches for that stop only: after the next crash all unsynced data is doubted again.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def clean_stop(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Stop one gently, then crash all, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        leader = await scene.leader()
        gentle = scene.chance.choice((leader, *scene.followers(leader)))
        await _stop(scene, gentle)
        await asyncio.sleep(scene.a_while(0.0, 0.2))
        await scene.whole()
        await scene.served(scene.chance.choice((1, 10, 30)))
        scene.cluster.crash(*scene.cluster.nodes)
        scene.cluster.start(gentle)
        await scene.others_follow(gentle)
    return await scene.end()


async def _stop(scene: Choreography, node_id: int) -> None:
    sim_node = scene.cluster.nodes[node_id]
    scene.cluster.leave(node_id)
    await scene.cluster.until(lambda: not sim_node.running, 30, "a gentle stop")
