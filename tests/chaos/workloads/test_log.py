"""The workload on a log in memory: its records get the right verdict, and processes stop when they must."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.generator import Poll, Send, Take
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.port import Unsupported
from tests.chaos.workloads.memory import MemoryCluster


@dataclass
class Played:
    load: LogWorkload
    cluster: MemoryCluster
    ops: list[Op]
    missing: dict[str, int]
    ended_at: float
    """Virtual seconds; a world begins at 1000."""

    @property
    def verdict(self) -> Verdict:
        return judge(Header(), self.ops)

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((op.f, op.type) for op in self.ops)


def play(
    options: LogOptions,
    *,
    trouble: float = 0.0,
    seconds: float = 5.0,
    limit_s: float = 30.0,
    **cluster: object,
) -> Played:
    """Run the workload in virtual time and read everything at its end, when there is no more trouble."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> Played:
        memory = MemoryCluster(loop.stream("memory"), trouble=trouble, **cluster)  # type: ignore[arg-type]
        recorder = Recorder(lambda: int(loop.time() * 1e9), ops.append)
        load = LogWorkload(recorder, memory, loop.stream("load"), options)
        load.start()
        await asyncio.sleep(seconds)
        await load.close()
        memory.trouble = 0.0
        missing = await load.finish(limit_s)
        return Played(load, memory, ops, missing, loop.time())

    return simulate(program, seed=1).result


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_log_that_keeps_its_promises_is_valid(subscribe: bool) -> None:
    """Everything acknowledged is read at last, keys wear out, and ports are closed."""
    played = play(LogOptions(subscribe=subscribe, writes_per_key=20, crash_every_s=1.0))
    assert played.verdict.valid, played.verdict.text()
    assert not played.missing and not played.load.faults
    assert len(played.cluster.topics) > 5
    assert played.load.acked_count == sum(map(len, played.cluster.logs.values())) > 500
    assert played.counts["crash", "info"] > 10
    assert played.cluster.open == 0


@pytest.mark.parametrize("subscribe", [False, True])
def test_trouble_with_certain_and_uncertain_ends_is_no_anomaly(subscribe: bool) -> None:
    """Refused sends are not there, those without an answer may be; failed polls are read again."""
    options = LogOptions(subscribe=subscribe, careless=1, writes_per_key=50, crash_every_s=2.0)
    played = play(options, trouble=0.1)
    assert played.verdict.valid, played.verdict.text()
    assert not played.missing
    counts = played.counts
    taken = "subscribe" if subscribe else "assign"
    assert min(counts["send", end] for end in ("ok", "info", "fail")) > 0
    assert counts["poll", "ok"] and counts["poll", "info"] and counts[taken, "fail"]
    assert (counts["poll", "fail"] > 0) == subscribe


def test_a_process_with_an_indeterminate_operation_never_runs_another() -> None:
    """A process is single-threaded, and after `info` no operation continues under its name (Jepsen)."""
    played = play(LogOptions(careless=1, crash_every_s=1.0), trouble=0.1)
    gone: set[int] = set()
    busy: set[int] = set()
    for op in played.ops:
        assert op.process not in gone
        assert (op.type == "invoke") == (op.process not in busy)
        busy ^= {op.process}
        if op.type == "info":
            gone.add(op.process)


def test_an_unreadable_record_is_found() -> None:
    """The final phase makes a lost record certain: it was acknowledged, others behind it were read."""
    played = play(LogOptions(), hidden={("log0-0", 7)})
    assert not played.verdict.valid
    assert {"lost-write", "unseen"} <= set(played.verdict.anomalies)


def test_an_end_that_is_never_reached_is_named() -> None:
    """The final phase has a limit, and says what was missing then."""
    played = play(LogOptions(), seconds=1.0, limit_s=25.0, hidden={("log1-1", each) for each in range(1000)})
    assert list(played.missing) == ["log1-1"]
    assert played.counts["crash", "info"] >= 2, "readers that see nothing new begin anew"


def test_careless_sends_promise_nothing() -> None:
    """An acks=1 record may be lost, and its offset be another's."""
    played = play(LogOptions(clients=0, writers=0, readers=1, careless=2))
    sends = [op for op in played.ops if op.f == "send" and op.type != "invoke"]
    assert len(sends) > 50
    assert {op.type for op in sends} == {"info"}
    assert all(step[2][0] is None for op in sends for step in op.value or ())
    assert len({op.process for op in sends}) == len(sends)
    assert not played.load.generator.acked


def test_a_damaged_record_is_wrong_at_sight() -> None:
    """It is no outcome of an operation, so no checker would see it."""
    played = play(LogOptions(), seconds=0.5, limit_s=1.0, damaged=True)
    assert "what is this" in played.load.faults


def test_a_slow_workload_stops_at_once() -> None:
    """An idle process is not waited for."""
    played = play(LogOptions(rate=0.01, crash_every_s=0.0), seconds=1.0, limit_s=1.0)
    assert not played.missing
    assert played.ended_at < 1_005.0


def test_transactions_are_refused_by_clients_without() -> None:
    """Better no run than a run of another test."""
    with pytest.raises(Unsupported):
        play(LogOptions(txn=True), seconds=0.1)


def test_operations_follow_the_seed() -> None:
    """The same chance gives the same history."""
    first, again = (play(LogOptions(careless=1), trouble=0.05, seconds=2.0) for _ in range(2))
    assert first.ops == again.ops
    assert {Send, Poll, Take} <= {type(first.load.generator.next("client", fresh=False)) for _ in range(900)}
