"""The stage of a choreography: a cluster that serves clients, and one partition as its subject.

A choreography causes one kind of trouble on purpose, at moments that the seed draws; a storm would have to meet it by
chance. It knows the promises to clients, never how raftlog keeps them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.metadata.image import PartitionState
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Endurance, Report
from raftlog_chaos.simulator.loop import SimLoop

SETTINGS = {"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "1000"}
"""An absent node is noticed within a second, so that a run lasts a few seconds."""

REST_AFTER_S = 15.0
REST_S = 2.0
"""A replica that lags for so long gets time: producers pause about that long after each batch, virtual seconds.

With the smallest segments and the slowest disks, a fetch of one segment brings fewer bytes than they write
meanwhile."""

SERVED_S = 60.0
"""After the trouble ends, a leader serves again within this, virtual seconds."""


class Commits(Protocol):
    """A model of a group that counts its commits."""

    @property
    def commits(self) -> int: ...


class Choreography(Endurance):
    """Endurance without its random faults. The scenario is about `partition`."""

    def __init__(self, loop: SimLoop, *, nodes: int = 3, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(loop, nodes=nodes, settings={**SETTINGS, **(settings or {})})
        self.partition = self.chance.randrange(PARTITIONS)

    def state(self) -> PartitionState:
        """Return the partition's state in the newest image."""
        state = self.cluster.state(TOPIC, self.partition)
        assert state is not None
        return state

    async def leader(self) -> int:
        """Wait until a node leads the partition that is ready; returns it."""
        leader = -1

        def leads() -> bool:
            nonlocal leader
            state = self.cluster.state(TOPIC, self.partition)
            leader = -1 if state is None else state.leader  # after all restarted, no broker knows the topic
            return leader >= 0 and self.cluster.nodes[leader].ready

        await self.cluster.until(leads, SERVED_S, "a leader")
        return leader

    def followers(self, leader: int) -> list[int]:
        """Return the other replicas, in random order."""
        others = [each for each in self.state().replicas if each != leader]
        self.chance.shuffle(others)
        return others

    async def served(self, records: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = self.history.acked_count + records
        await self.cluster.until(lambda: self.history.acked_count >= wanted, SERVED_S, "served")

    async def whole(self) -> None:
        """Wait until any node's data may be destroyed: all run, with every replica and every voter caught up."""

        paces = [each.pause_s for each in self.producers]
        rest_at = self.loop.time() + REST_AFTER_S

        def in_sync() -> bool:
            if self.loop.time() > rest_at:
                self.pace([max(REST_S, pause_s) for pause_s in paces])
            states = [self.cluster.state(TOPIC, index) for index in range(PARTITIONS)]
            return not self.cluster.voters_behind() and all(
                each is not None and sorted(each.isr) == sorted(each.replicas) for each in states
            )

        self.cluster.start()
        await self.cluster.until_ready(seconds=SERVED_S)
        await self.cluster.until(in_sync, SERVED_S, "all in sync")
        self.pace(paces)

    def pace(self, pauses_s: Sequence[float]) -> None:
        """Make each producer pause about so long after each batch."""
        for producer, pause_s in zip(self.producers, pauses_s, strict=True):
            producer.pause_s = pause_s

    async def others_follow(self, first: int) -> None:
        """Start the others after a while: sooner or later there is a majority, of which `first` is part."""
        others = [each for each in self.cluster.nodes if each != first]
        self.chance.shuffle(others)
        for each in others:
            await asyncio.sleep(self.a_while(0.0, 0.2, 0.8))
            self.cluster.start(each)

    def a_while(self, *seconds: float) -> float:
        """Return a random duration, up to one of these; each of them is equally likely."""
        return self.chance.uniform(0.2, 1.0) * self.chance.choice(seconds)

    async def moment(self, admitted: asyncio.Event, within_s: float) -> None:
        """Wait for a while, or until `admitted` is set: a member has just joined a generation, or got partitions."""
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.a_while(0.01, 0.1, 1.0))
            return
        admitted.clear()
        try:
            async with asyncio.timeout(within_s):
                await admitted.wait()
            await asyncio.sleep(self.a_while(0.0, 0.001, 0.01))
        except TimeoutError:
            pass

    async def crash_coordinator(self, chance: Random) -> None:
        """Crash the broker that coordinates groups, or now and then all brokers, and start them again after a while."""
        state = self.cluster.state(CONSUMER_OFFSETS_TOPIC, 0)
        one = state is not None and chance.random() < 0.8  # after all restarted, no broker knows the topic
        nodes = (state.leader,) if state and one else tuple(self.cluster.nodes)
        self.cluster.crash(*(each for each in nodes if each > 0), power_loss=self.power())
        await asyncio.sleep(self.a_while(0.0, 0.2, 0.5))
        self.cluster.start()

    async def more_commits(self, book: Commits, count: int, within_s: float) -> None:
        """Wait until a group has committed so often more."""
        wanted = book.commits + count
        await self.cluster.until(lambda: book.commits >= wanted, within_s, "committed")

    def power(self) -> bool:
        """Return whether a crash loses the unsynced data."""
        return self.chance.random() < 0.7

    def stop(self) -> None:
        """Let the clients finish; producers still wait for their acknowledgements."""
        for worker in (*self.producers, *self.others):
            worker.stopping = True

    async def end(self) -> Report:
        """Heal everything, wait until all is well, judge. Raises AssertionError."""
        recovery_s = await self.finish()
        faults = self.judge()
        assert not faults, "; ".join(faults[:10])
        return self.report(recovery_s)
