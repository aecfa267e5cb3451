"""The scenario of nodes that hang in a calm cluster: their connections stay, and nothing answers.

Whichever node it is, the active controller too, each partition acknowledges records again soon. Nodes that stand still
now and then, and lead the quorum in turn, are each fenced once for that. Otherwise leaderships would move again and
again.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from raftlog.controller.broker_liveness import HUNG_REASON
from raftlog.metadata.causes import Cause
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.simple import SimpleClient

TOPIC: Final = "beats"
PARTITIONS: Final = 6

ACKNOWLEDGES_S: Final = 1.5
"""Each partition acknowledges again within this, virtual seconds after a node began to hang."""

TIMEOUT_S: Final = 0.1
"""How long a client waits for a response: a stock client's own timeout would hide how soon there is a leader."""

PACE_S: Final = 0.05
"""A client's pause between two records."""

HANGS_S: Final = 2.5
"""How long a node hangs, at least."""

STANDS_STILL_S: Final = 1.7
"""How long a node stands still now and then: long enough to be fenced for it."""

RUNS_ON_S: Final = 22.0
"""How long the cluster is calm between: nothing is late any more (`lateness.REMEMBERED_S`)."""

STANDSTILLS: Final = 5

READY_S: Final = 60.0


class HungNodes:
    """A cluster, and a client for each partition."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("hung-nodes").random())
        self.cluster = SimCluster(loop, self.chance.choice((3, 3, 5)))
        self.acked = [0] * PARTITIONS
        self.hung = 0
        self._sent_at = [0.0] * PARTITIONS
        """When the last acknowledged record of each partition was sent."""

    async def begin(self) -> None:
        """Start the cluster and create the topic."""
        self.cluster.start()
        await self.cluster.until_ready()
        await SimpleClient(self._client("admin", 1.0)).create_topic(TOPIC, partitions=PARTITIONS)
        await self.cluster.until(self.cluster.all_in_sync, READY_S, "all in sync")

    def _client(self, name: str, timeout_s: float) -> Client:
        addresses = [(each.host.name, PORT) for each in self.cluster.nodes.values()]
        return Client(name, addresses, timeout_s=timeout_s)

    async def _beat(self, partition: int) -> None:
        client = SimpleClient(self._client(f"client{partition}", TIMEOUT_S))
        while True:
            sent_at = self.loop.time()
            try:
                await client.produce(TOPIC, partition, b"beat")
            except AWAY:
                pass
            else:
                self.acked[partition] += 1
                self._sent_at[partition] = sent_at
            await asyncio.sleep(PACE_S)

    def controller(self) -> int:
        """Return the active controller's node."""
        return self.cluster.last_image().controller_id

    async def hang(self, victim: int) -> None:
        """Have a node hang for a while. Raise AssertionError if a partition takes too long to acknowledge again."""
        for partition in range(PARTITIONS):
            self.loop.host("clients").start(self._beat(partition))
        await self._flows(READY_S)
        await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        self.cluster.pause(victim)
        self.hung += 1
        ends_at = self.loop.time() + HANGS_S
        await self._flows(ACKNOWLEDGES_S)
        await asyncio.sleep(ends_at - self.loop.time())
        await self._come_back(victim)

    async def _flows(self, seconds: float) -> None:
        since = self.loop.time()
        await self.cluster.until(
            lambda: min(self._sent_at) > since, seconds, "each partition acknowledges a record"
        )

    async def _come_back(self, victim: int) -> None:
        self.cluster.resume(victim)
        await self.cluster.until_ready(seconds=READY_S)
        await self.cluster.until(self.cluster.all_in_sync, READY_S, "all in sync")
        self.cluster.check()

    async def stand_still(self) -> None:
        """Have the controller of the moment stand still, again and again. Raise AssertionError if one is fenced twice
        for that.
        """
        for _ in range(STANDSTILLS):
            victim = self.controller()
            self.cluster.pause(victim)
            self.hung += 1
            await asyncio.sleep(STANDS_STILL_S)
            await self._come_back(victim)
            await asyncio.sleep(RUNS_ON_S + self.chance.random())
        for each in self.cluster.nodes:
            times = self._fenced_for_hanging(each)
            assert times <= 1, (
                f"broker {each} was fenced {times} times for standing still, and came back each time"
            )

    def _fenced_for_hanging(self, broker_id: int) -> int:
        cause = Cause("taken_for_dead", broker_id, HUNG_REASON)
        histories = [each.node.metadata.history for each in self.cluster.running() if each.node]
        return max(
            sum(cause in change.batch.causes for change in each.broker(broker_id)) for each in histories
        )


async def hung_nodes(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Have a node hang, the controller or another one; or controllers stand still in turn. Raises AssertionError."""
    scenario = HungNodes(loop)
    await scenario.begin()
    await asyncio.sleep(scenario.chance.uniform(0.5, seconds / 2))
    lot = scenario.chance.random()
    if lot < 0.2:
        await scenario.stand_still()
    else:
        controller = scenario.controller()
        others = [each for each in scenario.cluster.nodes if each != controller]
        await scenario.hang(controller if lot < 0.7 else scenario.chance.choice(others))
    return Report(
        acked=sum(scenario.acked),
        elections=scenario.cluster.last_image().controller_epoch,
        faults={"hangs": scenario.hung},
    )
