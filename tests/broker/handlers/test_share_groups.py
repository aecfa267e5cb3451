"""The group side of share groups (KIP-932), through the bytes of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC, encode_uuid
from raftlog.broker.coordination.share_state_client import ShareStateClient, StoredState
from raftlog.broker.handlers import (
    HELD_BACK,
    alter_share_group_offsets,
    api_versions,
    delete_groups,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_groups,
    describe_share_group_offsets,
    find_api,
    find_coordinator,
    initialize_share_group_state,
    list_groups,
    read_share_group_state,
    read_share_group_state_summary,
    served,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from raftlog.broker.handlers.api_versions import SHARE_GROUPS
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import InitializeState, WriteState
from raftlog.metadata.features import SHARE_VERSION
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import BrokersOnly
from raftlog.sharing.delivery import DeliveryState, StateBatch, StateWrite
from raftlog_chaos.simulator import Host, SimLoop, simulate
from tests.broker.coordination.group_broker import TOPIC, TOPIC_ID, GroupBroker

VERSION = 1
STATES = TopicState(SHARE_GROUP_STATE_TOPIC, UUID(int=11), (PartitionState((1,), (1,), 1),) * 3)


class FakeShareCoordinators:
    """The share coordinators of all partitions, as a broker's links reach them."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.states: dict[int, int] = {}
        """Start offsets by partition."""
        self.ends: dict[int, int] = {}
        """End offsets of logs by partition; others have no leader."""
        self.refused: dict[int, int] = {}
        """Error codes by partition."""
        self.down = False

    async def ask(self, broker_id: int, api_key: int, version: int, message: Any, *, timeout_s: float) -> Any:
        make = response_builders(api_key, version)
        if api_key == ApiKey.LIST_OFFSETS:
            return self._list_offsets(make, message)
        self.asked.append(message)
        if self.down:
            raise BrokerNotAvailable
        response, result = {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: (
                "InitializeShareGroupStateResponse",
                "InitializeStateResult",
            ),
            ApiKey.DELETE_SHARE_GROUP_STATE: ("DeleteShareGroupStateResponse", "DeleteStateResult"),
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
                "ReadShareGroupStateSummaryResponse",
                "ReadStateSummaryResult",
            ),
        }[ApiKey(api_key)]
        return getattr(make, response)(
            results=tuple(
                getattr(make, result)(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        make.PartitionResult(partition=each.partition, **self._answer(api_key, each))
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )

    def _answer(self, api_key: int, asked: Any) -> dict[str, Any]:
        index = int(asked.partition)
        if index in self.refused:
            return {"error_code": self.refused[index]}
        if api_key == ApiKey.INITIALIZE_SHARE_GROUP_STATE:
            self.states[index] = int(asked.start_offset)
        if api_key == ApiKey.DELETE_SHARE_GROUP_STATE:
            self.states.pop(index, None)
        if api_key != ApiKey.READ_SHARE_GROUP_STATE_SUMMARY:
            return {}
        start_offset = self.states.get(index, -1)
        known = start_offset >= 0
        return {
            "start_offset": start_offset,
            "leader_epoch": 3 if known else 0,
            "state_epoch": 0,
            "delivery_complete_count": 2 if known else -1,
        }

    def _list_offsets(self, make: Any, message: Any) -> Any:
        return make.ListOffsetsResponse(
            throttle_time=0,
            topics=tuple(
                make.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        make.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=0 if each.partition_index in self.ends else NotLeaderOrFollower.code,
                            timestamp=-1,
                            offset=self.ends.get(each.partition_index, -1),
                            leader_epoch=-1,
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            ),
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


def test_only_brokers_ask_share_coordinators() -> None:
    """Their APIs are served and never advertised."""
    assert not HELD_BACK & served()
    assert all(isinstance(row.needs, BrokersOnly) for each in HELD_BACK if (row := find_api(each)))
    assert {each for each in APIS if "share_group_state" in APIS[each].name} == HELD_BACK


def test_share_groups_are_advertised_while_they_are_on() -> None:
    """Java's client looks for ShareGroupHeartbeat in the response."""

    async def listed(node: ShareGroupBroker) -> set[int]:
        fields = {"client_software_name": "a", "client_software_version": "1"}
        return {int(each.api_key) for each in (await node.call(api_versions, 4, **fields)).api_keys}

    async def is_on(node: ShareGroupBroker) -> None:
        assert await listed(node) >= SHARE_GROUPS

    async def is_off(node: ShareGroupBroker) -> None:
        assert not await listed(node) & SHARE_GROUPS

    run_scenario(is_on)
    run_scenario(is_off, level=0)


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


def test_a_member_of_a_share_group_joins_stays_and_leaves() -> None:
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
    """A topic that is new to the group is assigned once all of its partitions have states."""

    async def scenario(node: ShareGroupBroker) -> None:
        node.states.down = True
        joined = await node.beat(0)
        assert (int(joined.error_code), joined.member_epoch) == (0, 1)
        assert joined.assignment.topic_partitions == ()
        node.states.down, node.states.refused = False, {1: -1}
        for _ in range(2):
            beat = await node.beat(1)
            assert beat.assignment is None
        node.states.refused = {}
        beat = await node.beat(1)
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


# -- administrators ------------------------------------------------------------------------------------------


async def alter(node: ShareGroupBroker, topics: dict[str, dict[int, int]], group_id: str = "g") -> Any:
    named = [
        {
            "_": "AlterShareGroupOffsetsRequestTopic",
            "topic_name": name,
            "partitions": [
                {
                    "_": "AlterShareGroupOffsetsRequestPartition",
                    "partition_index": index,
                    "start_offset": offset,
                }
                for index, offset in offsets.items()
            ],
        }
        for name, offsets in topics.items()
    ]
    return await node.call(alter_share_group_offsets, 0, group_id=group_id, topics=named)


async def delete_offsets(node: ShareGroupBroker, *names: str, group_id: str = "g") -> Any:
    named = [{"_": "DeleteShareGroupOffsetsRequestTopic", "topic_name": each} for each in names]
    return await node.call(delete_share_group_offsets, 0, group_id=group_id, topics=named)


async def described_offsets(
    node: ShareGroupBroker, topics: dict[str, list[int]] | None = None, *, version: int = 1
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return (start offset, leader epoch, error code), and with v1 the lag, of each partition."""
    named = None
    if topics is not None:
        named = [
            {"_": "DescribeShareGroupOffsetsRequestTopic", "topic_name": name, "partitions": indexes}
            for name, indexes in topics.items()
        ]
    asked = {"_": "DescribeShareGroupOffsetsRequestGroup", "group_id": "g", "topics": named}
    (group,) = (await node.call(describe_share_group_offsets, version, groups=[asked])).groups
    assert int(group.error_code) == 0, group
    return {
        (topic.topic_name, int(each.partition_index)): (
            int(each.start_offset),
            int(each.leader_epoch),
            int(each.error_code),
            *((int(each.lag),) if version >= 1 else ()),
        )
        for topic in group.topics
        for each in topic.partitions
    }


def codes_of(response: Any) -> dict[tuple[str, int], int]:
    assert int(response.error_code) == 0, response
    return {
        (topic.topic_name, int(each.partition_index)): int(each.error_code)
        for topic in response.responses
        for each in topic.partitions
    }


def test_an_administrator_sets_the_start_offsets_of_a_group() -> None:
    """AlterShareGroupOffsets makes the group; each partition has its own error."""

    async def scenario(node: ShareGroupBroker) -> None:
        node.states.refused = {2: CoordinatorNotAvailable.code}
        altered = await alter(node, {"t": {0: 7, 1: 9, 2: 3, 3: 0, -1: 0}, "none": {0: 1}})
        unknown = UnknownTopicOrPartition.code
        assert codes_of(altered) == {
            ("none", 0): unknown,
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): CoordinatorNotAvailable.code,
            ("t", 3): unknown,
            ("t", -1): unknown,
        }
        assert node.states.states == {0: 7, 1: 9}
        assert codes_of(await alter(node, {"t": {0: -2}})) == {("t", 0): InvalidRequest.code}
        assert (await node.groups.read("g")).state == "Empty"
        await node.beat(0)
        assert int((await alter(node, {"t": {0: 1}})).error_code) == NonEmptyGroup.code
        assert int((await alter(node, {}, group_id="")).error_code) == InvalidGroupId.code

    run_scenario(scenario)


def test_the_offsets_of_a_group_are_described() -> None:
    """All that are initialized, or those asked for. The lag is 0 where a leader is behind its own log's end."""

    async def scenario(node: ShareGroupBroker) -> None:
        assert await described_offsets(node) == {}
        await alter(node, {"t": {0: 7, 1: 9, 2: 50}})
        node.states.ends = {0: 100, 1: 10}
        gone = (-1, 0, NotLeaderOrFollower.code)
        assert await described_offsets(node) == {
            ("t", 0): (7, 3, 0, 91),
            ("t", 1): (9, 3, 0, 0),
            ("t", 2): (*gone, -1),
        }
        assert await described_offsets(node, version=0) == {
            ("t", 0): (7, 3, 0),
            ("t", 1): (9, 3, 0),
            ("t", 2): (50, 3, 0),
        }
        nothing = (-1, 0, 0, -1)
        wanted = {"t": [0, 9], "none": [3]}
        assert await described_offsets(node, wanted) == {
            ("t", 0): (7, 3, 0, 91),
            ("t", 9): nothing,
            ("none", 3): nothing,
        }
        assert await described_offsets(node, {}) == {}
        node.states.down = True
        assert await described_offsets(node, {"t": [0]}) == {("t", 0): nothing}

    run_scenario(scenario)


def test_the_offsets_of_topics_are_deleted() -> None:
    """DeleteShareGroupOffsets; what could not be deleted is deleted by the next request."""

    async def scenario(node: ShareGroupBroker) -> None:
        assert int((await delete_offsets(node, "t")).error_code) == GroupIdNotFound.code
        await alter(node, {"t": {0: 7, 1: 9}})
        node.states.refused = {1: CoordinatorNotAvailable.code}

        async def codes(*names: str) -> dict[str, int]:
            deleted = await delete_offsets(node, *names)
            assert int(deleted.error_code) == 0, deleted
            return {each.topic_name: int(each.error_code) for each in deleted.responses}

        unknown = UnknownTopicOrPartition.code
        assert await codes("t", "none") == {"t": CoordinatorNotAvailable.code, "none": unknown}
        node.states.refused = {}
        assert node.states.states == {1: 9}
        assert await codes("t") == {"t": 0}
        assert node.states.states == {}
        assert await codes("t") == {"t": unknown}
        await node.beat(0)
        assert int((await delete_offsets(node, "t")).error_code) == NonEmptyGroup.code
        assert int((await delete_offsets(node, "t", group_id="")).error_code) == InvalidGroupId.code

    run_scenario(scenario)


def test_a_share_group_is_deleted_with_its_states() -> None:
    """DeleteGroups. A state that could not be deleted keeps the group, and the next request tries it again."""

    async def scenario(node: ShareGroupBroker) -> None:
        async def delete() -> int:
            (result,) = (await node.call(delete_groups, 2, groups_names=["g"])).results
            return int(result.error_code)

        await node.beat(0)
        assert await delete() == NonEmptyGroup.code
        await node.beat(-1)
        node.states.refused = {1: CoordinatorNotAvailable.code}
        assert await delete() == CoordinatorNotAvailable.code
        assert (await node.groups.read("g")).state == "Empty"
        node.states.refused = {}
        assert await delete() == 0
        assert node.states.states == {}
        assert await delete() == GroupIdNotFound.code

    run_scenario(scenario)


def test_offsets_are_off_at_level_0() -> None:
    """share.version 0: UNSUPPORTED_VERSION."""

    async def scenario(node: ShareGroupBroker) -> None:
        assert int((await alter(node, {})).error_code) == UnsupportedVersion.code
        assert int((await delete_offsets(node)).error_code) == UnsupportedVersion.code
        asked = {"_": "DescribeShareGroupOffsetsRequestGroup", "group_id": "g", "topics": None}
        (group,) = (await node.call(describe_share_group_offsets, 1, groups=[asked])).groups
        assert int(group.error_code) == UnsupportedVersion.code

    run_scenario(scenario, level=0)


def test_partitions_that_are_not_there_are_asked_for_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may name a hundred thousand of them; they have no state."""
    asked: list[int] = []
    ask = describe_share_group_offsets.ask_share_coordinators

    async def noted(broker: Any, question: Any, keys: Any) -> Any:
        asked.extend(each.partition for each in keys)
        return await ask(broker, question, keys)

    monkeypatch.setattr(describe_share_group_offsets, "ask_share_coordinators", noted)

    async def scenario(node: ShareGroupBroker) -> None:
        found = await described_offsets(node, {"t": [-1, 0, 5_000]})
        assert {index: start for (_, index), (start, *_) in found.items()} == {-1: -1, 0: -1, 5_000: -1}
        assert asked == [0]

    run_scenario(scenario)


def test_the_coordinator_of_a_share_partition_is_found() -> None:
    """FindCoordinator 6 of type 2, by group, topic id and number. A group's id may have colons, as in Apache Kafka."""

    async def scenario(node: ShareGroupBroker) -> None:
        async def find(key: str, version: int = 6) -> tuple[int, int]:
            answer = await node.call(find_coordinator, version, key_type=2, coordinator_keys=[key])
            (found,) = answer.coordinators
            return int(found.error_code), int(found.node_id)

        topic = encode_uuid(TOPIC_ID)
        assert await find(f"a:b:{topic}:1") == (0, 1)
        assert await find(f"g:{topic}:1", version=5) == (InvalidRequest.code, -1)
        for wrong in (
            "",
            "g",
            f"g:{topic}",
            f":{topic}:1",
            f" :{topic}:1",
            f"g:{topic}:x",
            "g:?:1",
            f"g:{topic}x:1",
        ):
            assert await find(wrong) == (InvalidRequest.code, -1), wrong

    run_scenario(scenario)


class StateBroker(GroupBroker):
    """A broker that coordinates states of share partitions."""

    topic = SHARE_GROUP_STATE_TOPIC


class WireLinks:
    """A broker's requests to the share coordinators: all pass the handlers, in the bytes of the wire."""

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


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_reads_and_writes_the_state_of_its_partition(leader: int) -> None:
    """With ReadShareGroupState and WriteShareGroupState. The coordinator's broker writes without a request."""

    async def scenario(node: StateBroker) -> None:
        node.asker = leader
        node.broker.links = WireLinks(node)  # type: ignore[assignment]
        broker = replace(node.broker, config=replace(node.broker.config, node_id=leader))
        broker.links = node.broker.links
        written_here: list[WriteState] = []

        def write_here(request: WriteState) -> asyncio.Future[None]:
            written_here.append(request)
            return node.share_states.write(request)

        key, store = SharePartitionKey("g", TOPIC_ID, 1), ShareStateClient(broker, write_here)
        with pytest.raises(InvalidRequest):
            await store.read(key, leader_epoch=4)
        await node.share_states.initialize(InitializeState(key, 2))
        assert await store.read(key, leader_epoch=4) == StoredState(2, -1, ())
        batches = (StateBatch(7, 9, DeliveryState.ACKNOWLEDGED, 1),)
        change = StateWrite(1, 5, batches, 3, (), ())
        await store.write(key, change, state_epoch=2, leader_epoch=4)
        assert await store.read(key, leader_epoch=5) == StoredState(2, 5, batches)
        assert (await node.share_states.summary(key)).delivery_complete_count == 3
        with pytest.raises(FencedLeaderEpoch):
            await store.write(key, change, state_epoch=2, leader_epoch=4)
        with pytest.raises(FencedStateEpoch):
            await store.write(key, change, state_epoch=1, leader_epoch=5)
        assert len(written_here) == (3 if leader == 1 else 0)

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


def test_states_are_summarized_and_deleted() -> None:
    """ReadShareGroupStateSummary and DeleteShareGroupState, as a group's coordinator sends them."""

    async def scenario(node: StateBroker) -> None:
        node.asker = 1
        key = SharePartitionKey("g", TOPIC_ID, 1)
        await node.share_states.initialize(InitializeState(key, 2, 40))

        async def summary() -> tuple[int, ...]:
            part = {"_": "PartitionData", "partition": 1, "leader_epoch": -1}
            topics = [{"_": "ReadStateSummaryData", "topic_id": TOPIC_ID, "partitions": [part]}]
            answer = await node.call(read_share_group_state_summary, 1, group_id="g", topics=topics)
            ((it,),) = (each.partitions for each in answer.results)
            assert int(it.error_code) == 0
            return (
                int(it.state_epoch),
                int(it.leader_epoch),
                int(it.start_offset),
                int(it.delivery_complete_count),
            )

        async def delete(**own: int) -> None:
            part = {"_": "PartitionData", "partition": 1}
            topics = [{"_": "DeleteStateData", "topic_id": TOPIC_ID, "partitions": [part]}]
            answer = await node.call(delete_share_group_state, 0, group_id="g", topics=topics, **own)
            assert [int(each.error_code) for topic in answer.results for each in topic.partitions] == [0]

        assert await summary() == (2, 0, 40, 0)
        await delete(state_epoch=2)
        assert await summary() == (2, 0, 40, 0)
        await delete()
        assert await summary() == (0, 0, -1, -1)
        await delete()

    run_states(scenario)
