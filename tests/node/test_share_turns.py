"""No ShareAcknowledge holds the event loop, however many batches of records it names (`tests.broker.handlers`)."""

from __future__ import annotations

import asyncio

import pytest

from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.handles import SimHandle, SimTimer
from raftlog_chaos.workloads.share_member import ACCEPT, RENEW
from tests.broker.handlers.test_large_requests import CallbackWork
from tests.node.share_members import acquired, code_of, produce, run_scenario, start

BATCHES = 10_000

WORK_AT_ONCE = 100_000
"""Of one turn of the loop: 10 ms. Decoding takes two thirds of it."""


@pytest.mark.parametrize("type_", [RENEW, ACCEPT])
def test_no_turn_is_long_however_many_batches_name_few_records(
    monkeypatch: pytest.MonkeyPatch, type_: int
) -> None:
    """A record may be renewed again and again, and any number of records below the start offset may be named."""
    run = asyncio.Handle._run

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        work = CallbackWork(f"node{a.leader}")
        for kind in (SimHandle, SimTimer):
            monkeypatch.setattr(
                kind, "_run", lambda handle: work.run(handle, lambda: run(handle)), raising=False
            )
        await produce(cluster, 1)
        assert acquired(await a.fetch(max_records=5)) == [(0, 4, 1)]
        batches = [(3, 3, [type_])] * BATCHES
        if type_ == ACCEPT:
            assert code_of(await a.acknowledge((0, 4, [ACCEPT]))) == 0
            batches = [(each * 4 // BATCHES,) * 2 + ([type_],) for each in range(BATCHES)]
        work.is_counting = True
        answer = await a.acknowledge(*batches, is_renew_ack=type_ == RENEW)
        work.is_counting = False
        assert code_of(answer) == 0
        assert work.most < WORK_AT_ONCE, f"{work.most} units in {work.where}"

    run_scenario(scenario)
