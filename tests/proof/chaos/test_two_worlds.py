"""Claim of the case files: the very files that hurt processes hurt simulated nodes, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.proof.chaos.case import Case, read_cases
from raftlog.proof.chaos.outcome import Judgement, conclude
from raftlog.proof.chaos.simulated import run_simulated
from raftlog.proof.checkers import judge
from raftlog.proof.faults import FAULTS
from raftlog.proof.history import Header
from raftlog.proof.simulator.loop import Run, simulate

SUITES = Path(__file__).parents[3] / "chaos" / "suites"
LIMIT_S = 400.0


def told(case: Case, seed: int) -> Run:
    return simulate(lambda loop: run_simulated(case, loop), seed=seed, limit_s=LIMIT_S)


@pytest.mark.parametrize(("name", "seed"), [("kill-leader", 1), ("blackout", 2), ("cut-off", 3)])
def test_a_case_file_runs_in_the_simulator_as_it_does_on_processes(name, seed):
    """Same file, same runner, same verdict: nothing is lost, faults were injected, the cluster is whole again."""
    case = read_cases(SUITES, FAULTS)[name].lasting(5)
    record, history = told(case, seed).result
    verdict = judge(Header(), history)
    assert verdict.valid, verdict.text()
    outcome = conclude(record, Judgement({}, {}, ""))
    assert outcome.reasons == []
    assert outcome.status == "passed"
    assert outcome.injected
    assert outcome.meter_acks > 100


def test_a_simulated_run_repeats_itself_exactly():
    """The runner and the meter take nothing from the real world."""
    case = read_cases(SUITES, FAULTS)["kill-leader"].lasting(2)
    first, second = told(case, 5), told(case, 5)
    assert first.digest == second.digest
    assert first.result.record.injections == second.result.record.injections
