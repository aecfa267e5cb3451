"""The configs of a share group, as the leaders of its partitions follow them (KIP-932, KIP-1240)."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from raftlog.base.errors import ShareSessionLimitReached
from raftlog.metadata.controller_api import AlterClientQuotas, QuotaAlteration
from raftlog.records.batch import iter_records
from raftlog.records.header import iter_headers
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.ledger import Ledger
from raftlog_chaos.workloads.share_member import ACCEPT, RELEASE
from tests.node.share_members import (
    TOPIC,
    Member,
    acquired,
    code_of,
    partition_of,
    produce,
    run_scenario,
    set_group_config,
    share_partitions,
    start,
    submit,
)


async def first_fetch(cluster: SimCluster) -> list[tuple[int, int, int]]:
    """Return what the first member of the group gets."""
    member = Member(cluster, "a")
    await member.join()
    member.find_leader()
    return acquired(await member.fetch())


@pytest.mark.parametrize(
    ("reset", "first"),
    [
        ("earliest", 2),
        ("latest", None),
        ("by_duration:PT5S", 5),
        ("by_duration:PT1H", 2),
        ("by_duration:PT1S", None),
    ],
)
def test_a_group_begins_where_its_config_says(reset: str, first: int | None) -> None:
    """At the log's start, at its end, or at the first record that is so new; without such a record at the end."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, share_auto_offset_reset=reset)
        await produce(cluster, 1)
        state = cluster.state(TOPIC, 0)
        assert state is not None
        replica = cluster.replica(state.leader, TOPIC, 0)
        assert replica is not None
        cluster.nodes[state.leader].host.call(replica.delete_records, 2)
        await asyncio.sleep(10.0)
        await produce(cluster, 1)
        await asyncio.sleep(3.0)
        assert await first_fetch(cluster) == ([] if first is None else [(first, first + 2, 1)])

    run_scenario(scenario)


@pytest.mark.parametrize("cold_read_rate", [0.0, 1.0])
def test_a_read_committed_group_never_gets_what_was_aborted(cold_read_rate: float) -> None:
    """No aborted record, no marker, and none past an open transaction; all that is committed, in turn."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, share_isolation_level="read_committed")
        (a,) = await start(cluster, "a")
        sim_node, replica = cluster.nodes[a.leader], cluster.replica(a.leader, TOPIC, 0)
        assert replica is not None
        sim_node.host.disk.cold_read_rate = cold_read_rate
        ledger = Ledger(random.Random(5))
        for _ in range(60):
            sim_node.host.call(partial(ledger.step, replica))
        while not ledger._open:
            sim_node.host.call(partial(ledger.step, replica))
            await asyncio.sleep(0.01)
        opened = len(ledger._open)
        seen: list[bytes] = []
        for _ in range(100):
            answer = await a.fetch(max_records=4, max_wait=100)
            found = acquired(answer)
            if found:
                offsets = {each for first, last, _ in found for each in range(first, last + 1)}
                view = memoryview(partition_of(answer).records)
                seen += [
                    record.value or b""
                    for at, header in iter_headers(view)
                    for record in iter_records(view[at : at + header.length])
                    if record.offset in offsets
                ]
                assert (
                    code_of(await a.acknowledge(*((first, last, [ACCEPT]) for first, last, _ in found))) == 0
                )
        committed = [value for value, is_committed in ledger.decided.items() if is_committed]
        assert len(committed) > 5 and False in ledger.decided.values() and opened
        assert sorted(seen) == sorted(committed)

    run_scenario(scenario)


def test_limits_change_at_once() -> None:
    """Locks, deliveries and records in flight follow the group's configs while its partitions are led."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await set_group_config(cluster, share_record_lock_duration_ms="15000", share_delivery_count_limit="2")
        await produce(cluster, 1)
        answer = await a.fetch()
        assert acquired(answer) == [(0, 2, 1)] and answer.acquisition_lock_timeout == 15_000
        answer = await a.acknowledge((0, 2, [RELEASE]))
        assert code_of(answer) == 0 and answer.acquisition_lock_timeout == 15_000
        assert acquired(await a.fetch()) == [(0, 2, 2)]
        assert code_of(await a.acknowledge((0, 2, [RELEASE]))) == 0
        assert acquired(await a.fetch()) == [(3, 4, 1)], "the others are out of deliveries"
        await asyncio.sleep(15.5)
        assert acquired(await a.fetch()) == [(3, 4, 2)]

    run_scenario(scenario)


def test_a_member_past_its_quota_gets_no_records_and_locks_none() -> None:
    """consumer_byte_rate holds for ShareFetch; the response says for how long its sender is muted."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        quota = QuotaAlteration((("client-id", "a"),), (("consumer_byte_rate", 10.0),))
        await submit(cluster, AlterClientQuotas((quota,)))
        await produce(cluster, 2)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        a.client.timeout_s = 120.0
        answer = await a.fetch()
        assert acquired(answer) == [] and answer.throttle_time
        (led,) = share_partitions(cluster, a.leader)._led.values()
        assert led.machine.next_fetch_offset() == 3
        await asyncio.sleep(60.0)
        assert acquired(await a.fetch()) == [(0, 2, 2)], "the lock is over"

    run_scenario(scenario)


def test_a_member_without_room_for_a_session_is_held_back() -> None:
    """SHARE_SESSION_LIMIT_REACHED comes after MaxWaitMs, as in Apache Kafka, so that it does not ask again at once."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        share_partitions(cluster, a.leader).sessions.most = 1
        b = Member(cluster, "b")
        b.find_leader()
        began_at = asyncio.get_running_loop().time()
        assert (await b.fetch(max_wait=3_000)).error_code == ShareSessionLimitReached.code
        assert 3.0 <= asyncio.get_running_loop().time() - began_at < 4.0

    run_scenario(scenario)


def test_an_idle_share_partition_makes_room_for_another() -> None:
    """A leader keeps at most so many; a dropped one begins again from what is written."""

    async def scenario(cluster: SimCluster) -> None:
        await produce(cluster, 1, index=1)
        (a,) = await start(cluster, "a")
        held = share_partitions(cluster, a.leader)
        held.most = 1
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        b = Member(cluster, "b")
        b.index = next(
            each
            for each, state in enumerate(cluster.last_image().topics[TOPIC].partitions)
            if each and state.leader == a.leader
        )
        b.find_leader()
        assert acquired(await b.fetch()) == [] and len(held) == 1
        assert code_of(await a.acknowledge((0, 2, [ACCEPT]))) == 0
        assert acquired(await b.fetch()) == [] and [each.partition for each in held._led] == [b.index]
        assert acquired(await a.fetch()) == [(3, 4, 1)]

    run_scenario(scenario, partitions=9)
