"""Share groups in a cluster of three nodes: members, states, and what outlives the coordinators of both (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from raftlog.base.errors import FencedLeaderEpoch, KafkaError
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.shards import share_coordinator
from raftlog.broker.coordination.share_state_client import ShareStateClient
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata import features
from raftlog.metadata.controller_api import CreateTopics, NewTopic
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    FetchedBatch,
    ShareLimits,
)
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster

GROUP, TOPIC, PARTITIONS = "work", "t", 3
LOG = [FetchedBatch(first, first + 9) for first in range(0, 100, 10)]
LONGEST_S = 60.0


class ShareCluster:
    """Three nodes with a topic, whose `share.version` counts as 1."""

    def __init__(self, loop: SimLoop) -> None:
        self.cluster = SimCluster(loop, 3, settings={"min.insync.replicas": "1"})

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        create = CreateTopics((NewTopic(TOPIC, PARTITIONS, 3),))
        node = self.cluster.nodes[1].node
        assert node is not None
        await self.on(1, node.control.submit(create, timeout=5))
        await self.cluster.until(lambda: self.cluster.state(TOPIC, 0) is not None, 10, "the topic")

    def context(self, node_id: int) -> BrokerContext:
        node = self.cluster.nodes[node_id].node
        assert node is not None and node.broker is not None
        return node.broker.context

    async def on(self, node_id: int, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in a node's process."""
        return await self.cluster.nodes[node_id].host.start(work)

    def alive(self) -> int:
        return next(each for each, it in sorted(self.cluster.nodes.items()) if it.node is not None)

    async def beat(self, member_id: str, epoch: int) -> Any:
        """Send a heartbeat until the group's coordinator answers without an error; it may move meanwhile."""
        make = request_builders(ApiKey.SHARE_GROUP_HEARTBEAT, 1)
        topics = (TOPIC,) if epoch == 0 else None
        message = make.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )

        async def ask() -> Any:
            context = self.context(self.alive())
            assert context.links is not None
            coordinator = await context.groups.find(GROUP)
            return await context.links.ask(coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, 1, message)

        async def retried() -> Any:
            for _ in range(int(LONGEST_S)):
                try:
                    answer = await ask()
                    if answer.error_code == 0:
                        return answer
                except KafkaError:
                    pass
                await asyncio.sleep(1.0)
            raise AssertionError("the group has no coordinator")

        return await self.on(self.alive(), retried())

    def key(self, index: int) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.cluster.last_image().topics[TOPIC].topic_id, index)

    def leads_group(self) -> int:
        state = self.cluster.last_image().topics[CONSUMER_OFFSETS_TOPIC]
        return state.partitions[partition_for(GROUP, len(state.partitions))].leader


def run_scenario(scenario: Any) -> None:
    async def program(loop: SimLoop) -> None:
        nodes = ShareCluster(loop)
        await nodes.begin()
        await scenario(nodes)

    simulate(program)


@pytest.fixture(autouse=True)
def _share_groups_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features._INITIAL, features.SHARE_VERSION, 1)


async def consume(nodes: ShareCluster, node_id: int, leader_epoch: int, *, count: int) -> int:
    """Lead partition 0 on a node and accept some batches; return the start offset. Errors that may pass are retried."""
    led = LedSharePartition(
        nodes.key(0),
        leader_epoch,
        ShareStateClient(nodes.context(node_id)),
        limits=ShareLimits,
        changed=lambda: None,
    )
    await persist(lambda: led.load(lambda: 0))
    for _ in range(count):
        fetch_offset = led.machine.next_fetch_offset()
        batches = [each for each in LOG if each.first_offset >= fetch_offset][:1]
        (found,) = led.acquire(AcquireRequest("m", 10), batches, fetch_offset=fetch_offset)
        said = [Acknowledgement(found.first_offset, found.last_offset, [AcknowledgeType.ACCEPT])]
        await persist(lambda said=said: led.acknowledge("m", said))
    return led.machine.start_offset


async def persist(call: Any) -> None:
    for _ in range(int(LONGEST_S)):
        try:
            await call()
            return
        except FencedLeaderEpoch:
            raise
        except KafkaError:
            await asyncio.sleep(0.5)
    raise AssertionError("no share coordinator")


def test_a_group_gets_states_and_outlives_its_coordinator() -> None:
    """The first heartbeat makes the topics and the states; a new coordinator answers as the old did."""

    async def scenario(nodes: ShareCluster) -> None:
        joined = await nodes.beat("m", 0)
        (topic,) = joined.assignment.topic_partitions
        assert tuple(topic.partitions) == (0, 1, 2)
        assert (
            nodes.cluster.last_image().configs[("topic", SHARE_GROUP_STATE_TOPIC)]["cleanup.policy"]
            == "delete"
        )
        nodes.cluster.crash(nodes.leads_group())
        beat = await nodes.beat("m", joined.member_epoch)
        assert (beat.member_epoch, beat.assignment) == (joined.member_epoch, None)

    run_scenario(scenario)


def test_accepted_records_outlive_leaders_and_share_coordinators() -> None:
    """What was answered is never delivered again, whichever of both dies; the former leader is fenced."""

    async def scenario(nodes: ShareCluster) -> None:
        await nodes.beat("m", 0)
        here = share_coordinator(nodes.cluster.last_image(), str(nodes.key(0)))
        others = [each for each in (1, 2, 3) if each != here]
        assert await nodes.on(here, consume(nodes, here, 1, count=2)) == 20
        nodes.cluster.crash(here)
        assert await nodes.on(others[0], consume(nodes, others[0], 2, count=3)) == 50
        with pytest.raises(FencedLeaderEpoch):
            await nodes.on(others[1], consume(nodes, others[1], 1, count=1))
        assert await nodes.on(others[1], consume(nodes, others[1], 3, count=0)) == 50

    run_scenario(scenario)
