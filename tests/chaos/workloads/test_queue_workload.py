"""The workers of a queue on a share group in memory: their history gets the right verdict."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from raftlog.testing.progress import patient
from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, Op, QueueTerms, Recorder
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.queue_workload import QueueOptions, QueueWorkload
from tests.chaos.workloads.queue_memory import QueueMemory, Row

KEY = "log0-0"
TERMS = QueueTerms(lock_s=2.0, limit=50, stale_s=0.0)
RECORDS = 60
STALL_S = 20.0


@dataclass
class Played:
    memory: QueueMemory
    load: QueueWorkload
    missing: dict[str, int] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        return judge(Header(queue=TERMS), self.ops)

    @property
    def found(self) -> set[str]:
        return set(self.verdict.anomalies) - {"unseen"}  # no consumer reads these records

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((op.f, op.type) for op in self.ops)


def play(*, seconds: float = 60.0, fails_every: int = 0, forgets: frozenset[int] = frozenset()) -> Played:
    """Write a record each half second, let the workers go on meanwhile, and drain the queue."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> Played:
        memory = QueueMemory(TERMS.lock_s, fails_every=fails_every, forgets=forgets)
        recorder = Recorder(lambda: int(loop.time() * 1e9), ops.append)
        options = QueueOptions(group="g", keys=(KEY,), workers=3, terms=TERMS, crash_every_s=10.0)
        load = QueueWorkload(recorder, memory.ports(), loop.stream("load"), options)
        load.start()
        writer = recorder.new_process()
        for offset in range(RECORDS):
            recorder.note(writer, "invoke", "send", [["send", KEY, offset + 1]])
            memory.rows.append(Row(offset + 1))
            recorder.note(writer, "ok", "send", [["send", KEY, [offset, offset + 1]]])
            await asyncio.sleep(seconds / RECORDS)
        missing = await load.finish({KEY: RECORDS - 1}, STALL_S)
        return Played(memory, load, missing, ops)

    return simulate(program, seed=3, limit_s=patient(2_000)).result


def test_a_sound_share_group_is_valid_though_workers_die_and_outstay() -> None:
    """All kinds of answers, deaths and late acknowledgements are in the history."""
    played = play()
    assert (played.missing, played.load.faults, played.found) == ({}, [], set())
    kinds = {micro[0] for op in played.ops if op.f == "acknowledge" for micro in op.value or ()}
    assert kinds == {"accept", "release", "reject"}
    counts = played.counts()
    assert played.memory.killed > 3 and counts["acknowledge", "fail"] > 0 and counts["crash", "info"] > 3
    assert counts["start-offsets", "ok"] > 10


def test_a_worker_ends_with_an_answer_that_got_lost() -> None:
    """It may be carried out or not; another worker follows under another number."""
    played = play(fails_every=5)
    assert (played.missing, played.found) == ({}, set())
    assert played.counts()["acknowledge", "info"] > 5
    by_process = Counter(op.process for op in played.ops if op.f == "join" and op.type == "ok")
    assert set(by_process.values()) == {1} and len(by_process) > 8


def test_a_share_group_that_forgets_an_accept_is_found() -> None:
    """The record comes again and again, and the drain says what is left."""
    played = play(forgets=frozenset({7}))
    assert played.missing == {KEY: RECORDS - 1}
    assert "delivered-again" in played.found
