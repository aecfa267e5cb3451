"""A disk reports syncs that did not happen; then its node loses power, and some acknowledged records with it.

No promise holds if a majority of disks lies, if the last replica's disk does, or if a voter forgets its vote. Nor does
any hold if the controller's disk lies. A new controller has no heartbeats yet except its own, so ISRs stand still, and
its own replica counts as complete. So the disk of another node lies, about records only. No other fault happens until
that replica has everything again; it leaves its ISRs when it registers. Only a reader notices what it lacks below its
recovery point, so all of it is read before the next disk lies.
"""

from __future__ import annotations

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.corruption import scrub
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop


async def lying_disk(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Let one disk at a time lie and lose its power, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    scene.cluster.may_rot = (
        True  # a replica that lacks what it had checkpointed rightly takes itself for damaged
    )
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scrub(scene)
        leader = await scene.leader()
        controller = scene.cluster.leader_id()
        liar = scene.chance.choice(
            [each for each in (leader, *scene.followers(leader)) if each != controller]
        )
        disk = scene.cluster.nodes[liar].host.disk
        disk.lies = _is_segment
        await scene.served(scene.chance.choice((1, 5, 20)))
        scene.cluster.crash(liar)
        disk.lies = None
        await scene.served(scene.chance.choice((0, 1, 5)))
        scene.cluster.start(liar)
        await scene.whole()
        if scene.chance.random() < 0.5:
            scene.cluster.crash(await scene.leader())
    scene.stop()
    await scrub(scene)
    return await scene.end()


def _is_segment(path: str) -> bool:
    return path.startswith(f"/data/{TOPIC}-") and path.endswith(".log")
