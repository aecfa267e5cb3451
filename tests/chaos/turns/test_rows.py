"""The harness finds a turn that is too long: here in a handler that computes, and in a thread beside the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from raftlog.broker.handlers import heartbeat
from raftlog.broker.long_work.long_turns import LONG_TURN_S
from raftlog.protocol.apis import ApiKey
from raftlog_chaos.turns.report import NO_ANSWER, Row, as_lines
from raftlog_chaos.turns.rows import PAUSES_S, Scope, measure
from raftlog_chaos.turns.states import Sizes
from raftlog_chaos.turns.stopwatch import Stopwatch, Turn
from tests.broker.rows import change_row

LITTLE = Sizes(1, 1, 1, *[1] * (len(Sizes._fields) - 3))


def compute(seconds: float) -> None:
    """Use so much of this thread's processor time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_loop_that_takes_no_turns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler goes through parts for longer than a turn may last; others are as they were."""
    handle = heartbeat.handle

    def unsliced(*about: Any) -> Any:
        compute(20 * LONG_TURN_S)  # whatever the machine is like
        return handle(*about)

    change_row(monkeypatch, ApiKey.HEARTBEAT, handle=unsliced)
    monkeypatch.setattr("raftlog_chaos.turns.rows.PAUSES_S", (0.0,) * len(PAUSES_S))
    rows = measure(Scope(LITTLE, only=["heartbeat"], every_version=False))
    late = [each.what for each in rows if each.is_late]
    assert late
    assert all(each.startswith("heartbeat 4: ") for each in late)
    assert "TOO LONG" in "\n".join(as_lines(rows))


def test_request_without_an_answer_fails() -> None:
    """A request that was refused as a whole is no measurement."""
    row = Row("api", "parts", Turn(), 0.0, NO_ANSWER)
    assert row.has_failed
    assert "NO ANSWER" in as_lines([row])[0]


def test_only_the_loop_of_the_thread_counts() -> None:
    """Another thread may compute meanwhile, and a loop in a thread of another name is not timed."""

    async def work() -> None:
        await asyncio.to_thread(compute, 2 * LONG_TURN_S)
        compute(0.01)

    with Stopwatch("timed") as watch:
        for name in ("timed-1", "other"):
            thread = threading.Thread(target=lambda: asyncio.run(work()), name=name)
            thread.start()
            thread.join()
            if name == "timed-1":
                assert watch.longest.seconds >= 0.01
                watch.begin()
    assert watch.longest == Turn()


def test_turn_that_has_not_ended_counts() -> None:
    """An answer comes before its turn ends: who has the answer and looks, sees the whole turn."""
    answered = threading.Event()

    def answer() -> None:
        answered.set()
        compute(0.05)

    async def work() -> None:
        asyncio.get_running_loop().call_soon(answer)
        await asyncio.sleep(0)

    with Stopwatch("timed") as watch:
        thread = threading.Thread(target=lambda: asyncio.run(work()), name="timed")
        thread.start()
        answered.wait()
        assert watch.longest.seconds >= 0.05
        thread.join()
