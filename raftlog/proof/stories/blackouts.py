"""The whole cluster loses its power amid the work, again and again: what was acknowledged was on the disks."""

from __future__ import annotations

import asyncio

from raftlog.proof.simulator.loop import SimLoop
from raftlog.proof.stories.endurance import Endurance, Report


async def blackouts(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Once a virtual second, cut the power of all nodes while they serve. Raises AssertionError."""
    story = Endurance(loop)
    await story.begin()
    for _ in range(round(seconds)):
        acked = story.history.acked_count
        await story.cluster.until(lambda acked=acked: story.history.acked_count > acked + 20, 30, "served")  # type: ignore[misc]
        story.cluster.crash(*story.cluster.nodes)
        await asyncio.sleep(0.2)
        story.cluster.start()
        await story.cluster.until_ready()
    recovery_s = await story.finish()
    assert not (faults := story.judge()), "; ".join(faults[:10])
    return story.report(recovery_s)
