"""A replica falls behind unnoticed, then the replicas that are up to date die, and it is the only witness on their
return.

This is the strictest test of an acknowledgement. It isolates a minority, power-fails a replica that is up to date, and
lets the stale and the crashed replica go on together.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop


async def pause_kill(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Isolate one node, kill another, swap them, and heal, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.served(3)
        leader = await scene.leader()
        stale, other = scene.followers(leader)
        await _hide(scene, stale, leader, other)
        await asyncio.sleep(scene.a_while(0.3, 1.0, 2.0))
        fresh = [leader, other]
        scene.chance.shuffle(fresh)
        scene.cluster.crash(*fresh[: scene.chance.choice((1, 1, 2))], power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.1))
        await _swap(scene, stale, fresh)
    return await scene.end()


async def _hide(scene: Choreography, stale: int, leader: int, other: int) -> None:
    """Pause it, or cut it off from its leader or from both, in silence or not."""
    hosts = {each: sim_node.host for each, sim_node in scene.cluster.nodes.items()}
    how = scene.chance.choice(("pause", "leader", "deaf", "mute", "all"))
    if how == "pause":
        scene.cluster.pause(stale)
    elif how == "leader":
        scene.loop.cut(hosts[stale], hosts[leader])
    elif how == "deaf":
        scene.loop.clog(hosts[leader], hosts[stale])
    elif how == "mute":
        scene.loop.clog(hosts[stale], hosts[leader])
    else:
        scene.loop.cut(hosts[stale], hosts[leader])
        scene.loop.cut(hosts[stale], hosts[other])


async def _swap(scene: Choreography, stale: int, fresh: list[int]) -> None:
    """Release the stale node; a fresh node comes back with it, and the other later."""
    scene.cluster.resume(stale)
    scene.loop.heal()
    first, last = fresh
    if scene.chance.random() < 0.5:
        scene.cluster.crash(last, power_loss=scene.power())
    scene.cluster.start(first)
    await asyncio.sleep(scene.a_while(0.0, 0.3, 1.0))
    scene.cluster.start()
