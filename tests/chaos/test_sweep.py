"""Many seeds: all are reported, failures are explained, and the sums are right."""

from __future__ import annotations

import asyncio

import pytest

from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator import SimLoop
from raftlog_chaos.sweep import ScenarioRun, Sweep, run_seed


async def fails_at_odd_seeds(loop: SimLoop, seconds: float) -> Report:
    host = loop.host("node1")
    host.note("crashed")
    await asyncio.sleep(seconds)
    if loop.seed % 2:
        raise AssertionError(f"seed {loop.seed} is odd")
    return Report(acked=10, elections=1, faults={"crash": 1, "cut": 0}, recovery_s=float(loop.seed))


@pytest.fixture(autouse=True)
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "odd", fails_at_odd_seeds)


def tales(first: int, last: int) -> list[ScenarioRun]:
    return [ScenarioRun("odd", seed, 2.0) for seed in range(first, last + 1)]


def test_a_failure_has_its_replay_and_its_events() -> None:
    """The line to type, what was violated, and what happened before."""
    outcome = run_seed(ScenarioRun("odd", 3, 2.0))
    assert outcome.failure == "seed 3 is odd"
    assert outcome.tale.replay == "raftlog sim --scenario odd --seconds 2 --seed 3 --log"
    assert [(each.node, each.text) for each in outcome.events] == [("node1", "crashed")]


def test_a_sweep_stops_at_a_failure_by_default() -> None:
    """A developer wants one failure at a time; a nightly run wants them all."""
    assert [outcome.tale.seed for outcome in Sweep(tales(2, 9))] == [2, 3]
    sweep = Sweep(tales(2, 9), keep_going=True)
    assert len(list(sweep)) == 8
    assert [each.tale.seed for each in sweep.summary.failures] == [3, 5, 7, 9]


def test_no_seed_begins_once_the_budget_is_spent() -> None:
    """A sweep in CI is bounded in time."""
    assert list(Sweep(tales(2, 9), budget_s=0.0)) == []


def test_a_summary_adds_up_and_names_faults_that_never_struck() -> None:
    """A fault class that never fires tests no code."""
    sweep = Sweep(tales(2, 2) + tales(4, 4))
    list(sweep)
    summary = sweep.summary
    assert (summary.seeds, summary.acked, summary.elections) == (2, 20, 2)
    assert summary.faults == {"crash": 2, "cut": 0} and summary.silent_faults == ["cut"]
    assert summary.slowest_recovery_s == 4.0
    assert summary.virtual_s == pytest.approx(4.0, abs=0.1)


@pytest.mark.slow
def test_seeds_in_several_processes_are_the_same_seeds() -> None:
    """Equal digests, in this process and in fresh processes."""
    asked = [ScenarioRun("quorum", seed, 1.0) for seed in (1, 2, 3)]
    alone = {each.tale.seed: each.digest for each in Sweep(asked)}
    together = {each.tale.seed: each.digest for each in Sweep(asked, jobs=2)}
    assert alone == together
