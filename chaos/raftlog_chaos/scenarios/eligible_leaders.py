"""The last two replicas in sync are lost in turn, and whichever of them comes back first leads (KIP-966).

A third replica left before them, while enough were in sync: it lacks records, and must not lead. The replica that left
last but one may have lost its disk, perhaps with its registration. Or min.insync.replicas may be lowered, so that its
leader goes on alone. Or the leader's log rots, so that it leads for reading only until the other is back.
"""

from __future__ import annotations

import asyncio

from raftlog.metadata.controller_api import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
    Request,
    UnregisterBroker,
)
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.corruption import distrust, rot, scrub
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop

NODES = 5
"""Two more than replicas, so that there is a controller while two of the replicas are gone."""
MIN_INSYNC = "min.insync.replicas"
RETRY_S = 0.2
UNREGISTERED = 0.2
"""The share of the rounds in which a replica is unregistered before it gets a new disk."""


class Leaving(Choreography):
    """The stage, with replicas that leave."""

    async def until_isr(self, *members: int) -> None:
        await self.cluster.until(
            lambda: set(self.state().isr) == set(members), SERVED_S, f"an ISR of {list(members)}"
        )

    async def set_min_insync(self, value: str) -> None:
        """Set min.insync.replicas of the topic."""
        await self.submit(AlterConfigs((ConfigAlteration("topic", TOPIC, (ConfigOp(MIN_INSYNC, value),)),)))

    async def submit(self, request: Request) -> None:
        """Send a request to the controller, at whichever node answers."""
        while True:
            running = [each for each in self.cluster.running() if each.node is not None and each.ready]
            if running:
                chosen = self.chance.choice(running)
                assert chosen.node is not None
                asked = chosen.host.start(chosen.node.control.submit(request))
                await asyncio.wait([asked], timeout=5.0)
                if asked.done() and not asked.cancelled() and asked.exception() is None:
                    return
                asked.cancel()
            await asyncio.sleep(RETRY_S)

    def comes_back(self, node_id: int, leader: int) -> None:
        """Start a node; the nodes without a replica run as well, and the former leader does not."""
        others = [each for each in self.cluster.nodes if each not in self.state().replicas]
        self.cluster.start(node_id, *(each for each in others if each != leader))

    async def leads_again(self, leader: int, first: int, second: int) -> None:
        """Crash the leader too. The replica that left last but one leads without it, though the third runs."""
        self.cluster.crash(leader, power_loss=self.power())
        await asyncio.sleep(self.a_while(0.0, 0.3))
        order = [first, second] if self.chance.random() < 0.5 else [second, first]
        for each in order:
            self.comes_back(each, leader)
            await asyncio.sleep(self.a_while(0.0, 0.5))
        await self.cluster.until(lambda: self.state().leader == second, SERVED_S, f"node {second} leads")
        await self.served(2)

    async def unregistered(self, leader: int, second: int) -> None:
        """Unregister the replica while it is in sync and runs. It is not eligible, whatever its disk."""
        await self.submit(UnregisterBroker(second))
        await self.until_isr(leader)
        self.cluster.crash(second, power_loss=self.power())
        await self.lost_disk(leader, second)

    async def lost_disk(self, leader: int, second: int) -> None:
        """Give the replica that left last but one a new disk: it is no longer eligible, and the leader may
        crash soon.
        """
        self.cluster.wipe(second)
        self.comes_back(second, leader)
        await asyncio.sleep(self.a_while(0.0, 0.2, 1.0))
        self.cluster.crash(leader, power_loss=self.power())
        await asyncio.sleep(self.a_while(0.2, 1.0))

    async def leader_alone(self, leader: int, second: int) -> None:
        """Let the leader alone be enough in sync, crash it soon, and bring the other replica back first."""
        if self.chance.random() < 0.5:
            self.comes_back(second, leader)
            self.loop.cut(self.cluster.nodes[leader].host, self.cluster.nodes[second].host)
        await self.set_min_insync("1")
        await asyncio.sleep(self.a_while(0.0, 0.1, 1.0))
        self.cluster.crash(leader, power_loss=self.power())
        self.comes_back(second, leader)
        await asyncio.sleep(self.a_while(0.2, 1.0))
        self.loop.heal()

    async def rotten_leader(self, leader: int, first: int, second: int) -> None:
        """Crash the leader, flip bits of its log, and start it first: it serves reads only, until the other replica
        comes.
        """
        cluster = self.cluster
        cluster.may_rot = True
        cluster.crash(leader)
        disk = cluster.nodes[leader].host.disk
        if rot(self, disk):
            distrust(disk)
            unclean_epoch = self.state().unclean_epoch
            cluster.start(*(each for each in cluster.nodes if each not in (first, second)))
            await cluster.until(
                lambda: self.state().leader == leader and self.state().isr_lost,
                SERVED_S,
                "a leader for reading",
            )
            if self.chance.random() < 0.5:
                await self.set_min_insync("1")
                await asyncio.sleep(self.a_while(0.1, 2.0))
            if self.chance.random() < UNREGISTERED:
                await self.submit(UnregisterBroker(second))
                assert self.state().eligible == (second,), f"{self.state()}: no other replica has all records"
            cluster.start(*([first, second] if self.chance.random() < 0.5 else [second]))
            await cluster.until(lambda: self.state().leader == second, SERVED_S, f"node {second} leads")
            assert self.state().unclean_epoch == unclean_epoch, "the other had all that was committed"
            await self.served(2)
        await scrub(self)
        cluster.may_rot = False


async def eligible_leaders(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Lose the replicas of a partition in turn, again and again. Raises AssertionError."""
    scene = Leaving(loop, nodes=NODES)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await scene.served(3)
        leader = await scene.leader()
        first, second = scene.followers(leader)
        scene.cluster.crash(first, power_loss=scene.power())
        await scene.until_isr(leader, second)
        await scene.served(2)
        if scene.chance.random() < UNREGISTERED:
            await scene.unregistered(leader, second)
        else:
            scene.cluster.crash(second, power_loss=scene.power())
            await scene.until_isr(leader)
            assert scene.state().eligible == (second,), (
                f"{scene.state()}: node {second} was in sync until now"
            )
            await asyncio.sleep(scene.a_while(0.0, 0.3))
            part = scene.chance.choice(
                (scene.leads_again, scene.lost_disk, scene.leader_alone, scene.rotten_leader)
            )
            if part == scene.leads_again:
                await scene.leads_again(leader, first, second)
            elif part == scene.rotten_leader:
                await scene.rotten_leader(leader, first, second)
            elif part == scene.lost_disk:
                await scene.lost_disk(leader, second)
            else:
                await scene.leader_alone(leader, second)
        scene.cluster.start()
        await scene.set_min_insync("2")
    return await scene.end()
