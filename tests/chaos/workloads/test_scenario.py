"""The scenario of Jepsen's workload: sound nodes pass it, and what clients saw is enough to convict others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog_chaos.invariants import Invariants
from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.scenarios.report import Report, report_of
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop, simulate
from tests.kit.marks import nightly
from tests.planted.replicas import forget_producers_on_failover, serve_the_uncommitted

STORM_S = 6.0
SEEDS = range(1, 13)

pytestmark = pytest.mark.slow


async def in_a_storm(loop: SimLoop) -> Report:
    return report_of(await SCENARIOS["jepsen"](loop, STORM_S))


@pytest.mark.nightly
def test_sound_nodes_pass() -> None:
    """No anomaly, though there were storms, in which leaders changed. .ci/run runs 60 seeds."""
    reports = [simulate(in_a_storm, seed=seed).result for seed in range(1, 3)]
    assert all(report.acked > 50 for report in reports)
    assert sum(report.elections for report in reports) > 2
    assert sum(sum(report.faults.values()) for report in reports) > 5


@pytest.mark.parametrize(
    ("plant", "anomaly"),
    [(forget_producers_on_failover, "duplicate"), nightly(serve_the_uncommitted, "inconsistent-offsets")],
)
def test_what_clients_saw_convicts(
    plant: Callable[[pytest.MonkeyPatch], None], anomaly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against real processes there is no other evidence."""
    plant(monkeypatch)
    monkeypatch.setattr(SimCluster, "check", lambda cluster: None)
    monkeypatch.setattr(Invariants, "stepped", lambda invariants, process: None)
    for seed in SEEDS:
        try:
            simulate(in_a_storm, seed=seed)
        except AssertionError as error:
            if anomaly in str(error):
                return
    pytest.fail(f"{anomaly} was not found by seeds {SEEDS}")
