"""A broker is unregistered while it is among the last in sync, and comes back with an older copy of its folders.

The metadata still knows its last process, so the copy is noticed. The replica must not lead: another one was in sync
until the end, and leads as soon as it is back.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.metadata.controller_api import UnregisterBroker
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.eligible_leaders import Leaving
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.rolled_back import RolledBack
from raftlog_chaos.simulator.loop import SimLoop

NODES: Final = 5
"""Two more than replicas: with the first replica back, a majority while the last two in sync are gone."""


class Unregistered(RolledBack, Leaving):
    """The stage: copies of disks, and replicas that leave."""

    async def last_in_sync(self, victim: int) -> int:
        """Crash all replicas, the victim and another one last; returns that other. The first is back."""
        first, other = self.followers(victim)
        self.cluster.crash(first, power_loss=self.power())
        await self.until_isr(victim, other)
        await self.served(self.chance.choice((2, 8)))
        self.cluster.crash(victim, other, power_loss=self.power())
        self.cluster.start(first)
        await self.cluster.until(
            lambda: self.state().leader < 0 and victim in self.state().isr, SERVED_S, "a partition offline"
        )
        return other


async def rolled_back_unregistered(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Unregister a replica's broker and bring back an older copy of it, again and again. Raises AssertionError."""
    scene = Unregistered(loop, nodes=NODES)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.everywhere()
        victim = scene.chance.choice(scene.state().replicas)
        copied = await scene.copy(victim)
        await scene.everywhere()
        await scene.end_life(victim)
        await scene.everywhere()
        other = await scene.last_in_sync(victim)
        await scene.submit(UnregisterBroker(victim))
        if scene.chance.random() < 0.7:
            scene.bring_back(victim, copied)
        scene.cluster.start(victim)
        await asyncio.sleep(scene.a_while(0.5, 2.0))
        scene.cluster.start(other)
        await scene.cluster.until(lambda: scene.state().leader >= 0, SERVED_S, "a leader")
        await scene.everywhere()
        scene.judge_copies()
    return await scene.end()
