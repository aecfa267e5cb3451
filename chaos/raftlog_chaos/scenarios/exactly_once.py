"""Consume, transform, produce with transactions, while coordinators, leaders and producers die between any two steps.

Each number is processed once. No half of a transaction is visible, no committed transaction is lost, and a fenced
producer makes no more commits (KIP-98, 360, 447, 890). When the faults have ended, no transaction stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.zombie import hide
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.exactly_once import (
    STEPS,
    ExactlyOnceModel,
    ExactlyOnceReader,
    ExactlyOnceWorker,
)
from raftlog_chaos.workloads.impostor import AT_ONCE, Impostor
from raftlog_chaos.workloads.raw_client import AWAY, Client, create_topic
from raftlog_chaos.workloads.sole_owner import SlowOwner, SoleOwner
from raftlog_chaos.workloads.successor import Successor

OUTCOMES = "outcomes"
SLOW = "three"
"""The transactional id of an owner that sleeps."""
PARTITIONS = 3
DYING_RATE = 0.5
"""Share of workers that die at some step instead of finishing, and leave their transaction to its timeout."""

STEPPED_S = 5.0
"""Some worker takes a step of any kind within this, virtual seconds."""

COORDINATORS = ((TRANSACTION_STATE_TOPIC, 0), (TRANSACTION_STATE_TOPIC, 0), (CONSUMER_OFFSETS_TOPIC, 0))


class ExactlyOnce:
    """The stage, the workers and their readers."""

    kind: type[ExactlyOnceWorker] = ExactlyOnceWorker
    ids: Sequence[str] = ("one", "two")
    workers_each = 2
    crash_rate = 0.6
    """The share of crashes; otherwise the node is isolated."""
    ended_s = 20.0
    """An abandoned transaction is timed out and ended everywhere within this, virtual seconds."""

    def __init__(self, loop: SimLoop, *, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.chance = loop.stream("exactly-once")
        self.scene = Choreography(
            loop,
            settings={
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "group.min.session.timeout.ms": "500",
                "group.initial.rebalance.delay.ms": "0",
                **settings,
            },
        )
        self.book = ExactlyOnceModel(OUTCOMES, PARTITIONS, self.scene.history)
        self.workers: list[ExactlyOnceWorker] = []
        self.readers: list[ExactlyOnceReader] = []

    async def run(self, seconds: float) -> Report:
        """Kill and isolate the nodes in charge at critical moments, for some virtual seconds. Raises AssertionError."""
        loop = self.scene.loop
        await self.begin()
        end = loop.time() + seconds
        while loop.time() < end:
            await self.moment()
            await self.trouble()
            await self.progress(self.chance.randrange(10))
        return await self.end()

    async def begin(self) -> None:
        scene = self.scene
        await scene.begin()
        scene.pace([2.0] * len(scene.producers))
        admin = Client("books", scene.cluster.bootstrap)
        await scene.loop.host("admin").start(create_topic(admin, OUTCOMES, partitions=PARTITIONS))
        for transactional_id in self.ids:
            for number in range(self.workers_each):
                self.workers.append(self._employ(f"{transactional_id}{number}", transactional_id))
        self.readers = [self._reader(f"reader{index}", index) for index in range(PARTITIONS)]
        await self.progress(1)

    def kind_of(self, transactional_id: str) -> type[ExactlyOnceWorker]:
        """Return the kind of the workers that use a transactional id."""
        return self.kind

    def _employ(self, name: str, transactional_id: str) -> ExactlyOnceWorker:
        chance = self.scene.loop.stream(f"client/{name}")
        client = Client(name, self.scene.cluster.bootstrap)
        worker = self.kind_of(transactional_id)(
            client, transactional_id, book=self.book, bumping=chance.random() < 0.5, chance=chance
        )
        self.scene.loop.host(name).start(worker.run())
        return worker

    def _reader(self, name: str, index: int) -> ExactlyOnceReader:
        reader = ExactlyOnceReader(Client(name, self.scene.cluster.bootstrap), (OUTCOMES, index), self.book)
        self.scene.loop.host(name).start(reader.run())
        return reader

    def rest(self, transactional_id: str) -> None:
        """Let the workers of an id finish."""
        for worker in self.workers:
            if worker.transactional_id == transactional_id:
                worker.stopping = True

    async def progress(self, commits: int) -> None:
        """Wait for so many more commits. Two workers of one id fence each other, so a commit may take seconds."""
        for wanted in range(self.book.commits + 1, self.book.commits + commits + 1):
            await self.scene.cluster.until(
                lambda wanted=wanted: self.book.commits >= wanted,  # type: ignore[misc]
                SERVED_S,
                "committed",
            )

    async def moment(self) -> None:
        """Wait for a while, or until a worker is about to take a step of some kind."""
        if self.chance.random() < 0.3:
            await asyncio.sleep(self.scene.a_while(0.01, 0.1, 1.0))
            return
        stepped = self.book.steps[self.chance.choice(STEPS)]
        stepped.clear()
        try:
            async with asyncio.timeout(STEPPED_S):
                await stepped.wait()
            await asyncio.sleep(self.scene.a_while(0.0, 0.001, 0.005, 0.02))
        except TimeoutError:
            pass

    def victims(self) -> list[int]:
        """Return the nodes that lead a partition of the scenario, or all nodes."""
        cluster = self.scene.cluster
        testbeds = [*COORDINATORS, *((OUTCOMES, index) for index in range(PARTITIONS))]
        chosen = self.chance.sample(testbeds, self.chance.choice((1, 1, 2)))
        states = [cluster.state(*each) for each in chosen]
        leaders = sorted({each.leader for each in states if each is not None and each.leader > 0})
        return leaders if leaders and self.chance.random() < 0.9 else list(cluster.nodes)

    async def trouble(self) -> None:
        """Kill a node, or isolate it from the other nodes, for a while."""
        scene, victims = self.scene, self.victims()
        if self.chance.random() < self.crash_rate:
            scene.cluster.crash(*victims, power_loss=scene.power())
            await asyncio.sleep(scene.a_while(0.0, 0.2, 1.0))
            scene.cluster.start()
            return
        hide(scene, victims[0])
        await asyncio.sleep(scene.a_while(0.3, 1.5, 2.5))
        scene.cluster.resume(victims[0])
        scene.loop.heal()

    async def end(self) -> Report:
        """Let all finish; then check the rest of the input and output from the beginning."""
        scene = self.scene
        for worker in self.workers:
            worker.stopping = True
            if self.chance.random() < DYING_RATE:
                await self.moment()
                scene.loop.host(worker.client.name).crash()
                worker.done = True
        await scene.cluster.until(
            lambda: all(each.done for each in self.workers), SERVED_S, "the workers come to an end"
        )
        await scene.cluster.until(self._all_ended, self.ended_s, "no transaction is open")
        offsets = {each: await self._offset_of(each) for each in self.ids}
        last = {reader.where: await self._read_anew(reader) for reader in self.readers}
        for reader in self.readers:
            reader.stopping = True
        self.book.judge(offsets, last)
        return await scene.end()

    def _all_ended(self) -> bool:
        return all(map(self._ended, range(PARTITIONS)))

    def _ended(self, index: int) -> bool:
        state = self.scene.cluster.state(OUTCOMES, index)
        replica = None if state is None else self.scene.cluster.replica(state.leader, OUTCOMES, index)
        return (
            replica is not None
            and replica.is_leader
            and replica.last_stable_offset == replica.high_watermark == replica.log_end_offset
        )

    async def _offset_of(self, transactional_id: str) -> int:
        found: list[int] = []

        async def look() -> None:
            client = Client("auditor", self.scene.cluster.bootstrap)
            worker = self.kind(client, transactional_id, book=self.book, bumping=False, chance=self.chance)
            while not found:
                try:
                    found.append(await worker.producer().committed())
                except AWAY:
                    continue

        await self.scene.loop.host("auditor").start(look())
        return found[0]

    async def _read_anew(self, before: ExactlyOnceReader) -> list[bytes]:
        """Read a partition from its beginning to its end."""
        index = before.where[1]
        reader = self._reader(f"auditor{index}", index)

        def read_all() -> bool:
            state = self.scene.cluster.state(OUTCOMES, index)
            replica = None if state is None else self.scene.cluster.replica(state.leader, OUTCOMES, index)
            return replica is not None and reader.offset >= replica.last_stable_offset

        await self.scene.cluster.until(read_all, SERVED_S, "all is read")
        reader.stopping = True
        return reader.values


class SoleOwners(ExactlyOnce):
    """The same with an id for each worker, and without superseded coordinators that still answer.

    An impostor writes in their transactions.
    """

    kind = SoleOwner
    ids = ("one", "two", SLOW)
    workers_each = 1
    crash_rate = 1.0
    ended_s = 90.0

    def kind_of(self, transactional_id: str) -> type[ExactlyOnceWorker]:
        return SlowOwner if transactional_id == SLOW else self.kind

    async def begin(self) -> None:
        await super().begin()
        clients = [Client("impostor", self.scene.cluster.bootstrap) for _ in range(AT_ONCE)]
        owners = [each for each in self.workers if isinstance(each, SoleOwner)]
        self.impostor = Impostor(clients, owners, self.book, self.scene.loop.stream("client/impostor"))
        self.scene.loop.host("impostor").start(self.impostor.run())

    async def end(self) -> Report:
        self.impostor.stopping = True
        return await super().end()


class Successors(ExactlyOnce):
    """The same with workers that only their group fences."""

    kind = Successor


async def exactly_once(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Kill and isolate the nodes in charge at critical moments, for some virtual seconds. Raises AssertionError."""
    return await ExactlyOnce(loop).run(seconds)


async def exactly_once_alone(loop: SimLoop, seconds: float = 6.0) -> Report:
    """The same with an id for each worker, so that no worker may be fenced. Raises AssertionError."""
    return await SoleOwners(loop).run(seconds)


async def exactly_once_groups(loop: SimLoop, seconds: float = 6.0) -> Report:
    """The same where each worker has an id of its own, and the group fences them. Raises AssertionError."""
    return await Successors(loop).run(seconds)
