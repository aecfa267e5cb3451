"""Records that an operator releases or archives by hand, over changes of the partition's leader (KIP-932)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import InvalidRecordState, NotLeaderOrFollower, ResourceNotFound
from raftlog.base.share_deliveries import HandAcknowledgement
from raftlog.broker.handlers.shared import share_by_hand
from raftlog.broker.handlers.shared.share_by_hand import acknowledge_by_hand
from raftlog.sharing.share_partition import SharePartition
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.share_member import ACCEPT
from tests.node.share_members import (
    TOPIC,
    Member,
    acquired,
    code_of,
    context_of,
    produce,
    run_scenario,
    set_group_config,
    share_partitions,
    start,
)
from tests.node.test_dead_letters import have_letters, key_of, offsets, until_letters


async def by_hand(
    cluster: SimCluster, node_id: int, named: tuple[int, int] | None, *, rejects: bool, group: str = "work"
) -> dict[str, int]:
    """Return what a broker says that became of the records: the numbers that are not zero."""
    topic_id = cluster.last_image().topics[TOPIC].topic_id
    said = HandAcknowledgement(topic_id, 0, rejects, named)
    work = acknowledge_by_hand(context_of(cluster, node_id), group, said)
    found: Any = await cluster.nodes[node_id].host.start(work)
    return {name: getattr(found, name) for name in found.__struct_fields__ if getattr(found, name)}


async def move_leader(cluster: SimCluster, *members: Member) -> None:
    """Stop the leader of the topic, and have members begin sessions with the next."""
    former = members[0].leader
    cluster.crash(former)
    await cluster.until(
        lambda: (cluster.state(TOPIC, 0) or members[0]).leader not in (former, -1), 30, "a leader"
    )
    for each in members:
        each.find_leader()


def test_what_is_released_by_hand_goes_to_another_member_with_one_delivery_more() -> None:
    """Under the next leader, too: the count was written before the operator was answered."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        assert await by_hand(cluster, a.leader, (0, 1), rejects=False) == {"released": 2}
        assert code_of(await a.acknowledge((0, 0, [ACCEPT]))) == InvalidRecordState.code
        assert acquired(await b.fetch(max_records=1)) == [(0, 0, 2)]
        await move_leader(cluster, b, a)
        assert acquired(await b.fetch(max_records=10)) == [(0, 1, 2), (2, 4, 1)]

    run_scenario(scenario)


def test_what_is_archived_by_hand_goes_to_nobody_and_has_one_dead_letter() -> None:
    """Whatever member holds it, and whether the leader crashes before the letter is written or not."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        assert await by_hand(cluster, a.leader, (0, 1), rejects=True) == {"archived": 2}
        await move_leader(cluster, b)
        assert acquired(await b.fetch(max_records=10)) == [(2, 4, 1)]
        await until_letters(cluster, 0, 1)
        await b.acknowledge((2, 4, [ACCEPT]))
        assert await by_hand(cluster, b.leader, (0, 5), rejects=True) == {"done": 5, "not_fetched": 1}
        await produce(cluster, 1)
        assert acquired(await b.fetch(max_records=1)) == [(5, 5, 1)]
        assert offsets(cluster) == [0, 1]

    run_scenario(scenario)


def test_a_partition_without_members_is_read_back_and_let_go() -> None:
    """An operator needs no member there, and what it made a leader keep is dropped once it is not needed."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, share_delivery_count_limit="5")
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        leader = a.leader
        a.client.close()
        held = share_partitions(cluster, leader)
        await cluster.until(lambda: not held.sessions.has_group("work"), 10, "the session ends")
        assert await by_hand(cluster, leader, (1, 1), rejects=True) == {"archived": 1}
        led = held.find(key_of(cluster))
        assert led is not None and led.is_retired and led.is_idle
        (b,) = await start_at(cluster, "b")
        assert acquired(await b.fetch(max_records=10)) == [(0, 0, 2), (2, 2, 2), (3, 4, 1)]

    run_scenario(scenario)


async def start_at(cluster: SimCluster, name: str) -> list[Member]:
    """Return a member that has joined, and fetched nothing yet."""
    member = Member(cluster, name)
    await member.join()
    member.find_leader()
    return [member]


def test_a_hand_acts_on_what_an_administrator_has_set() -> None:
    """The leader does not hear of the new start offset, and keeps the former state while a session is open."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        await a.leave()
        await a.alter_offset(0)
        assert share_partitions(cluster, a.leader).sessions.has_group("work")
        assert await by_hand(cluster, a.leader, (0, 4), rejects=True) == {"not_fetched": 5}

    run_scenario(scenario)


def test_many_records_are_archived_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have another state. Any number of offsets may be named that are not in flight."""
    monkeypatch.setattr(share_by_hand, "OFFSETS_AT_ONCE", 2)
    slices: list[int] = []
    archive = SharePartition.acknowledge_by_hand

    def count(partition: SharePartition, *args: Any, now: float) -> Any:
        slices.append(partition.range_count)
        return archive(partition, *args, now=now)

    monkeypatch.setattr(SharePartition, "acknowledge_by_hand", count)

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        assert acquired(await b.fetch()) == [(3, 4, 1)]
        found = await by_hand(cluster, a.leader, (0, 2**62), rejects=True)
        assert found == {"archived": 5, "not_fetched": 2**62 - 4}
        assert len(slices) == 3
        assert await by_hand(cluster, a.leader, (1, 2**62), rejects=True) == {
            "done": 4,
            "not_fetched": 2**62 - 4,
        }
        assert len(slices) == 4

    run_scenario(scenario)


def test_a_hand_that_reaches_the_wrong_broker_or_group_changes_nothing() -> None:
    """It says that the leader is another, or that the group does not read the partition."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        other = next(each for each in cluster.nodes if each != a.leader)
        with pytest.raises(NotLeaderOrFollower):
            await by_hand(cluster, other, None, rejects=True)
        with pytest.raises(ResourceNotFound, match="group none-1 has not begun"):
            await by_hand(cluster, a.leader, None, rejects=True, group="none-1")
        assert len(share_partitions(cluster, a.leader)) == 1
        assert await by_hand(cluster, a.leader, None, rejects=True) == {}

    run_scenario(scenario)
