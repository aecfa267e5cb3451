"""The workload's transactions on a log in memory: what keeps its promises is valid, each broken promise is noticed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from tests.chaos.workloads.memory_transactions import Plant, TransactionalCluster

WRITING = LogOptions(txn=True, writes_per_key=60, crash_every_s=3.0, rate=200)
TRANSFORMING = LogOptions(
    txn=True, clients=0, writers=2, transformers=1, writes_per_key=60, crash_every_s=3.0, rate=200
)


@dataclass
class Played:
    load: LogWorkload
    ops: list[Op]
    missing: dict[str, int]
    open: int

    @property
    def verdict(self) -> Verdict:
        return judge(Header(), self.ops)

    @property
    def faults(self) -> set[str]:
        """Anomalies' names that each checker notices, and "at sight"."""
        verdict = self.verdict
        named = {name for name, found in verdict.anomalies.items() if not found[0].allowed}
        return named | ({"at sight"} if self.load.faults or self.missing else set())

    def outcomes(self) -> set[tuple[str, str]]:
        return {(op.type, (op.error or "").partition(":")[0]) for op in self.ops if op.f == "txn"}


def play(options: LogOptions, plant: Plant = "", trouble: float = 0.0) -> Played:
    """Run the workload for six seconds in virtual time, then heal, let it finish, and read all."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> Played:
        memory = TransactionalCluster(loop.stream("memory"), trouble=trouble, plant=plant)
        load = LogWorkload(
            Recorder(lambda: int(loop.time() * 1e9), ops.append), memory, loop.stream("load"), options
        )
        load.start()
        await asyncio.sleep(6.0)
        memory.trouble = 0.0
        missing = await load.finish(15.0)
        return Played(load, ops, missing, memory.open)

    return simulate(program, seed=1).result


@pytest.mark.parametrize("options", [WRITING, TRANSFORMING], ids=["writing", "transforming"])
@pytest.mark.parametrize("trouble", [0.0, 0.1])
def test_transactions_that_keep_their_promises_are_no_anomaly(options: LogOptions, trouble: float) -> None:
    """Committed, aborted, left open, fenced, without an answer: all of it happens, all is read, ports are closed."""
    played = play(options, trouble=trouble)
    assert played.faults == set(), (played.load.faults, played.missing, played.verdict.text())
    assert played.open == 0
    assert {("ok", ""), ("fail", "aborted"), ("fail", "left open"), ("fail", "fenced")} <= played.outcomes()
    assert (("info", "the answer was lost") in played.outcomes()) == (trouble > 0)


@pytest.mark.parametrize(
    ("plant", "options", "noticed"),
    [
        ("shown", WRITING, {"G1a"}),
        ("torn", WRITING, {"torn-transaction"}),
        ("zombie", WRITING, {"G1a", "at sight"}),
        ("hanging", WRITING, {"at sight"}),
        ("shown", TRANSFORMING, {"G1a"}),
        ("twice", TRANSFORMING, {"processed-twice"}),
        ("ahead", TRANSFORMING, {"left-out"}),
    ],
)
def test_each_broken_promise_is_noticed(plant: Plant, options: LogOptions, noticed: set[str]) -> None:
    """A harness without findings may be blind."""
    assert noticed <= play(options, plant=plant, trouble=0.05).faults


def test_each_record_becomes_one_record() -> None:
    """Consume, transform, produce: as many come out as went in, whatever was tried in between."""
    played = play(TRANSFORMING, trouble=0.05)
    consumed = [op for op in played.ops if op.group and op.type == "ok"]
    assert sum(len(op.value or ()) - 1 for op in consumed) > 100
    assert len({op.process for op in consumed}) > 3, "members come and go"
