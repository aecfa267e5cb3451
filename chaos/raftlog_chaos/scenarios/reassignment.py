"""Partitions move from broker to broker while nodes die, links break and clients write (KIP-455).

First anything goes: moves, swaps, more and fewer replicas, cancelled and overridden, amid a storm. Then, in the calm,
each partition is moved to a node that is away. The move must stay pending, and later complete or be cancelled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from raftlog.metadata.controller_api import BrokerDrain, DrainBroker
from raftlog_chaos.faults.fault_swarm import BACK_AFTER_S, FAULTS, FaultSwarm
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.consumer import Consumer
from raftlog_chaos.workloads.mover import Mover
from raftlog_chaos.workloads.producer import Producer
from raftlog_chaos.workloads.raw_client import Client

NODES = 5
PACE_S = 0.1
"""Mean pause of a producer: the play is about moves, and records cost time."""
TOO_MUCH = ("wipe-follower", "relay", "swizzle")
"""A partition may have a single replica here, so no fault may take its disk; and the calm must begin when the storm
ends."""


class Moves(Choreography):
    """The stage, and the mover of the partitions."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, nodes=NODES)
        faults = [name for name in FAULTS if name not in TOO_MUCH]
        names = self.chance.sample(faults, self.chance.randint(2, len(faults)))
        self.weather = FaultSwarm(loop, self.cluster, names)
        self.host = loop.host("mover")
        self.mover = Mover(
            Client("mover", self.cluster.bootstrap),
            TOPIC,
            partitions=PARTITIONS,
            nodes=tuple(self.cluster.nodes),
            history=self.history,
            chance=loop.stream("mover"),
        )

    async def begin(self) -> None:
        await super().begin()
        for worker in (*self.producers, *self.others):
            if isinstance(worker, Producer | Consumer):
                worker.pause_s = max(worker.pause_s, PACE_S)

    async def stormy(self, seconds: float) -> None:
        """Move partitions in the storm, then wait until the outcome of each move is certain."""
        self.host.start(self.mover.run())
        await self.weather.storm(seconds)
        self.mover.stopping = True
        await asyncio.sleep(max(BACK_AFTER_S))  # until every node has restarted by itself
        await self.weather.clear_up(SERVED_S)
        await self.cluster.until(lambda: self.mover.done, SERVED_S, "the mover")
        await asyncio.sleep(max(0.0, self.mover.certain_at - self.loop.time()))
        await self.ended()

    async def ended(self) -> None:
        """Wait until no partition moves any more and all replicas are in sync."""
        await self.cluster.until(self.cluster.all_in_sync, SERVED_S, "all in sync")
        await self.cluster.until(self._nothing_moves, SERVED_S, "the reassignments' end")

    def _nothing_moves(self) -> bool:
        states = [self.cluster.state(TOPIC, index) for index in range(PARTITIONS)]
        return all(each is not None and not each.is_reassigned for each in states)

    async def ask(self, work: Any) -> Any:
        return await self.host.start(work)

    async def to_one_that_is_away(self, index: int) -> None:
        """Move a partition to an absent node; then start that node, or cancel the move."""
        state = self.cluster.state(TOPIC, index)
        assert state is not None
        origin = state.replicas
        away = self.chance.choice([each for each in self.cluster.nodes if each not in origin])
        stays = [each for each in self.cluster.nodes if each != away]
        target = [away, *self.chance.sample(stays, self.chance.randint(0, 2))]
        self.chance.shuffle(target)
        self.cluster.crash(away, power_loss=self.power())
        code = await self.ask(self.mover.surely(index, tuple(target)))
        assert code == 0, f"a move to {target} was refused with error {code}"
        await asyncio.sleep(self.a_while(0.0, 0.5, 2.0))
        moving = await self.ask(self.mover.ongoing())
        assert moving is None or index in moving, f"{index} is not listed though {away} is away: {moving}"
        await self.served(3)
        if self.chance.random() < 0.5:
            code = await self.ask(self.mover.surely(index, None))
            assert code == 0, f"cancelling was refused with error {code}"
            target = sorted(origin)
        self.cluster.start()
        await self.cluster.until_ready(seconds=SERVED_S)
        await self.ended()
        await self.served(3)
        self.check_replicas(index, target)

    def check_replicas(self, index: int, wanted: list[int]) -> None:
        state = self.cluster.state(TOPIC, index)
        assert state is not None
        found = list(state.replicas) if set(wanted) != set(state.replicas) else wanted
        assert found == wanted, f"{TOPIC}-{index} is on {found}, not on {wanted}"

    async def drained(self) -> None:
        """Drain a broker, check that it leads no partition that is being moved, and let it lead again."""
        node_id = self.chance.choice(tuple(self.cluster.nodes))
        reply = await self.submit(DrainBroker(node_id))
        assert isinstance(reply, BrokerDrain)
        shared = [
            index
            for index in range(PARTITIONS)
            if (state := self.cluster.state(TOPIC, index)) and len(state.replicas) > 1
        ]
        await asyncio.sleep(self.a_while(0.0, 0.5))
        leaders = {index: self.cluster.state(TOPIC, index) for index in shared}
        led = [index for index, state in leaders.items() if state and state.leader == node_id]
        assert not led, f"node {node_id} is drained and leads {led}"
        await self.served(3)
        await self.submit(DrainBroker(node_id, False))

    async def submit(self, request: Any) -> Any:
        """Ask the controller through any node, as its HTTP interface does."""
        sim_node = self.cluster.nodes[self.chance.choice(tuple(self.cluster.nodes))]
        assert sim_node.node is not None
        return await sim_node.host.start(sim_node.node.control.submit(request))

    def check_folders(self) -> None:
        """Check that no node holds a live log of a partition of which it is no replica."""
        for node_id, sim_node in self.cluster.nodes.items():
            disk = sim_node.host.disk
            with disk.undisturbed():
                folders = set(disk.listdir("/data"))
            for index in range(PARTITIONS):
                state = self.cluster.state(TOPIC, index)
                assert state is not None
                if node_id not in state.replicas:
                    assert f"{TOPIC}-{index}" not in folders, f"node {node_id} still has {TOPIC}-{index}"


async def reassignment(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Move partitions in a storm for some virtual seconds, then in the calm. Raises AssertionError."""
    scene = Moves(loop)
    await scene.begin()
    await scene.stormy(seconds)
    for index in range(PARTITIONS):
        await scene.to_one_that_is_away(index)
    await scene.drained()
    report = await scene.end()
    scene.check_folders()
    return replace(
        report, faults={name: each for name, each in report.faults.items() if name not in TOO_MUCH}
    )
