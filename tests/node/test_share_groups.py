"""Share groups in a cluster of three nodes: members, states, and what outlives the coordinators of both (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from raftlog.base.config import GroupConfig
from raftlog.base.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.broker.coordination.shards import share_coordinator
from raftlog.broker.coordination.share_state_client import ShareStateClient
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata.controller_api import CreateTopics, NewTopic
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    FetchedBatch,
)
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster

GROUP, TOPIC, PARTITIONS = "work", "t", 3
LOG = [FetchedBatch(first, first + 9) for first in range(0, 100, 10)]
LONGEST_S = 60.0


class ShareCluster:
    """Three nodes with a topic."""

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


async def consume(led: LedSharePartition, *, count: int) -> int:
    """Accept some batches; return the start offset. Errors that may pass are retried."""
    for _ in range(count):
        fetch_offset = led.machine.next_fetch_offset()
        batches = [each for each in LOG if each.first_offset >= fetch_offset][:1]
        (found,) = led.acquire(AcquireRequest("m", 10), batches, fetch_offset=fetch_offset)
        said = [Acknowledgement(found.first_offset, found.last_offset, [AcknowledgeType.ACCEPT])]
        await persist(lambda said=said: led.acknowledge("m", said))
    return led.machine.start_offset


async def persist(call: Any) -> Any:
    """Call until it succeeds, or fails for good."""
    for _ in range(int(LONGEST_S)):
        try:
            return await call()
        except FencedLeaderEpoch:
            raise
        except KafkaError:
            await asyncio.sleep(0.5)
    raise AssertionError("no share coordinator")


def share_partitions(context: BrokerContext) -> LedSharePartitions:
    return LedSharePartitions(context, states_of(context))


def states_of(context: BrokerContext) -> ShareStateClient:
    return ShareStateClient(context, context.share_states.write)


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
    """What was answered is never acquired again, whichever of both dies; a former leader is fenced."""

    async def scenario(nodes: ShareCluster) -> None:
        await nodes.beat("m", 0)
        image, key = nodes.cluster.last_image(), nodes.key(0)
        leader, coordinator = image.topics[TOPIC].partitions[0].leader, share_coordinator(image, str(key))
        led = await nodes.on(leader, persist(lambda: share_partitions(nodes.context(leader)).get(key)))
        assert await nodes.on(leader, consume(led, count=2)) == 20
        for node_id in {leader, coordinator}:
            nodes.cluster.crash(node_id)
            await asyncio.sleep(30.0)
            nodes.cluster.restart(node_id)
            await nodes.cluster.until(nodes.cluster.all_in_sync, LONGEST_S, "all replicas")
            now = nodes.cluster.last_image().topics[TOPIC].partitions[0].leader
            registry = share_partitions(nodes.context(now))
            after = await nodes.on(now, persist(lambda registry=registry: registry.get(key)))
            before = after.machine.start_offset
            assert before in (20, 40) and after.leader_epoch >= led.leader_epoch
            assert await nodes.on(now, consume(after, count=2)) == before + 20
        assert after.leader_epoch > led.leader_epoch
        stale = LedSharePartition(
            key,
            led.leader_epoch,
            states_of(nodes.context(now)),
            config=GroupConfig,
            changed=lambda: None,
        )

        async def begin_at_0() -> int:
            return 0

        with pytest.raises(FencedLeaderEpoch):
            await nodes.on(now, persist(lambda: stale.load(begin_at_0)))

    run_scenario(scenario)


def test_a_share_partition_is_led_where_its_log_is() -> None:
    """Another broker refuses, one object serves all requests, and a leader that is none any more drops it."""

    async def scenario(nodes: ShareCluster) -> None:
        await nodes.beat("m", 0)
        key = nodes.key(0)
        leader = nodes.cluster.last_image().topics[TOPIC].partitions[0].leader
        other = next(each for each in (1, 2, 3) if each != leader)
        with pytest.raises(NotLeaderOrFollower):
            await nodes.on(other, share_partitions(nodes.context(other)).get(key))
        registry = share_partitions(nodes.context(leader))
        both = await nodes.on(leader, persist(lambda: asyncio.gather(registry.get(key), registry.get(key))))
        assert both[0] is both[1] and len(registry) == 1
        registry.on_metadata()
        assert len(registry) == 1
        registry.close()
        assert len(registry) == 0
        with pytest.raises(NotLeaderOrFollower):
            await both[0].acknowledge("m", [])

    run_scenario(scenario)
