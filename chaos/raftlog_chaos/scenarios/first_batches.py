"""Producers write to topics that are created, recreated, or change their leader: each first batch stays first.

Several batches of a producer are in flight. A broker without the partition, or a follower that is about to lead, may
refuse the first batch for a moment. The next batch must not be accepted as the producer's first. All must be written,
once and in order, except for those given up. Meanwhile an impostor invents epochs of their ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from raftlog.records.batch import iter_headers, iter_records
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.eager_producer import EagerImpostor, EagerProducer, EagerTransaction
from raftlog_chaos.workloads.raw_client import Client, create_topic, delete_topic

BATCHES = 5
TOPICS = 6
"""Names that are used again and again."""
TRANSACTIONAL = 0.3
"""How many producers write in transactions."""

Result = TypeVar("Result")


async def first_batches(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Write first batches at odd moments for some virtual seconds. Raises AssertionError."""
    return await FirstBatches(loop).run(seconds)


class FirstBatches:
    """`written` has the values of each topic of now, producer by producer."""

    def __init__(self, loop: SimLoop) -> None:
        self.scene = Choreography(loop, settings={"transaction.state.log.num.partitions": "1"})
        self.chance = loop.stream("first-batches")
        self.written: dict[str, list[list[bytes]]] = {}
        self.producers: list[EagerProducer] = []
        self.impostor = EagerImpostor(
            self._client("impostor"), self.scene.cluster.bootstrap, loop.stream("impostor")
        )

    async def run(self, seconds: float) -> Report:
        scene, loop = self.scene, self.scene.loop
        await scene.begin()
        scene.pace([1.0] * len(scene.producers))
        end = loop.time() + seconds
        while loop.time() < end:
            await scene.whole()
            await self._round()
        await scene.whole()
        for topic, runs in self.written.items():
            await scene.cluster.until(partial(self._leads, topic), SERVED_S, "a leader")
            self._judge(topic, runs)
        report = await scene.end()
        refused = sum(each.refused for each in self.producers)
        assert refused, "no batch came too early: this proves nothing"
        given_up = sum(each.given_up for each in self.producers)
        return replace(report, faults={**report.faults, "batch refused": refused, "batch given up": given_up})

    async def _round(self) -> None:
        topic = f"first{self.chance.randrange(TOPICS)}"
        if topic in self.written and self.chance.random() < 0.5:
            await self._write_while_the_leader_moves(topic)
            return
        producer = self.chance.choice(self.producers) if self.producers else None
        if topic in self.written:
            await self._on("admin", delete_topic(self._client("admin"), topic))
            await self.scene.cluster.until(partial(self._is_gone, topic), SERVED_S, "the topic is gone")
        self.written[topic] = []
        making = self.scene.loop.host("admin").start(create_topic(self._client("admin"), topic, partitions=1))
        await self._write(topic, producer)
        await making

    async def _write_while_the_leader_moves(self, topic: str) -> None:
        """Write a new producer's first batches, or later batches, to followers that are about to lead."""
        state = self.scene.cluster.state(topic, 0)
        if state is not None and state.leader >= 0:
            node_id = state.leader
            self.scene.loop.call_later(self.chance.uniform(0.0, 0.02), self.scene.cluster.leave, node_id)
            self.scene.loop.call_later(0.3, self.scene.cluster.start, node_id)
        await self._write(topic, None)

    async def _write(self, topic: str, producer: EagerProducer | None) -> None:
        """Write some batches, with a new producer if none is given."""
        name = f"eager{len(self.producers)}"
        if producer is None:
            brokers = self.scene.cluster.bootstrap
            kind = EagerTransaction if self.chance.random() < TRANSACTIONAL else EagerProducer
            producer = kind(self._client(name), brokers, self.scene.loop.stream(name))
            self.producers.append(producer)
        pretending = self.scene.loop.host("impostor").start(self.impostor.pretend(producer, (topic, 0)))
        self.written[topic].append(await self._on(producer.client.name, self._run(producer, topic)))
        await pretending

    async def _run(self, producer: EagerProducer, topic: str) -> list[bytes]:
        await producer.begin()
        return await producer.write((topic, 0), BATCHES)

    def _client(self, name: str) -> Client:
        return Client(name, self.scene.cluster.bootstrap, timeout_s=0.5)

    async def _on(self, name: str, work: Coroutine[Any, Any, Result]) -> Result:
        async with asyncio.timeout(SERVED_S):
            return await self.scene.loop.host(name).start(work)

    def _leads(self, topic: str) -> bool:
        state = self.scene.cluster.state(topic, 0)
        return state is not None and state.leader >= 0

    def _is_gone(self, topic: str) -> bool:
        """Whether no replica is left that would accept batches and lose them."""
        cluster = self.scene.cluster
        return all(cluster.replica(each, topic, 0) is None for each in cluster.nodes)

    def _judge(self, topic: str, runs: list[list[bytes]]) -> None:
        state = self.scene.cluster.state(topic, 0)
        assert state is not None
        replica = self.scene.cluster.replica(state.leader, topic, 0)
        assert replica is not None
        log, values, offset = replica.log, [], 0
        while offset < log.log_end_offset:
            records = memoryview(
                log.read(offset, 1 << 20, end_offset=log.log_end_offset, cached=False) or b""
            )
            for position, header in iter_headers(records):
                batch = records[position : position + header.length]
                if not header.is_control:
                    values += [bytes(each.value or b"") for each in iter_records(batch)]
                offset = header.end_offset
        unsure = set().union(*(each.unsure for each in self.producers))
        assert len(set(values)) == len(values), f"{topic} has {values}, some of them twice"
        values = [each for each in values if each not in unsure]
        wanted = [value for run in runs for value in run]
        assert values == wanted, f"{topic} has {values}, and {wanted} were acknowledged"
