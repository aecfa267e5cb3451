"""Group APIs in every version, through the bytes of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace as Fake
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.broker.coordination.group_coordinators import LOAD_AWAITED_S
from raftlog.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from raftlog.broker.handlers.join_group import MAX_WAITING_BYTES
from raftlog.broker.replicas.deleted_topics import DELETED_KNOWN_S, MAX_DELETED_TOPICS
from raftlog.protocol.apis import APIS
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import TOPIC, TOPIC_ID, GroupBroker

MANY = 4 * PARTS_AT_ONCE
AGAIN_ID = UUID(int=98)


def run_scenario(scenario: Callable[[GroupBroker], Awaitable[None]], **settings: Any) -> None:
    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = GroupBroker(host, **settings)
            await asyncio.sleep(0.1)
            await scenario(node)

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def versions(handler: Any) -> Any:
    api = APIS[handler.API_KEY]
    return pytest.mark.parametrize("version", range(api.min_version, api.max_version + 1))


async def join(node: GroupBroker, version: int = 5, member_id: str = "", **fields: Any) -> Any:
    protocols = [{"_": "JoinGroupRequestProtocol", "name": "range", "metadata": b"sub"}]
    fields = {"session_timeout": 10_000, "rebalance_timeout": 60_000, "protocols": protocols, **fields}
    return await node.call(
        join_group, version, group_id="g", member_id=member_id, protocol_type="consumer", **fields
    )


async def sync(node: GroupBroker, member_id: str, generation: int, version: int = 3, **fields: Any) -> Any:
    assignments = [{"_": "SyncGroupRequestAssignment", "member_id": member_id, "assignment": b"mine"}]
    return await node.call(
        sync_group,
        version,
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=assignments,
        **{"protocol_type": "consumer", "protocol_name": "range", **fields},
    )


async def stable(node: GroupBroker) -> tuple[str, int]:
    required = await join(node)
    joined = await join(node, member_id=required.member_id)
    await sync(node, joined.member_id, joined.generation_id)
    return joined.member_id, joined.generation_id


async def commit(
    node: GroupBroker, version: int, *partitions: tuple[int, int, str | None], **fields: Any
) -> list[int]:
    rows = [
        {
            "_": "OffsetCommitRequestPartition",
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 4,
            "committed_metadata": metadata,
        }
        for index, offset, metadata in partitions
    ]
    topic = {"_": "OffsetCommitRequestTopic", "name": "t", "topic_id": TOPIC_ID, "partitions": rows}
    topic.update({name: fields.pop(name) for name in ("name", "topic_id") if name in fields})
    fields = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1, **fields}
    response = await node.call(offset_commit, version, topics=[topic], **fields)
    return [int(each.error_code) for each in response.topics[0].partitions]


@versions(join_group)
def test_a_member_joins_in_two_steps_since_version_4(version: int) -> None:
    """v4 and later need two steps; before v4 one step suffices; a refusal names its error."""

    async def scenario(node: GroupBroker) -> None:
        joined = await join(node, version)
        if version >= 4:
            assert (int(joined.error_code), joined.generation_id) == (79, -1)
            joined = await join(node, version, joined.member_id)
        assert (int(joined.error_code), joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id == joined.members[0].member_id
        assert bytes(joined.members[0].metadata) == b"sub"
        if version >= 7:
            assert joined.protocol_type == "consumer"
        if version >= 9:
            assert joined.skip_assignment is False
        second = await join(node, version, "invented")
        assert (int(second.error_code), second.members) == (25, ())
        described = await node.groups.read("g")
        member = described.membership.members[joined.member_id]
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)

    run_scenario(scenario)


def test_a_join_waits_a_moment_for_a_coordinator_that_is_loading() -> None:
    """For example the first member of a new cluster; its client would retry 3 s later. No large request is kept."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(leader=1)
        large = [{"_": "JoinGroupRequestProtocol", "name": "range", "metadata": b"s" * MAX_WAITING_BYTES}]
        assert (await join(node, protocols=large)).error_code == CoordinatorLoadInProgress.code
        node.publish(leader=2)
        node.publish(leader=1)
        long_named = await join(node, member_id="m" * MAX_WAITING_BYTES)
        assert long_named.error_code == CoordinatorLoadInProgress.code
        assert (await join(node)).error_code == MemberIdRequired.code

    run_scenario(scenario)


def test_a_heartbeat_succeeds_while_the_coordinator_is_loading() -> None:
    """As in Kafka (GroupCoordinatorService.heartbeat); once it is loaded, it says that a stranger is no member."""

    async def scenario(node: GroupBroker) -> None:
        fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        node.publish(leader=1)
        assert int((await node.call(heartbeat, 4, **fields)).error_code) == 0
        await node.groups.wait_until_loaded("g")
        assert int((await node.call(heartbeat, 4, **fields)).error_code) == 25

    run_scenario(scenario)


def test_a_sync_has_its_member_join_again_while_the_coordinator_is_loading() -> None:
    """As in Kafka up to 3.9. Java's and aiokafka's consumers end at COORDINATOR_LOAD_IN_PROGRESS there."""

    async def scenario(node: GroupBroker) -> None:
        fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        node.publish(leader=1)
        assert int((await node.call(sync_group, 3, **fields)).error_code) == RebalanceInProgress.code
        await node.groups.wait_until_loaded("g")
        assert int((await node.call(sync_group, 3, **fields)).error_code) == UnknownMemberId.code

    run_scenario(scenario)


def test_commits_and_leavings_come_again_while_the_coordinator_is_loading() -> None:
    """As in Kafka 4.3. Clients try a commit again at COORDINATOR_LOAD_IN_PROGRESS, and need no answer to a leaving."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(leader=1)
        assert await commit(node, 8, (0, 5, None)) == [CoordinatorLoadInProgress.code]
        members = [{"_": "MemberIdentity", "member_id": "m"}]
        left = await node.call(leave_group, 3, group_id="g", members=members)
        assert int(left.error_code) == CoordinatorLoadInProgress.code

    run_scenario(scenario)


def test_a_join_does_not_wait_for_ever_for_a_coordinator_that_is_loading() -> None:
    """It gets the error after LOAD_AWAITED_S, and NOT_COORDINATOR as soon as the partition has moved."""

    async def scenario(node: GroupBroker) -> None:
        node.partition_host.flushes = False
        appended = asyncio.ensure_future(commit(node, 2, (0, 5, None)))
        await asyncio.sleep(0.1)
        node.publish(leader=1)
        began = node.loop.time()
        assert (await join(node)).error_code == CoordinatorLoadInProgress.code
        assert node.loop.time() - began == pytest.approx(LOAD_AWAITED_S, abs=0.01)
        joining = asyncio.ensure_future(join(node))
        await asyncio.sleep(0.1)
        node.publish(leader=2)
        assert (await joining).error_code == NotCoordinator.code
        await appended

    run_scenario(scenario)


@versions(sync_group)
def test_a_sync_returns_the_leaders_assignment(version: int) -> None:
    """The leader's assignment comes back; another generation, and since v5 no protocol, is refused."""

    async def scenario(node: GroupBroker) -> None:
        member_id = (await join(node, 3)).member_id
        response = await sync(node, member_id, 1, version)
        assert (int(response.error_code), bytes(response.assignment)) == (0, b"mine")
        if version >= 5:
            assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
        assert int((await sync(node, member_id, 2, version)).error_code) == 22
        if version >= 5:
            for missing in ("protocol_type", "protocol_name"):
                refused = await sync(node, member_id, 1, version, **{missing: None})
                assert int(refused.error_code) == 23

    run_scenario(scenario)


@versions(heartbeat)
def test_only_members_may_send_heartbeats(version: int) -> None:
    """0 for a member, UNKNOWN_MEMBER_ID for a stranger, INVALID_GROUP_ID without a group."""

    async def scenario(node: GroupBroker) -> None:
        member_id, generation = await stable(node)

        async def beat(who: str, group_id: str = "g") -> int:
            response = await node.call(
                heartbeat, version, group_id=group_id, generation_id=generation, member_id=who
            )
            return int(response.error_code)

        assert [await beat(member_id), await beat("x"), await beat(member_id, "")] == [0, 25, 24]

    run_scenario(scenario)


@versions(leave_group)
def test_each_member_that_leaves_has_its_own_answer(version: int) -> None:
    """From v3 on each member has its own answer."""

    async def scenario(node: GroupBroker) -> None:
        member_id, _ = await stable(node)
        if version < 3:
            gone = await node.call(leave_group, version, group_id="g", member_id=member_id)
            again = await node.call(leave_group, version, group_id="g", member_id=member_id)
            assert (int(gone.error_code), int(again.error_code)) == (0, 25)
        else:
            members = [{"_": "MemberIdentity", "member_id": each} for each in (member_id, "stranger")]
            response = await node.call(leave_group, version, group_id="g", members=members)
            assert int(response.error_code) == 0
            assert [int(each.error_code) for each in response.members] == [0, 25]
            refused = await node.call(leave_group, version, group_id="", members=members)
            assert int(refused.error_code) == 24
        assert (await node.groups.read("g")).state == "Empty"

    run_scenario(scenario)


@versions(offset_commit)
def test_each_committed_partition_has_its_own_answer(version: int) -> None:
    """Each partition has its own answer: kept, text too long, no such partition, no such topic."""

    async def scenario(node: GroupBroker) -> None:
        codes = await commit(node, version, (0, 5, "text"), (1, 6, "x" * 4097), (3, 7, ""), (2, 8, None))
        assert codes == [0, 12, 3, 0]
        offsets = (await node.groups.read("g")).offsets
        assert {key[1]: (each.offset, each.metadata) for key, each in offsets.items()} == {
            0: (5, "text"),
            2: (8, ""),
        }
        assert offsets["t", 0].leader_epoch == (4 if version >= 6 else -1)
        unknown = await commit(node, version, (0, 5, ""), name="nope", topic_id=UUID(int=99))
        assert unknown == [100 if version >= 10 else 3]
        stranger = await commit(node, version, (0, 5, ""), member_id="x", generation_id_or_member_epoch=3)
        assert stranger == [25]

    run_scenario(scenario)


@versions(offset_commit)
def test_a_commit_for_a_deleted_topic_is_final(version: int) -> None:
    """INVALID_TOPIC_EXCEPTION: with UNKNOWN_TOPIC_OR_PARTITION clients repeat it rather than join again."""

    async def scenario(node: GroupBroker) -> None:
        assert await commit(node, version, (0, 5, "")) == [0]
        node.publish(topics={})
        assert await commit(node, version, (0, 6, "")) == [100 if version >= 10 else 17]
        other = await commit(node, version, (0, 5, ""), name="nope", topic_id=UUID(int=99))
        assert other == [100 if version >= 10 else 3]
        await asyncio.sleep(DELETED_KNOWN_S)
        assert await commit(node, version, (0, 6, "")) == [100 if version >= 10 else 3]
        node.publish(topics={"t": TOPIC})
        assert await commit(node, version, (0, 7, "")) == [0]

    run_scenario(scenario)


@versions(offset_commit)
def test_a_commit_for_a_partition_that_a_topic_made_again_lacks_is_final(version: int) -> None:
    """The partition went with the topic before. The deletion and the new topic may come in one image."""

    async def scenario(node: GroupBroker) -> None:
        again = msgspec.structs.replace(TOPIC, topic_id=AGAIN_ID, partitions=TOPIC.partitions[:1])
        node.publish(topics={"t": again})
        kept, gone = await commit(node, version, (0, 6, ""), (2, 6, ""), topic_id=AGAIN_ID)
        assert (kept, gone) == (0, 3 if version >= 10 else 17)
        await asyncio.sleep(DELETED_KNOWN_S)
        assert await commit(node, version, (2, 6, ""), topic_id=AGAIN_ID) == [3]

    run_scenario(scenario)


def test_a_bounded_number_of_deleted_topics_is_known() -> None:
    """The most recent names: a broker sees names come and go as long as it runs."""

    async def scenario(node: GroupBroker) -> None:
        for number in range(3):
            node.publish(topics={f"{number}-{each}": TOPIC for each in range(MAX_DELETED_TOPICS // 2)})
        node.publish(topics={})
        assert not node.replicas.was_deleted("0-1")
        assert node.replicas.was_deleted("1-1") and node.replicas.was_deleted("2-1")

    run_scenario(scenario)


@versions(offset_commit)
def test_not_coordinator_takes_precedence_over_an_unknown_topic(version: int) -> None:
    """Its metadata may be behind the client's; that a topic is unknown would be taken for the last word."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(leader=2, topics={})
        assert await commit(node, version, (0, 5, ""), (1, 6, "")) == [16, 16]

    run_scenario(scenario)


def fetch_fields(version: int, topics: list[Any] | None) -> dict[str, Any]:
    entity = "OffsetFetchRequestTopic" if version < 8 else "OffsetFetchRequestTopics"
    rows = topics and [
        {"_": entity, "name": name, "partition_indexes": partitions}
        | ({"topic_id": topic_id} if version >= 8 else {})
        for name, topic_id, partitions in topics
    ]
    if version < 8:
        return {"group_id": "g", "topics": rows}
    groups = [{"_": "OffsetFetchRequestGroup", "group_id": each, "topics": rows} for each in ("g", "h")]
    return {"groups": groups}


@versions(offset_fetch)
def test_committed_offsets_come_back_with_their_text(version: int) -> None:
    """Committed positions come back with their text, others as -1; null topics bring everything."""

    async def scenario(node: GroupBroker) -> None:
        await commit(node, 8, (0, 5, "text"), (2, 8, ""))

        async def fetch(topics: list[Any] | None) -> Any:
            response = await node.call(offset_fetch, version, **fetch_fields(version, topics))
            return response if version < 8 else response.groups[0]

        found = await fetch([("t", TOPIC_ID, (0, 1))])
        rows = [
            (each.partition_index, each.committed_offset, each.metadata, int(each.error_code))
            for each in found.topics[0].partitions
        ]
        assert rows == [(0, 5, "text", 0), (1, -1, "", 0)]
        if version >= 5:
            assert [each.committed_leader_epoch for each in found.topics[0].partitions] == [4, -1]
        if version >= 2:
            assert int(found.error_code) == 0
            everything = await fetch(None)
            assert [each.partition_index for each in everything.topics[0].partitions] == [0, 2]
        if version >= 10:
            unknown = await fetch([("", UUID(int=99), (0,))])
            assert int(unknown.topics[0].partitions[0].error_code) == 100
        node.publish(leader=2)
        lost = await fetch([("t", TOPIC_ID, (0,))])
        code = lost.topics[0].partitions[0].error_code if version < 2 else lost.error_code
        assert int(code) == 16

    run_scenario(scenario)


@versions(find_coordinator)
def test_the_coordinator_leads_the_groups_partition(version: int) -> None:
    """The leader of the group's partition on the listener asked; other coordinator types are refused."""

    async def scenario(node: GroupBroker) -> None:
        async def find(key: str, key_type: int = 0) -> Any:
            fields = {"key": key} if version < 4 else {"coordinator_keys": [key, "other"]}
            if version >= 1:
                fields["key_type"] = key_type
            response = await node.call(find_coordinator, version, **fields)
            return response if version < 4 else response.coordinators[0]

        found = await find("g")
        assert (int(found.error_code), int(found.node_id), found.host, found.port) == (0, 1, "b1", 9092)
        assert int((await find("")).error_code) == 24
        if version >= 1:
            refused = await find("txn", 2)
            assert int(refused.error_code) == 42
            rule = "its group, topic id and number" if version >= 6 else "not supported in this version"
            assert rule in refused.error_message

    run_scenario(scenario)


@versions(describe_groups)
def test_groups_are_described_and_unknown_ones_are_dead(version: int) -> None:
    """A stable group with its member; an unknown group is Dead, from v6 on GROUP_ID_NOT_FOUND."""

    async def scenario(node: GroupBroker) -> None:
        member_id, _ = await stable(node)
        response = await node.call(describe_groups, version, groups=["g", "unknown"])
        known, unknown = response.groups
        assert (known.group_state, known.protocol_type, known.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        member = known.members[0]
        assert (member.member_id, bytes(member.member_assignment)) == (member_id, b"mine")
        assert (unknown.group_state, int(unknown.error_code)) == ("Dead", 69 if version >= 6 else 0)

    run_scenario(scenario)


def test_members_keep_what_they_were_assigned_while_a_rebalance_gathers_them() -> None:
    """Tools show which member still reads what, as with Kafka."""

    async def scenario(node: GroupBroker) -> None:
        member_id, _ = await stable(node)
        newcomer = await join(node)
        await join(node)  # a third member gets an id and is waited for, so the rebalance goes on
        waiting = [
            asyncio.create_task(join(node, member_id=each)) for each in (newcomer.member_id, member_id)
        ]
        await asyncio.sleep(0.1)
        described = (await node.call(describe_groups, 5, groups=["g"])).groups[0]
        found = {each.member_id: bytes(each.member_assignment) for each in described.members}
        assert described.group_state == "PreparingRebalance"
        assert found == {member_id: b"mine", newcomer.member_id: b""}
        for each in waiting:
            each.cancel()

    run_scenario(scenario)


@versions(join_group)
def test_a_protocol_without_a_name_is_returned_as_none(version: int) -> None:
    """Versions from 7 on have null for it, also where a protocol has an empty name."""

    async def scenario(node: GroupBroker) -> None:
        protocols = [{"_": "JoinGroupRequestProtocol", "name": "", "metadata": b"sub"}]
        joined = await join(node, version, protocols=protocols)
        if int(joined.error_code) == MemberIdRequired.code:
            joined = await join(node, version, joined.member_id, protocols=protocols)
        assert (int(joined.error_code), joined.protocol_name) == (0, None if version >= 7 else "")

    run_scenario(scenario)


def test_history_of_a_group_is_for_the_admin_api_alone() -> None:
    """It names topics, which the admin API hides from some of its callers. A client has the usual answer."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        told = await node.call(describe_groups, 6, groups=["g"], tell_history=True)
        assert b"generation_began" in bytes(told.history)
        node.connection = Fake(is_open=True)
        asked = await node.call(describe_groups, 6, groups=["g"], tell_history=True)
        assert (asked.history, len(asked.groups[0].members)) == (b"", 1)

    run_scenario(scenario)


@versions(list_groups)
def test_groups_are_listed_by_state_and_type(version: int) -> None:
    """All groups; from v4 on filtered by state, from v5 on by type."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        await commit(node, 8, (0, 5, ""), group_id="simple")
        listed = await node.call(list_groups, version)
        names = {(each.group_id, each.protocol_type) for each in listed.groups}
        assert names == {("g", "consumer"), ("simple", "")}
        if version >= 4:
            empty = await node.call(list_groups, version, states_filter=["empty"])
            assert [(each.group_id, each.group_state) for each in empty.groups] == [("simple", "Empty")]
        if version >= 5:
            assert (await node.call(list_groups, version, types_filter=["consumer"])).groups == ()
            assert len((await node.call(list_groups, version, types_filter=["Classic"])).groups) == 2
        node.publish(leader=1)
        loading = await node.call(list_groups, version)
        assert int(loading.error_code) == 14

    run_scenario(scenario)


@versions(delete_groups)
def test_each_group_to_delete_has_its_own_answer(version: int) -> None:
    """Each group has its own answer: gone, has members, not found, no name; not ours."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        await commit(node, 8, (0, 5, ""), group_id="simple")

        async def delete() -> dict[str, int]:
            names = ["simple", "g", "unknown", ""]
            response = await node.call(delete_groups, version, groups_names=names)
            explained = {each.group_id for each in response.results if getattr(each, "error_message", None)}
            assert explained >= ({""} if version >= 3 else set()) and "simple" not in explained
            return {each.group_id: int(each.error_code) for each in response.results}

        assert await delete() == {"simple": 0, "g": 68, "unknown": 69, "": 24}
        assert not (await node.groups.read("simple")).exists
        node.publish(leader=2)
        assert await delete() == {"simple": 16, "g": 16, "unknown": 16, "": 24}

    run_scenario(scenario)


@versions(offset_delete)
def test_each_offset_to_delete_has_its_own_error(version: int) -> None:
    """Each partition has its own error; an error of the group is sent once."""

    async def scenario(node: GroupBroker) -> None:
        await commit(node, 8, (0, 5, ""), (2, 8, ""))

        async def delete(group_id: str) -> Any:
            rows = [{"_": "OffsetDeleteRequestPartition", "partition_index": index} for index in (0, 1, 9)]
            topics = [
                {"_": "OffsetDeleteRequestTopic", "name": name, "partitions": rows} for name in ("t", "nope")
            ]
            return await node.call(offset_delete, version, group_id=group_id, topics=topics)

        response = await delete("g")
        assert int(response.error_code) == 0
        codes = [[int(each.error_code) for each in topic.partitions] for topic in response.topics]
        assert codes == [[0, 0, 3], [3, 3, 3]]
        assert list((await node.groups.read("g")).offsets) == [("t", 2)]
        assert int((await delete("unknown")).error_code) == 69
        assert int((await delete("")).error_code) == 24

    run_scenario(scenario)


@versions(join_group)
def test_members_wait_for_each_other_on_the_wire(version: int) -> None:
    """One generation, after the delay that the second one prolonged; on time, not with the next tick."""

    async def scenario(node: GroupBroker) -> None:
        began = node.loop.time()
        ids = [""] * 2
        if version >= 4:
            ids = [(await join(node, version)).member_id for _ in ids]
        first, second = await asyncio.gather(*(join(node, version, each) for each in ids))
        assert {int(first.generation_id), int(second.generation_id)} == {1}
        assert sorted((len(first.members), len(second.members))) == [0, 2]
        assert 6.42 <= node.loop.time() - began < 6.6

    run_scenario(scenario, group_initial_rebalance_delay_ms=3_210)


@pytest.mark.parametrize(
    ("handler", "parts"),
    [
        (delete_groups, {"groups_names": [f"g{number}" for number in range(MANY)]}),
        (describe_groups, {"groups": [f"g{number}" for number in range(MANY)]}),
        (find_coordinator, {"coordinator_keys": [f"g{number}" for number in range(MANY)]}),
        (leave_group, {"group_id": "g", "members": [{"_": "MemberIdentity", "member_id": "x"}] * MANY}),
        (
            offset_fetch,
            {
                "groups": [
                    {"_": "OffsetFetchRequestGroup", "group_id": f"g{number}", "topics": None}
                    for number in range(MANY)
                ]
            },
        ),
        (
            offset_fetch,
            {
                "groups": [
                    {
                        "_": "OffsetFetchRequestGroup",
                        "group_id": "g",
                        "topics": [
                            {
                                "_": "OffsetFetchRequestTopics",
                                "topic_id": TOPIC_ID,
                                "partition_indexes": list(range(MANY)),
                            }
                        ],
                    }
                ]
            },
        ),
        (
            offset_commit,
            {
                "group_id": "g",
                "topics": [
                    {
                        "_": "OffsetCommitRequestTopic",
                        "topic_id": UUID(int=999),
                        "partitions": [
                            {"_": "OffsetCommitRequestPartition", "partition_index": number}
                            for number in range(MANY)
                        ],
                    }
                ],
            },
        ),
    ],
)
def test_a_request_of_many_parts_leaves_the_loop_to_others(handler: Any, parts: dict[str, Any]) -> None:
    """One request of half a million names must not keep the broker from its own heartbeats."""

    async def scenario(node: GroupBroker) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(count())
        await node.call(handler, APIS[handler.API_KEY].max_version, **parts)
        others.cancel()
        assert turns >= MANY // PARTS_AT_ONCE

    run_scenario(scenario)


def test_a_group_named_repeatedly_in_a_request_is_answered_once() -> None:
    """A few kilobytes of names made an answer of a hundred megabytes."""

    async def scenario(node: GroupBroker) -> None:
        await stable(node)
        described = await node.call(describe_groups, 5, groups=["g", "h", "g"])
        assert [each.group_id for each in described.groups] == ["g", "h"]
        asked = {"_": "OffsetFetchRequestGroup", "group_id": "g", "topics": None}
        fetched = await node.call(offset_fetch, 8, groups=[asked, asked])
        assert [each.group_id for each in fetched.groups] == ["g"]

    run_scenario(scenario)


def test_an_answer_that_is_full_says_so_of_the_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks again for these is answered; one group at least is described in any case."""
    monkeypatch.setattr(describe_groups, "MAX_MEMBERS", 1)
    monkeypatch.setattr(offset_fetch, "MAX_OFFSETS", 1)

    async def scenario(node: GroupBroker) -> None:
        await commit(node, 8, (0, 1, ""), group_id="h")
        await stable(node)
        described = await node.call(describe_groups, 5, groups=["g", "h", "i"])
        assert [int(each.error_code) for each in described.groups] == [0, 14, 14]
        again = await node.call(describe_groups, 5, groups=["h", "i"])
        assert [int(each.error_code) for each in again.groups] == [0, 0]
        groups = [{"_": "OffsetFetchRequestGroup", "group_id": each, "topics": None} for each in "hg"]
        fetched = await node.call(offset_fetch, 8, groups=groups)
        assert [int(each.error_code) for each in fetched.groups] == [0, 14]

    run_scenario(scenario)


async def answered_by_one_flush(node: GroupBroker, handler: Any, version: int, **fields: Any) -> Any:
    """Send a request without flushes; then flush everything, once."""
    node.partition_host.flushes = False
    asked = asyncio.ensure_future(node.call(handler, version, **fields))
    await asyncio.sleep(0.01)
    assert not asked.done()
    for partition in node.replicas.partitions.values():
        node.partition_host.flush(partition)
    await asyncio.sleep(0.01)
    assert asked.done(), "some part was begun only after another had ended"
    return await asked


def test_groups_that_are_deleted_together_wait_for_one_commit() -> None:
    """Commits in sequence took ten round trips for ten groups."""

    async def scenario(node: GroupBroker) -> None:
        names = [f"g{number}" for number in range(10)]
        for name in names:
            await commit(node, 8, (0, 1, ""), group_id=name)
        answer = await answered_by_one_flush(node, delete_groups, 2, groups_names=["", *names, "none"])
        assert [int(each.error_code) for each in answer.results] == [24, *[0] * 10, 69]

    run_scenario(scenario)


def test_members_that_leave_together_wait_for_one_commit() -> None:
    """Each has its own answer, whatever they wait for."""

    async def scenario(node: GroupBroker) -> None:
        ids = [(await join(node)).member_id for _ in range(2)]
        first, _ = await asyncio.gather(*(join(node, member_id=each) for each in ids))
        await sync(node, first.leader, first.generation_id)
        node.partition_host.flushes = False
        member = {"member_id": first.leader, "generation_id_or_member_epoch": first.generation_id}
        committed = asyncio.ensure_future(commit(node, 8, (0, 1, ""), **member))
        await asyncio.sleep(0.01)
        members = [{"_": "MemberIdentity", "member_id": each} for each in (*ids, "stranger")]
        answer = await answered_by_one_flush(node, leave_group, 5, group_id="g", members=members)
        assert [int(each.error_code) for each in answer.members] == [0, 0, 25]
        assert await committed == [0]

    run_scenario(scenario, group_initial_rebalance_delay_ms=100)


def test_an_offset_may_be_kept_for_as_long_as_64_bits_can_say() -> None:
    """A retention time that led beyond them could not be written, and ended the connection."""

    async def scenario(node: GroupBroker) -> None:
        assert await commit(node, 3, (0, 5, "m"), retention_time=2**63 - 1) == [0]

    run_scenario(scenario)
