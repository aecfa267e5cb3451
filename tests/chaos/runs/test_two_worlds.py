"""Claim of the case files: the very files that hurt processes hurt simulated nodes, in virtual time."""

from __future__ import annotations

import pytest

from raftlog_chaos.checkers import judge
from raftlog_chaos.faults import FAULTS
from raftlog_chaos.history import Header
from raftlog_chaos.runs.case import Case, read_cases
from raftlog_chaos.runs.outcome import Judgement, conclude
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.runs.simulated import SimulatedRun, run_simulated
from raftlog_chaos.simulator.loop import Run, SimLoop, simulate
from raftlog_chaos.testbeds.find import SUITES
from tests.kit.marks import nightly

LIMIT_S = 400.0


def told(case: Case, seed: int) -> Run:
    return simulate(lambda loop: run_simulated(case, loop), seed=seed, limit_s=LIMIT_S)


@pytest.mark.parametrize(
    ("name", "seed"), [("kill-leader", 1), nightly("blackout", 2), nightly("cut-off", 3)]
)
def test_a_case_file_runs_in_the_simulator_as_it_does_on_processes(name, seed):
    """Same file, same runner, same verdict: no record is lost, faults were injected, the cluster is whole again."""
    case = read_cases(SUITES, FAULTS)[name].lasting(3)
    record, history = told(case, seed).result
    verdict = judge(Header(), history)
    assert verdict.valid, verdict.text()
    outcome = conclude(record, Judgement({}, {}, ""))
    assert outcome.reasons == []
    assert outcome.status == "passed"
    assert outcome.injected
    assert outcome.meter_acks > 100


def test_a_case_about_schemas_does_not_run_without_registries():
    """Without its registrars it would pass, and prove nothing of the registry."""
    case = read_cases(SUITES, FAULTS)["schemas"]

    async def run(loop: SimLoop) -> str:
        with pytest.raises(Unavailable) as refused:
            await run_simulated(case, loop)
        return str(refused.value)

    assert simulate(run, seed=1, limit_s=LIMIT_S).result == "has no schema registries"


def test_a_broken_invariant_fails_a_case_that_lets_nodes_stop():
    """A disk's failure excuses a node that ends, never what it did before."""
    case = read_cases(SUITES, FAULTS)["disk-trouble"].lasting(1)
    assert case.expect.nodes_may_stop

    async def run(loop: SimLoop) -> SimulatedRun:
        def break_one() -> None:
            loop.observer.__self__.failures.append("two leaders")  # type: ignore[union-attr]

        loop.call_later(3.0, break_one)
        return await run_simulated(case, loop)

    record = simulate(run, seed=1, limit_s=LIMIT_S).result.record
    assert any("two leaders" in each for each in conclude(record, Judgement({}, {}, "")).reasons)


@pytest.mark.nightly
def test_a_simulated_run_repeats_itself_exactly():
    """The runner and the meter take no input from the real world."""
    case = read_cases(SUITES, FAULTS)["kill-leader"].lasting(1)
    first, second = told(case, 5), told(case, 5)
    assert first.digest == second.digest
    assert first.result.record.injections == second.result.record.injections
