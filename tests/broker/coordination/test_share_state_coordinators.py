"""Share coordinators on real logs: found, read back, fenced, pruned, and rid of the states of deleted topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from raftlog.base.config import validate_topic_configs
from raftlog.base.errors import (
    FencedLeaderEpoch,
    InvalidGroupId,
    InvalidRequest,
    NotCoordinator,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import (
    DeleteState,
    InitializeState,
    ReadState,
    WriteState,
)
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import PARTITIONS, TOPIC_ID, GroupBroker

KEY = SharePartitionKey("work", TOPIC_ID, 0)


class ShareBroker(GroupBroker):
    """One broker that coordinates the states of share groups."""

    topic = SHARE_GROUP_STATE_TOPIC

    def log_starts(self) -> list[int]:
        return [each.log_start_offset for each in self.replicas.partitions.values()]


def run_scenario(
    scenario: Callable[[ShareBroker], Awaitable[None]], *, with_topic: bool = True, **settings: int
) -> None:
    """Play a scenario on one broker."""

    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = ShareBroker(host, with_topic=with_topic, **settings)
            await node.pass_time(0.1)
            await scenario(node)
            await node.share_states.close()

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def test_a_state_outlives_its_coordinator() -> None:
    """What was answered is read back by the next leadership, epochs and all."""

    async def scenario(node: ShareBroker) -> None:
        await node.share_states.initialize(InitializeState(KEY, 1))
        assert (await node.share_states.read(ReadState(KEY, 4))).start_offset == -1
        await node.share_states.write(WriteState(KEY, 1, 4, 17))
        node.publish(leader=2)
        with pytest.raises(NotCoordinator):
            await node.share_states.read(ReadState(KEY, 4))
        node.publish(leader=1)
        await node.pass_time(0.1)
        assert (await node.share_states.summary(KEY)).start_offset == 17
        with pytest.raises(FencedLeaderEpoch):
            await node.share_states.write(WriteState(KEY, 1, 3, 18))

    run_scenario(scenario)


def test_the_topic_is_made_when_a_state_is_looked_up() -> None:
    """FindCoordinator with type 2; the partition is that of Kafka's hash."""

    async def scenario(node: ShareBroker) -> None:
        assert await node.share_states.find(KEY) == 1
        (request,) = node.submitted
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (
            SHARE_GROUP_STATE_TOPIC,
            7,
            1,
        )
        assert topic.configs["segment.bytes"] == "4096"
        validate_topic_configs(topic.configs, topic=topic.name)
        assert topic.configs["cleanup.policy"] == "delete"
        assert topic.configs["retention.ms"] == topic.configs["retention.bytes"] == "-1"
        with pytest.raises(InvalidGroupId):
            await node.share_states.find(KEY._replace(group_id=""))

    run_scenario(
        scenario,
        with_topic=False,
        share_coordinator_state_topic_num_partitions=7,
        share_coordinator_state_topic_segment_bytes=4096,
    )


def test_a_state_begins_for_known_partitions_only() -> None:
    """A topic that this broker's metadata lacks would count as deleted."""

    async def scenario(node: ShareBroker) -> None:
        for key in (KEY._replace(topic_id=UUID(int=99)), KEY._replace(partition=3)):
            with pytest.raises(UnknownTopicOrPartition):
                await node.share_states.initialize(InitializeState(key, 1))
        assert len(node.share_states) == 0

    run_scenario(scenario)


def test_a_broker_coordinates_so_many_states() -> None:
    """raftlog.share.max.states: POLICY_VIOLATION for more in all its partitions; a deletion makes room."""

    async def scenario(node: ShareBroker) -> None:
        first, second, third = (KEY._replace(group_id=f"work-{each}") for each in range(3))
        await node.share_states.initialize(InitializeState(first, 1))
        await node.share_states.initialize(InitializeState(second, 1))
        with pytest.raises(PolicyViolation):
            await node.share_states.initialize(InitializeState(third, 1))
        await node.share_states.initialize(InitializeState(first, 2))
        await node.share_states.delete(DeleteState(second))
        await node.share_states.initialize(InitializeState(third, 1))
        assert len(node.share_states) == 2

    run_scenario(scenario, raftlog_share_max_states=2)


def test_the_states_of_a_deleted_topic_go() -> None:
    """The share coordinators follow the metadata, also those that read the states back after the deletion."""

    async def scenario(node: ShareBroker) -> None:
        for index in range(3):
            await node.share_states.initialize(InitializeState(KEY._replace(partition=index), 1))
        assert len(node.share_states) == 3
        await node.pass_time(5.0)
        assert len(node.share_states) == 3
        node.publish(leader=2)
        node.publish(topics={})
        node.publish(leader=1, topics={})
        await node.pass_time(5.0)
        assert len(node.share_states) == 0
        with pytest.raises(InvalidRequest):
            await node.share_states.read(ReadState(KEY))

    run_scenario(scenario)


def test_states_go_although_topics_change_all_the_time() -> None:
    """Each partition of the states has its turn, also if the metadata is another with every look."""

    async def scenario(node: ShareBroker) -> None:
        keys = [KEY._replace(group_id=each) for each in "abcdefgh"]
        assert {partition_for(str(each), PARTITIONS) for each in keys} == set(range(PARTITIONS))
        for key in keys:
            await node.share_states.initialize(InitializeState(key, 1))
        for _ in range(20):
            node.publish(topics={})
            await node.pass_time(0.5)
        assert len(node.share_states) == 0

    run_scenario(scenario)


def test_redundant_records_are_deleted() -> None:
    """A cold state gets a snapshot, and then all records before the oldest snapshot go; no state is lost."""

    async def scenario(node: ShareBroker) -> None:
        here = partition_for(str(KEY), PARTITIONS)
        cold = next(
            key
            for name in "abcdefgh"
            if partition_for(str(key := KEY._replace(group_id=name)), PARTITIONS) == here
        )
        await node.share_states.initialize(InitializeState(cold, 1))
        await node.share_states.initialize(InitializeState(KEY, 1))
        await node.share_states.read(ReadState(KEY, 0))
        await node.pass_time(1.0)
        for offset in range(30):
            await node.share_states.write(WriteState(KEY, 1, 0, offset))
        assert node.log_starts()[here] == 0
        await node.pass_time(35.0)
        assert node.log_starts()[here] > 20
        node.publish(leader=2)
        node.publish(leader=1)
        await node.pass_time(1.0)
        assert (await node.share_states.summary(KEY)).start_offset == 29
        assert (await node.share_states.summary(cold)).exists

    run_scenario(
        scenario,
        share_coordinator_snapshot_update_records_per_snapshot=20,
        share_coordinator_state_topic_prune_interval_ms=10_000,
        share_coordinator_cold_partition_snapshot_interval_ms=10_000,
    )
