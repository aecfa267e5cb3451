"""The cost of a verdict on a small scale; `scale.py` measures the large scale."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, StoredHistory
from tests.chaos.checkers.model import Shape, history
from tests.chaos.checkers.scale import write

OPERATIONS = 4_000
BYTES_PER_OPERATION = 300
"""A million operations then stay far below a gigabyte."""
CALLS_PER_OPERATION = 70
"""Python functions called for each: the same on every machine, unlike seconds."""


@pytest.mark.nightly
def test_memory_grows_by_a_few_hundred_bytes_for_each_operation(tmp_path):
    """A file's operations are never held; what is kept of them is compact."""
    write(tmp_path / "history", OPERATIONS)
    stored = StoredHistory(tmp_path / "history")
    gc.collect()
    tracemalloc.start()
    verdict = judge(stored.header, stored)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert verdict.valid
    assert peak < BYTES_PER_OPERATION * OPERATIONS + 200_000


def test_the_number_of_calls_for_each_operation_is_bounded():
    """So a verdict on a million operations takes less than two minutes on one core, and a simulation's very little."""
    ops = list(history(1, Shape(operations=2_000, values_per_key=500)))
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        verdict = judge(Header(), ops)
    finally:
        sys.setprofile(None)
    assert verdict.valid
    assert calls < CALLS_PER_OPERATION * 2_000, f"{calls / 2_000:.0f} calls for each operation"


def test_many_anomalies_cost_no_more_than_their_count(tmp_path):
    """A history in which everything is lost is judged all the same; only the smallest examples are kept."""
    ops = [op for op in history(1, Shape(operations=2_000, values_per_key=500)) if op.f != "poll"]
    verdict = judge(Header(), ops)
    assert verdict.cases["unseen"] == verdict.metrics["sends_ok"] > 500
    assert sum(map(len, verdict.anomalies.values())) < 50
