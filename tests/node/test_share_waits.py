"""The price of a ShareFetch that waits, and of a record that wakes several of them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from raftlog.base.errors import CoordinatorLoadInProgress
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.broker.handlers.shared.share_reader import ShareReader
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.share_member import RELEASE
from tests.node.share_members import (
    BATCH,
    Member,
    acquired,
    code_of,
    produce,
    run_scenario,
    set_group_config,
    start,
)

SHARE_FILES = (
    "/handlers/share_",
    "/shared/share_",
    "/coordination/led_share",
    "/share_group_configs",
    "/sharing/",
)

OTHERS = 10

WAITED_IN_VAIN = 81
"""Calls in these files for a ShareFetch that gets no record."""

WOKEN_IN_VAIN = 11
"""Calls there for each further member that waits for the partition of a record."""


def _watch_passes(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the member of each pass over the partitions of a session."""
    passes: list[str] = []
    look = ShareReader._pass

    async def counted(reader: ShareReader, *, is_last: bool) -> Any:
        passes.append(reader._asked.member_id)
        return await look(reader, is_last=is_last)

    patch.setattr(ShareReader, "_pass", counted)
    return passes


async def _begin_to_wait(*members: Member) -> list[asyncio.Future[Any]]:
    """Return the ShareFetches of members, which wait in this order."""
    waiting = []
    for each in members:
        waiting.append(asyncio.ensure_future(each.fetch(max_wait=2_000, max_records=BATCH)))
        await asyncio.sleep(0.2)
    return waiting


def test_a_member_looks_again_only_for_records_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member in waiting gets a batch. The second has no pass for it, nor one at the end of its wait."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        with monkeypatch.context() as patch:
            passes = _watch_passes(patch)
            waiting = await _begin_to_wait(a, b)
            await produce(cluster, 1)
            assert acquired(await waiting[0]) == [(0, BATCH - 1, 1)]
            assert acquired(await waiting[1]) == []
            assert passes == ["a", "b", "a"]

    run_scenario(scenario)


def test_a_member_that_was_woken_in_vain_is_woken_again() -> None:
    """It gets the next record at once, and records that another member gives up."""

    async def scenario(cluster: SimCluster) -> None:
        a, b, c = await start(cluster, "a", "b", "c")
        waiting = await _begin_to_wait(a, b, c)
        await produce(cluster, 1)
        assert acquired(await waiting[0]) == [(0, BATCH - 1, 1)]
        began_at = asyncio.get_running_loop().time()
        await produce(cluster, 1)
        assert acquired(await waiting[1]) == [(BATCH, 2 * BATCH - 1, 1)]
        assert code_of(await a.acknowledge((0, BATCH - 1, [RELEASE]))) == 0
        assert acquired(await waiting[2]) == [(0, BATCH - 1, 2)]
        assert asyncio.get_running_loop().time() - began_at < 1.0

    run_scenario(scenario)


def test_a_member_looks_again_where_the_state_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share coordinator loads, and does not wake the member when it has loaded."""

    async def scenario(cluster: SimCluster) -> None:
        await start(cluster, "a")
        await produce(cluster, 1)
        b = Member(cluster, "b")
        await b.join()
        b.find_leader()
        get, refused = LedSharePartitions.get, []

        async def refuse_once(led: LedSharePartitions, key: SharePartitionKey, *, checked: bool) -> Any:
            if not refused:
                refused.append(key)
                raise CoordinatorLoadInProgress
            return await get(led, key, checked=checked)

        with monkeypatch.context() as patch:
            patch.setattr(LedSharePartitions, "get", refuse_once)
            assert acquired(await b.fetch(max_wait=500, max_records=BATCH)) == [(0, BATCH - 1, 1)]
        assert refused

    run_scenario(scenario)


def test_a_member_looks_again_where_locks_were_at_their_limit() -> None:
    """It is not woken when an administrator raises share.partition.max.record.locks."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await set_group_config(cluster, share_partition_max_record_locks="100")
        await produce(cluster, 100 // BATCH + 1)
        assert acquired(await a.fetch(max_records=200)) == [(0, 99, 1)]
        (waiting,) = await _begin_to_wait(b)
        await set_group_config(cluster, share_partition_max_record_locks="200")
        assert acquired(await waiting) == [(100, 99 + BATCH, 1)]

    run_scenario(scenario)


class _Calls:
    """Counts the Python functions of SHARE_FILES that are called within a `with`."""

    count = 0

    def __enter__(self) -> _Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        self.count += event == "call" and any(each in name for each in SHARE_FILES)


def test_waiting_costs_few_calls() -> None:
    """Idle workers cost their broker a fetch each per wait, and all of them wake for each record."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        with _Calls() as alone:
            assert acquired(await a.fetch()) == []
        assert alone.count <= WAITED_IN_VAIN
        others = await start(cluster, *(f"m{number}" for number in range(OTHERS)))
        waiting = await _begin_to_wait(a)
        with _Calls() as for_one:
            await produce(cluster, 1)
            await waiting[0]
        waiting = await _begin_to_wait(a, *others)
        with _Calls() as for_many:
            await produce(cluster, 1)
            await waiting[0]
        assert for_many.count - for_one.count <= OTHERS * WOKEN_IN_VAIN

    run_scenario(scenario)
