"""Leaders of share partitions follow administrators, who set and delete what they know (KIP-932)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.raw_client import FIND_COORDINATOR, shapes
from raftlog_chaos.workloads.share_member import ACCEPT, FINAL_EPOCH, HEARTBEAT
from tests.node.share_members import (
    BATCH,
    GROUP,
    TOPIC,
    Member,
    acquired,
    code_of,
    produce,
    run_scenario,
    set_group_config,
    start,
)


async def ask_coordinator(member: Member, api_key: int, version: int, message: Any) -> Any:
    """Send a request to the group's coordinator."""
    find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=GROUP, key_type=0)
    at = await member.client.ask_any(FIND_COORDINATOR, find)
    return await member.client.ask((at.host, at.port), api_key, message, version=version)


async def leave(member: Member) -> None:
    """End a member's session, and leave the group."""
    assert (await member.fetch(epoch=FINAL_EPOCH)).error_code == 0
    make = request_builders(HEARTBEAT, 1)
    message = make.ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member.name, member_epoch=-1)
    assert (await ask_coordinator(member, HEARTBEAT, 1, message)).error_code == 0


async def set_start(member: Member) -> None:
    """Let the group begin at offset 0 again."""
    make = request_builders(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0)
    partition = make.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = make.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=(partition,))
    message = make.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=(topic,))
    answer = await ask_coordinator(member, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, message)
    assert answer.responses[0].partitions[0].error_code == 0


async def delete_offsets(member: Member) -> None:
    """Delete where the group is."""
    make = request_builders(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0)
    topic = make.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
    message = make.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=(topic,))
    answer = await ask_coordinator(member, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, message)
    assert answer.responses[0].error_code == 0


async def delete_group(member: Member) -> None:
    """Delete the group."""
    message = request_builders(ApiKey.DELETE_GROUPS, 2).DeleteGroupsRequest(groups_names=(GROUP,))
    answer = await ask_coordinator(member, ApiKey.DELETE_GROUPS, 2, message)
    assert answer.results[0].error_code == 0


@pytest.mark.parametrize("change", [set_start, delete_offsets, delete_group])
def test_the_next_member_begins_where_an_administrator_says(change: Any) -> None:
    """The leader of the partition is the same, and has the former start offset in memory."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 2)
        last = 2 * BATCH - 1
        assert acquired(await a.fetch(max_records=last + 1)) == [(0, last, 1)]
        assert code_of(await a.acknowledge((0, last, [ACCEPT]))) == 0
        await leave(a)
        await set_group_config(cluster, share_auto_offset_reset="earliest")
        await change(a)
        b = Member(cluster, "b")
        await b.join()
        b.find_leader()
        assert acquired(await b.fetch(max_records=last + 1)) == [(0, last, 1)]

    run_scenario(scenario)
