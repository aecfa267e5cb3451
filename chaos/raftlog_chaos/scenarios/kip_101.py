"""A follower restarts, and before it learns its leader's high watermark, the leader dies (KIP-101, KIP-279).

In the second scenario all nodes lose power, and a node with fewer records comes back first. Leader epochs, not high
watermarks, must say where logs diverged; two failovers in quick succession make that hard.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def kip_101(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Alternate between the scenarios for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(3)
        await scene.chance.choice((_restart_then_die, _all_at_once))(scene)
    return await scene.end()


async def _restart_then_die(scene: Choreography) -> None:
    leader = await scene.leader()
    follower = scene.followers(leader)[0]
    scene.cluster.restart(follower, power_loss=scene.power())
    await asyncio.sleep(scene.a_while(0.0, 0.1, 0.3))
    scene.cluster.crash(leader, power_loss=scene.power())
    await asyncio.sleep(scene.a_while(0.0, 0.1, 0.3))
    if scene.chance.random() < 0.5:
        scene.cluster.start(leader)
        successor = await scene.leader()
        await asyncio.sleep(scene.a_while(0.0, 0.03, 0.2))
        scene.cluster.restart(successor, power_loss=scene.power())
    scene.cluster.start()


async def _all_at_once(scene: Choreography) -> None:
    everyone = list(scene.cluster.nodes)
    scene.chance.shuffle(everyone)
    scene.cluster.crash(*everyone)
    for node_id in everyone:
        scene.cluster.start(node_id)
        await asyncio.sleep(scene.a_while(0.0, 0.1, 0.5))
