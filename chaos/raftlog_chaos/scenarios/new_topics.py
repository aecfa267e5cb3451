"""Topics of many partitions are created and recreated: after its response, a node serves the partitions that it leads.

After the response a client writes at once to each partition that this node leads. The node may not answer that it does
not know the partition, or that it does not lead it, unless the leader has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from raftlog.base.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from raftlog.base.types import TopicPartition
from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    CREATE_TOPICS,
    PRODUCE,
    Client,
    create_topic_request,
    delete_topic,
    shapes,
)

TOPICS: Final = 2
PARTITIONS: Final = (1, 9, 30, 60)
"""Some are made within a turn of the loop, others in several batches beside it."""
PAUSE_S: Final = 0.4

LEADER_ONLY: Final = 1
REFUSED: Final = frozenset({NotLeaderOrFollower.code, UnknownTopicOrPartition.code})

Result = TypeVar("Result")


async def new_topics(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Create topics for some virtual seconds, and write to them at once. Raises AssertionError."""
    return await NewTopics(loop).run(seconds)


class NewTopics:
    """`_served` counts partitions that accepted a batch right after their creation."""

    def __init__(self, loop: SimLoop) -> None:
        self._scene = Choreography(loop)
        self._chance = loop.stream("new-topics")
        self._client = Client("admin", self._scene.cluster.bootstrap, timeout_s=5.0)
        self._made: set[str] = set()
        self._served = 0

    async def run(self, seconds: float) -> Report:
        scene, loop = self._scene, self._scene.loop
        await scene.begin()
        scene.pace([1.0] * len(scene.producers))
        end = loop.time() + seconds
        while loop.time() < end:
            await scene.whole()
            await self._on_admin(self._round())
            await asyncio.sleep(PAUSE_S)
        await scene.whole()
        report = await scene.end()
        assert self._served, "no partition was led by a node that was asked: this proves nothing"
        return replace(report, faults={**report.faults, "partition served": self._served})

    async def _round(self) -> None:
        topic = f"new{self._chance.randrange(TOPICS)}"
        if topic in self._made:
            await delete_topic(self._client, topic)
        self._made.add(topic)
        node_id = self._chance.choice(sorted(self._scene.cluster.nodes))
        if await self._create(node_id, topic):
            await self._write(node_id, topic)

    async def _create(self, node_id: int, topic: str) -> bool:
        """Request a topic from a node; returns whether it was created. A failure is retried in the next round."""
        request = create_topic_request(topic, partitions=self._chance.choice(PARTITIONS))
        try:
            answer = await self._client.ask(self._address(node_id), CREATE_TOPICS, request)
        except AWAY:
            return False
        return not answer.topics[0].error_code

    async def _write(self, node_id: int, topic: str) -> None:
        """Write to each partition that a node leads. Raises AssertionError if it does not serve one of them."""
        led = []
        for name in (TopicPartition(topic, index) for index in range(max(PARTITIONS))):
            state = self._scene.cluster.state(*name)
            if state is not None and state.leader == node_id:
                led.append(name)
        codes = await asyncio.gather(*(self._produce(node_id, each) for each in led))
        for each, code in zip(led, codes, strict=True):
            state = self._scene.cluster.state(*each)
            if state is not None and state.leader == node_id:
                assert code not in REFUSED, f"node {node_id} leads {each} and answered with error {code}"
                self._served += code == 0

    async def _produce(self, node_id: int, name: TopicPartition) -> int | None:
        make = shapes(PRODUCE)
        records = build_batch([new_record(None, b"first", timestamp=-1)])
        data = make.PartitionProduceData(index=name.partition, records=records)
        request = make.ProduceRequest(
            transactional_id=None,
            acks=LEADER_ONLY,
            timeout=1000,
            topic_data=(make.TopicProduceData(name=name.topic, partition_data=(data,)),),
        )
        try:
            answer = await self._client.ask(self._address(node_id), PRODUCE, request)
        except AWAY:
            return None
        return int(answer.responses[0].partition_responses[0].error_code)

    def _address(self, node_id: int) -> tuple[str, int]:
        return self._scene.cluster.bootstrap[node_id - 1]

    async def _on_admin(self, work: Coroutine[Any, Any, Result]) -> Result:
        async with asyncio.timeout(SERVED_S):
            return await self._scene.loop.host("admin").start(work)
