"""The consumer protocol's APIs (KIP-848) in every version, through the bytes of the wire."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base import turns
from raftlog.base.errors import CoordinatorLoadInProgress
from raftlog.broker.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
)
from raftlog.broker.handlers.shared import described_groups
from raftlog.coordinator.consumer.decision_builder import MAX_SUBSCRIBED_TOPICS
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import APIS, ApiKey
from tests.broker.coordination.group_broker import TOPIC, TOPIC_ID, GroupBroker
from tests.broker.handlers.test_groups import commit, run_scenario, stable, versions
from tests.broker.loop_turns import count_loop_turns

NEWEST = 1
FIRST_EPOCH_VERSION = 9
"""Of OffsetFetch: older versions have no member id."""


async def beat(node: GroupBroker, epoch: int, version: int = NEWEST, **fields: Any) -> Any:
    if epoch == 0:
        fields = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    fields = {"group_id": "g", "member_id": "m", "topic_partitions": None, **fields}
    return await node.call(consumer_group_heartbeat, version, member_epoch=epoch, **fields)


@versions(consumer_group_heartbeat)
def test_a_member_joins_stays_and_leaves_by_heartbeats(version: int) -> None:
    """A member joins, gets its epoch, interval and partitions, stays, and leaves."""

    async def scenario(node: GroupBroker) -> None:
        joined = await beat(node, 0, version)
        assert (int(joined.error_code), joined.member_id, joined.member_epoch) == (0, "m", 1)
        assert int(joined.heartbeat_interval) == 5_000
        (topic,) = joined.assignment.topic_partitions
        assert (topic.topic_id, tuple(topic.partitions)) == (TOPIC_ID, (0, 1, 2))
        owned = [{"_": "TopicPartitions", "topic_id": TOPIC_ID, "partitions": [0, 1, 2]}]
        stayed = await beat(node, 1, version, topic_partitions=owned)
        assert (stayed.member_epoch, stayed.assignment) == (1, None)
        left = await beat(node, -1, version)
        assert (int(left.error_code), left.member_epoch, int(left.heartbeat_interval)) == (0, -1, 0)
        assert (await node.groups.read("g")).state == "Empty"

    run_scenario(scenario)


def test_the_next_answer_has_the_interval_of_the_groups_own() -> None:
    """consumer.heartbeat.interval.ms, set and unset while the group runs; no other group has it."""

    async def scenario(node: GroupBroker) -> None:
        async def interval(epoch: int, group_id: str = "g") -> int:
            heard = await beat(node, epoch, group_id=group_id)
            assert not int(heard.error_code)
            return int(heard.heartbeat_interval)

        assert await interval(0) == 5_000
        before = node.image
        own = {("group", "g"): {"consumer.heartbeat.interval.ms": "7000"}}
        node.image = msgspec.structs.replace(before, configs=own)
        assert await interval(1) == 7_000
        assert await interval(0, "other") == 5_000
        node.image = before
        assert await interval(1) == 5_000

    run_scenario(scenario)


@versions(consumer_group_heartbeat)
def test_each_error_of_a_heartbeat_has_its_code_and_says_why(version: int) -> None:
    """Each has its code, and a text that says what is wrong."""

    async def scenario(node: GroupBroker) -> None:
        async def code(epoch: int, **fields: Any) -> int:
            response = await beat(node, epoch, version, **fields)
            assert not int(response.error_code) or response.error_message
            return int(response.error_code)

        assert await code(0, group_id="") == 42
        assert await code(0, server_assignor="mine") == 112
        assert await code(0, rebalance_timeout=-1) == 42
        assert await code(-2) == 42
        assert await code(1) == 25
        assert await code(-1) == 69
        assert await code(0, instance_id="one") == 0
        assert await code(9) == 110
        assert await code(0, instance_id="one", member_id="m2") == 111
        assert await code(1, instance_id="one", member_id="m2") == 82
        if version >= 1:
            assert await code(1, subscribed_topic_regex="(a") == 128
            assert await code(0, member_id="") == 42
        else:
            assert await code(0, member_id="", group_id="other") == 0, "the coordinator chooses one"

    run_scenario(scenario)


@versions(consumer_group_describe)
def test_a_member_is_described_with_what_it_has_not_given_up_yet(version: int) -> None:
    """It still reads revoked partitions until it confirms the revocation (as in Kafka 4.3)."""

    async def scenario(node: GroupBroker) -> None:
        owned = [{"_": "TopicPartitions", "topic_id": TOPIC_ID, "partitions": [0, 1, 2]}]
        await beat(node, 0)
        await beat(node, 1, topic_partitions=owned)
        await beat(node, 0, member_id="other")
        kept = await beat(node, 1, topic_partitions=owned)
        assert len(kept.assignment.topic_partitions[0].partitions) < 3
        response = await node.call(consumer_group_describe, version, group_ids=["g"])
        (member,) = (each for each in response.groups[0].members if each.member_id == "m")
        assert tuple(member.assignment.topic_partitions[0].partitions) == (0, 1, 2)

    run_scenario(scenario)


@versions(consumer_group_describe)
def test_a_group_is_described_with_what_the_asker_may_do(version: int) -> None:
    """If it asks for that, as with DescribeGroups."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        asked = await node.call(
            consumer_group_describe, version, group_ids=["g"], include_authorized_operations=True
        )
        plain = await node.call(consumer_group_describe, version, group_ids=["g"])
        described = await node.call(describe_groups, 5, groups=["g"], include_authorized_operations=True)
        assert asked.groups[0].authorized_operations == described.groups[0].authorized_operations > 0
        assert plain.groups[0].authorized_operations == -(2**31)

    run_scenario(scenario)


def test_an_admin_takes_a_member_of_the_consumer_protocol_out() -> None:
    """removeMembersFromConsumerGroup of Kafka's admin client sends LeaveGroup, for members of both protocols."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        await beat(node, 0, member_id="static", instance_id="one")
        members = [
            {"_": "MemberIdentity", "member_id": "m"},
            {"_": "MemberIdentity", "member_id": "other", "group_instance_id": "one"},
            {"_": "MemberIdentity", "member_id": "", "group_instance_id": "one"},
        ]
        left = await node.call(leave_group, 5, group_id="g", members=members)
        assert [int(each.error_code) for each in left.members] == [0, 82, 0]
        assert (await node.groups.read("g")).state == "Empty"

    run_scenario(scenario)


def test_a_full_consumer_group_gives_no_id_to_a_classic_member() -> None:
    """It is refused at once, not after it came again."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        refused = await node.call(
            join_group,
            5,
            group_id="g",
            member_id="",
            protocol_type="consumer",
            session_timeout=10_000,
            rebalance_timeout=60_000,
            protocols=[
                {"_": "JoinGroupRequestProtocol", "name": "range", "metadata": bytes(6) + b"\xff" * 4}
            ],
        )
        assert int(refused.error_code) == 81

    run_scenario(scenario, group_consumer_max_size=1)


@versions(consumer_group_describe)
def test_members_are_described_with_what_they_have_and_shall_have(version: int) -> None:
    """Epochs, assignor, members with what they have and shall have; other groups are not found."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        await beat(node, 0, group_id="h", rack_id="r", instance_id="one")
        response = await node.call(consumer_group_describe, version, group_ids=["h", "g", "x", ""])
        found = response.groups[0]
        assert [int(each.error_code) for each in response.groups] == [0, 69, 69, 24]
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
        assert found.assignor_name == "uniform"
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m", "one", "r")
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert tuple(member.subscribed_topic_names) == ("t",)
        assert member.subscribed_topic_regex == "", "a text in Kafka, also where there is none"
        for each in (member.assignment, member.target_assignment):
            (topic,) = each.topic_partitions
            assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
            assert tuple(topic.partitions) == (0, 1, 2)
        if version >= 1:
            assert member.member_type == 1

    run_scenario(scenario)


def test_a_group_is_described_once_and_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is named; its members are what turns are counted in."""
    monkeypatch.setattr(turns, "PARTS_AT_ONCE", 2)

    async def scenario(node: GroupBroker) -> None:
        for number in range(6):
            await beat(node, 0, group_id="h", member_id=f"m{number}")
        began = 0

        async def count() -> None:
            nonlocal began
            while True:
                began += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(count())
        response = await node.call(consumer_group_describe, 1, group_ids=["h"] * 50)
        others.cancel()
        assert [len(each.members) for each in response.groups] == [6]
        assert 3 <= began < 20

    run_scenario(scenario)


def test_an_answer_that_is_full_says_so_of_the_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks again for these is answered."""
    monkeypatch.setattr(described_groups, "MAX_MEMBERS", 1)

    async def scenario(node: GroupBroker) -> None:
        for each in "gh":
            await beat(node, 0, group_id=each)
        response = await node.call(consumer_group_describe, 1, group_ids=["g", "h"])
        assert [int(each.error_code) for each in response.groups] == [0, 14]
        response = await node.call(consumer_group_describe, 1, group_ids=["h"])
        assert [int(each.error_code) for each in response.groups] == [0]

    run_scenario(scenario)


def test_a_member_of_very_many_topics_is_described_in_turns() -> None:
    """Each topic that it has and shall have is something, not only the member."""
    count = 5 * turns.PARTS_AT_ONCE
    topics = {
        f"t{number}": TopicState(f"t{number}", UUID(int=1_000 + number), TOPIC.partitions[:1])
        for number in range(count)
    }

    async def scenario(node: GroupBroker) -> None:
        node.publish(topics=topics)
        await beat(node, 0, subscribed_topic_names=list(topics))
        response, had = await count_loop_turns(node.call(consumer_group_describe, 1, group_ids=["g"]))
        (member,) = response.groups[0].members
        for each in (member.assignment, member.target_assignment):
            assert {topic.topic_name for topic in each.topic_partitions} == set(topics)
        assert had >= 2 * count // turns.PARTS_AT_ONCE

    run_scenario(scenario)


@versions(list_groups)
def test_consumer_groups_are_listed_by_type(version: int) -> None:
    """Type and state can be filtered by (KIP-848, 518)."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        await beat(node, 0, group_id="h")
        listed = await node.call(list_groups, version)
        assert {(each.group_id, each.protocol_type) for each in listed.groups} == {
            ("g", "consumer"),
            ("h", "consumer"),
        }
        if version >= 5:
            found = await node.call(list_groups, version, types_filter=["Consumer"])
            assert [(each.group_id, each.group_type) for each in found.groups] == [("h", "consumer")]

    run_scenario(scenario)


@versions(describe_groups)
def test_classic_tools_see_no_consumer_group(version: int) -> None:
    """It is Dead to them, from v6 on GROUP_ID_NOT_FOUND (KIP-1043)."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        (found,) = (await node.call(describe_groups, version, groups=["g"])).groups
        assert (found.group_state, int(found.error_code)) == ("Dead", 69 if version >= 6 else 0)

    run_scenario(scenario)


@versions(offset_commit)
def test_members_commit_with_versions_that_can_name_an_epoch(version: int) -> None:
    """UNSUPPORTED_VERSION before v9; STALE_MEMBER_EPOCH for another epoch."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        named = {"member_id": "m", "generation_id_or_member_epoch": 1}
        assert await commit(node, version, (0, 5, ""), **named) == [0 if version >= 9 else 35]
        if version >= 9:
            stale = {**named, "generation_id_or_member_epoch": 0}
            assert await commit(node, version, (0, 5, ""), **stale) == [113]

    run_scenario(scenario)


@pytest.mark.parametrize("version", range(FIRST_EPOCH_VERSION, APIS[ApiKey.OFFSET_FETCH].max_version + 1))
def test_members_fetch_in_their_epoch(version: int) -> None:
    """Since v9 the member and its epoch are checked, if they are named."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)

        async def code(**who: Any) -> int:
            group = {"_": "OffsetFetchRequestGroup", "group_id": "g", "topics": None, **who}
            response = await node.call(offset_fetch, version, groups=[group])
            return int(response.groups[0].error_code)

        assert await code() == 0
        assert await code(member_id="m", member_epoch=1) == 0
        assert await code(member_id="m", member_epoch=2) == 113
        assert await code(member_id="x", member_epoch=1) == 25

    run_scenario(scenario)


def test_a_group_with_members_is_not_deleted() -> None:
    """NON_EMPTY_GROUP; once they have left, the group is removed completely."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        refused = await node.call(delete_groups, 2, groups_names=["g"])
        assert int(refused.results[0].error_code) == 68
        await beat(node, -1)
        done = await node.call(delete_groups, 2, groups_names=["g"])
        assert int(done.results[0].error_code) == 0
        assert not (await node.groups.read("g")).exists

    run_scenario(scenario)


def test_another_leader_reads_everything_back() -> None:
    """From real logs: members, epochs, targets and what each has."""

    async def scenario(node: GroupBroker) -> None:
        await beat(node, 0)
        await beat(node, 0, member_id="n")
        before = await node.groups.read("g")
        node.publish(leader=2)
        node.publish(leader=1)
        after = None
        while after is None:
            try:
                after = await node.groups.read("g")
            except CoordinatorLoadInProgress:
                await asyncio.sleep(0.01)
        assert after == before

    run_scenario(scenario)


def test_a_member_has_no_more_topics_than_a_group_reads() -> None:
    """The partitions that it names as its own are gone through at once; a group reads 10,000 topics at most."""

    async def scenario(node: GroupBroker) -> None:
        def owned(count: int) -> list[dict[str, Any]]:
            return [
                {"_": "TopicPartitions", "topic_id": UUID(int=number + 1), "partitions": [0]}
                for number in range(count)
            ]

        assert not int((await beat(node, 0)).error_code)
        assert int((await beat(node, 1, topic_partitions=owned(MAX_SUBSCRIBED_TOPICS + 1))).error_code) == 42
        assert not int((await beat(node, 1, topic_partitions=owned(MAX_SUBSCRIBED_TOPICS))).error_code)

    run_scenario(scenario)
