"""The group side of share groups (KIP-932), through the bytes of the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from raftlog.broker.coordination.share_state_client import StoredState, read_state, write_state
from raftlog.broker.handlers import (
    HELD_BACK,
    describe_groups,
    find_api,
    initialize_share_group_state,
    list_groups,
    read_share_group_state,
    served,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import InitializeState
from raftlog.metadata.features import SHARE_VERSION
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.sharing.delivery import DeliveryState, StateBatch, StateWrite
from raftlog_chaos.simulator import Host, SimLoop, simulate
from tests.broker.coordination.group_broker import TOPIC, TOPIC_ID, GroupBroker

VERSION = 1
STATES = TopicState(SHARE_GROUP_STATE_TOPIC, UUID(int=11), (PartitionState((1,), (1,), 1),) * 3)


class FakeShareCoordinators:
    """The share coordinators of all partitions, as a broker's links reach them."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refused: dict[int, int] = {}
        """Error codes by partition."""
        self.down = False

    async def ask(self, broker_id: int, api_key: int, version: int, message: Any, *, timeout_s: float) -> Any:
        self.asked.append(message)
        if self.down:
            raise BrokerNotAvailable
        make = response_builders(api_key, version)
        return make.InitializeShareGroupStateResponse(
            results=tuple(
                make.InitializeStateResult(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        make.PartitionResult(
                            partition=each.partition, error_code=self.refused.get(each.partition, 0)
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )


class ShareGroupBroker(GroupBroker):
    """A broker that coordinates groups, in a cluster with share groups."""

    def __init__(self, host: Host, *, level: int = 1) -> None:
        self.level = level
        super().__init__(host)
        self.states = self.broker.links = FakeShareCoordinators()

    def publish(self, *, leader: int | None = None, topics: dict[str, TopicState] | None = None) -> None:
        super().publish(leader=leader, topics=topics or {"t": TOPIC, STATES.name: STATES})
        self.image = msgspec.structs.replace(self.image, features={SHARE_VERSION: self.level})

    async def beat(self, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            fields = {"subscribed_topic_names": ["t"], **fields}
        fields = {"group_id": "g", "member_id": "m", "subscribed_topic_names": None, **fields}
        return await self.call(share_group_heartbeat, VERSION, member_epoch=epoch, **fields)


def run_scenario(scenario: Callable[[ShareGroupBroker], Awaitable[None]], *, level: int = 1) -> None:
    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = ShareGroupBroker(host, level=level)
            await node.pass_time(0.1)
            await scenario(node)
            await node.groups.close()
            await node.share_states.close()

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def test_nothing_is_advertised() -> None:
    """Share groups are held back until all their APIs are built."""
    assert not HELD_BACK & served()
    assert all(find_api(each) is not None for each in HELD_BACK)
    assert {each for each in served() if "share" in APIS[each].name} == set()


def test_share_groups_are_off_at_level_0() -> None:
    """share.version 0: UNSUPPORTED_VERSION, as in Apache Kafka."""

    async def scenario(node: ShareGroupBroker) -> None:
        assert int((await node.beat(0)).error_code) == UnsupportedVersion.code
        described = await node.call(
            share_group_describe, VERSION, group_ids=["g"], include_authorized_operations=False
        )
        assert int(described.groups[0].error_code) == UnsupportedVersion.code
        assert await node.groups.read_all() == []

    run_scenario(scenario, level=0)


def test_heartbeat() -> None:
    """A member joins and has its partitions with the first response, stays, and leaves."""

    async def scenario(node: ShareGroupBroker) -> None:
        joined = await node.beat(0)
        assert (int(joined.error_code), joined.member_id, joined.member_epoch) == (0, "m", 2)
        assert int(joined.heartbeat_interval) == 5_000
        (topic,) = joined.assignment.topic_partitions
        assert (topic.topic_id, tuple(topic.partitions)) == (TOPIC_ID, (0, 1, 2))
        (asked,) = node.states.asked
        assert asked.group_id == "g"
        (wanted,) = asked.topics
        assert [(each.partition, each.state_epoch, each.start_offset) for each in wanted.partitions] == [
            (0, 1, -1),
            (1, 1, -1),
            (2, 1, -1),
        ]
        stayed = await node.beat(2)
        assert (stayed.member_epoch, stayed.assignment) == (2, None)
        left = await node.beat(-1)
        assert (int(left.error_code), left.member_epoch, int(left.heartbeat_interval)) == (0, -1, 0)
        assert (await node.groups.read("g")).state == "Empty"
        assert int((await node.beat(0, group_id="")).error_code) == InvalidRequest.code

    run_scenario(scenario)


def test_states_that_fail_are_tried_with_the_next_heartbeat() -> None:
    """The partitions whose states are there are assigned meanwhile."""

    async def scenario(node: ShareGroupBroker) -> None:
        node.states.down = True
        joined = await node.beat(0)
        assert (int(joined.error_code), joined.member_epoch) == (0, 1)
        assert joined.assignment.topic_partitions == ()
        node.states.down, node.states.refused = False, {1: -1}
        await node.beat(1)
        beat = await node.beat(1)
        assert [tuple(each.partitions) for each in beat.assignment.topic_partitions] == [(0, 2)]
        node.states.refused = {}
        beat = await node.beat(2)
        assert [tuple(each.partitions) for each in beat.assignment.topic_partitions] == [(0, 1, 2)]
        assert len(node.states.asked) == 4

    run_scenario(scenario)


def test_describe_and_list() -> None:
    """ShareGroupDescribe has members and assignments; ListGroups has the type; DescribeGroups knows no such group."""

    async def scenario(node: ShareGroupBroker) -> None:
        await node.beat(0)
        fields = {"group_ids": ["g", "none"], "include_authorized_operations": True}
        described = await node.call(share_group_describe, VERSION, **fields)
        group, missing = described.groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
        assert group.assignor_name == "simple"
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("m", 2, ("t",))
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, tuple(topic.partitions)) == ("t", (0, 1, 2))
        assert int(missing.error_code) == GroupIdNotFound.code
        listed = await node.call(list_groups, 5, states_filter=[], types_filter=["share"])
        assert [(each.group_id, each.protocol_type, each.group_type) for each in listed.groups] == [
            ("g", "share", "share")
        ]
        assert (await node.call(list_groups, 5, states_filter=[], types_filter=["consumer"])).groups == ()
        fields = {"groups": ["g"], "include_authorized_operations": False}
        assert (await node.call(describe_groups, 5, **fields)).groups[0].group_state == "Dead"

    run_scenario(scenario)


class StateBroker(GroupBroker):
    """A broker that coordinates states of share partitions."""

    topic = SHARE_GROUP_STATE_TOPIC


class OwnLinks:
    """A broker's requests to itself: whatever is sent passes the handlers, in the bytes of the wire."""

    def __init__(self, node: StateBroker) -> None:
        self._node = node

    async def ask(self, broker_id: int, api_key: int, version: int, message: Any, *, timeout_s: float) -> Any:
        handlers = {each.API_KEY: each for each in (read_share_group_state, write_share_group_state)}
        return await self._node.call_with(handlers[ApiKey(api_key)], version, message)


def run_states(scenario: Callable[[StateBroker], Awaitable[None]]) -> None:
    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = StateBroker(host)
            await node.pass_time(0.1)
            await scenario(node)
            await node.share_states.close()

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def test_a_leader_reads_and_writes_the_state_of_its_partition() -> None:
    """ReadShareGroupState and WriteShareGroupState, as the leader's broker sends them."""

    async def scenario(node: StateBroker) -> None:
        node.asker = 1
        node.broker.links = OwnLinks(node)  # type: ignore[assignment]
        key = SharePartitionKey("g", TOPIC_ID, 1)
        with pytest.raises(InvalidRequest):
            await read_state(node.broker, key, leader_epoch=4)
        await node.share_states.initialize(InitializeState(key, 2))
        assert await read_state(node.broker, key, leader_epoch=4) == StoredState(2, -1, ())
        batches = (StateBatch(7, 9, DeliveryState.ACKNOWLEDGED, 1),)
        change = StateWrite(1, 5, batches, 3, (), ())
        await write_state(node.broker, key, change, state_epoch=2, leader_epoch=4)
        assert await read_state(node.broker, key, leader_epoch=5) == StoredState(2, 5, batches)
        assert (await node.share_states.summary(key)).delivery_complete_count == 3
        with pytest.raises(FencedLeaderEpoch):
            await write_state(node.broker, key, change, state_epoch=2, leader_epoch=4)
        with pytest.raises(FencedStateEpoch):
            await write_state(node.broker, key, change, state_epoch=1, leader_epoch=5)

    run_states(scenario)


def test_initialize_share_group_state() -> None:
    """Each partition has its own error, and only brokers may ask."""

    async def scenario(node: StateBroker) -> None:
        topics = [
            {
                "_": "InitializeStateData",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {"_": "PartitionData", "partition": index, "state_epoch": 1, "start_offset": 5}
                    for index in (0, 7)
                ],
            }
        ]
        fields = {"group_id": "g", "topics": topics}
        node.connection = object()
        refused = await node.call(initialize_share_group_state, 0, **fields)
        codes = [int(each.error_code) for each in refused.results[0].partitions]
        assert codes == [ClusterAuthorizationFailed.code] * 2
        node.asker, node.connection = 2, None
        answered = await node.call(initialize_share_group_state, 0, **fields)
        codes = [int(each.error_code) for each in answered.results[0].partitions]
        assert codes == [0, UnknownTopicOrPartition.code]
        assert len(node.share_states) == 1

    run_states(scenario)
