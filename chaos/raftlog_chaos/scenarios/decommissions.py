"""Brokers are decommissioned while nodes die, links break and clients write.

In the storm a broker leaves, and another broker's decommission is ended again. In the calm the first must become empty
and be unregistered, with every partition on as many brokers as before. Restarted, it is a new broker without replicas.
In some runs it is dead before it is decommissioned, and does not come back until it is unregistered. In others the
second broker dies amid the moves of the first, and leaves for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from raftlog.base.errors import BrokerIdNotRegistered, KafkaError, NoReassignmentInProgress
from raftlog.base.types import NO_BROKER
from raftlog.metadata.controller_api import DecommissionBroker, ErrorReply
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.reassignment import TOO_MUCH, Moves
from raftlog_chaos.simulator.loop import SimLoop

RETRY_S = 0.2
CALM_AFTER_S = 3.0
"""A request that is not answered within this waits for the storm's end, virtual seconds."""
ANSWER_S = 5.0
"""A node that answers later than this stands still or is cut off, virtual seconds."""


class Leaving(Moves):
    """The stage, and a broker that leaves."""

    async def surely(self, request: DecommissionBroker, *harmless: type[KafkaError]) -> None:
        """Retry a request until it is carried out, while faults strike. `harmless`: errors that say the same."""
        began = self.loop.time()
        end = began + SERVED_S
        while True:
            if self.loop.time() > began + CALM_AFTER_S:
                await self.weather.calm()
                self.cluster.start()
            code = await self._ask_any(request)
            if code == 0 or code in [each.code for each in harmless]:
                return
            assert self.loop.time() < end, f"{request} is refused: error {code}"
            await asyncio.sleep(RETRY_S)

    async def _ask_any(self, request: DecommissionBroker) -> int:
        running = [each for each in self.cluster.running() if each.node is not None]
        if not running:
            return -1
        sim_node = self.chance.choice(running)
        assert sim_node.node is not None
        asked = sim_node.host.start(sim_node.node.control.submit(request))
        await asyncio.wait([asked], timeout=ANSWER_S)
        if not asked.done() or asked.cancelled():
            asked.cancel()
            return -1  # the node stands still, or died meanwhile
        error = asked.exception()
        if isinstance(error, KafkaError):
            return int(error.code)
        reply = asked.result()
        return int(reply.error_code) if isinstance(reply, ErrorReply) else 0

    def factors(self) -> Mapping[tuple[str, int], int]:
        """Return the number of replicas of every partition, as they shall be."""
        return {
            (topic.name, number): len(state.target_replicas)
            for topic in self.cluster.last_image().topics.values()
            for number, state in enumerate(topic.partitions)
        }

    def dies(self, broker_id: int) -> None:
        """Kill a broker for good."""
        self.cluster.crash(broker_id, power_loss=self.power())
        self.cluster.dead.add(broker_id)

    async def missed(self, broker_id: int) -> None:
        """Wait until no partition counts on a broker."""

        def is_missed() -> bool:
            image = self.cluster.newest_image()
            return image is not None and not any(
                broker_id in state.isr for topic in image.topics.values() for state in topic.partitions
            )

        await self.cluster.until(is_missed, SERVED_S, f"broker {broker_id} is in no ISR")

    async def amid_faults(self, first: int, second: int, seconds: float, *, second_dies: bool) -> None:
        """Decommission a broker, and begin and end that of another, or decommission the other as well when it dies."""
        others = [each for each in self.cluster.nodes if each not in (first, second)]
        replace_with = self.chance.choice((NO_BROKER, self.chance.choice(others)))
        storm = asyncio.ensure_future(self.weather.storm(seconds))
        await asyncio.sleep(self.a_while(0.0, 0.5))
        await self.surely(DecommissionBroker(first, replace_with), BrokerIdNotRegistered)
        if second_dies:
            self.dies(second)
        await self.surely(DecommissionBroker(second), BrokerIdNotRegistered)
        await asyncio.sleep(self.a_while(0.0, 0.2, 1.0))
        if not second_dies:
            await self.surely(
                DecommissionBroker(second, ended=True), BrokerIdNotRegistered, NoReassignmentInProgress
            )
        await storm
        await self.weather.calm()

    async def left(self, broker_id: int) -> None:
        """Wait until the broker was unregistered. A restart in the storm may have registered it again since."""

        def unregistered() -> bool:
            self.cluster.start()  # a node may end itself even in the calm, because of a disk that failed it
            image = self.cluster.newest_image()
            return image is not None and broker_id not in image.decommissions

        await self.cluster.until(unregistered, SERVED_S, f"broker {broker_id} is empty")
        image = self.cluster.last_image()
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                unknown = set(state.replicas) - image.brokers.keys()
                assert not unknown, f"{topic.name}-{number} is on unregistered brokers {unknown}"


async def decommissions(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Decommission brokers in a storm of some virtual seconds. Raises AssertionError."""
    scene = Leaving(loop)
    await scene.begin()
    await scene.cluster.until(scene.cluster.all_in_sync, SERVED_S, "all in sync")
    before = scene.factors()
    first, second = scene.chance.sample(tuple(scene.cluster.nodes), 2)
    fate = scene.chance.choice(("all live", "first is dead", "second dies"))
    if fate == "first is dead":
        scene.dies(first)
        await scene.missed(first)
    await scene.amid_faults(first, second, seconds, second_dies=fate == "second dies")
    await scene.left(first)
    if fate == "second dies":
        await scene.left(second)
    after = scene.factors()
    assert {each: after[each] for each in before} == before, "partitions have other numbers of replicas"
    await scene.served(3)
    scene.cluster.dead.clear()
    gone = [each for each in scene.cluster.nodes if each not in scene.cluster.last_image().brokers]
    scene.cluster.restart(*gone)
    await scene.cluster.until_ready(seconds=SERVED_S)
    await scene.ended()
    report = await scene.end()
    scene.check_folders()
    return replace(
        report, faults={name: each for name, each in report.faults.items() if name not in TOO_MUCH}
    )
