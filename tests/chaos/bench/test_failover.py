"""Claims about how gaps are computed and attributed; the faults themselves run against real clusters."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from raftlog_chaos.bench.failover import AIMS, FAILOVER_FAULTS, Outcome, Round
from raftlog_chaos.runs.landmarks import count_events, moments
from raftlog_chaos.runs.meter import longest_gap


def line(event: str, at: float) -> str:
    return json.dumps({"event": event, "timestamp": datetime.fromtimestamp(at, UTC).isoformat()})


def a_round(*gaps_s: float, errors: tuple[str, ...] = (), **seconds: float) -> Round:
    return Round(node_id=1, gaps_s=gaps_s, back_gaps_s=[0.1], errors=errors, moments=seconds)


@pytest.mark.parametrize(
    ("acked_at", "gap"),
    [
        ([1.0, 2.0, 9.0, 10.0], (7.0, 9.0)),
        ([1.0, 4.9, 5.1, 5.2, 20.0], (14.8, 20.0)),
        ([1.0, 2.0], (8.0, 10.0)),
        ([], (5.0, 10.0)),
        ([0.0, 4.0, 6.0, 7.0, 10.5, 30.0], (3.5, 10.5)),
    ],
)
def test_the_longest_gap_is_one_that_overlaps_the_fault(acked_at, gap):
    """From the acknowledgement before to the next; a missing acknowledgement counts until the end."""
    assert longest_gap(acked_at, 5.0, 10.0) == pytest.approx(gap)


def test_gaps_far_from_the_fault_do_not_count():
    """Neither those over before it, nor those begun after it."""
    assert longest_gap([0.0, 4.0, 4.5, 5.5, 6.0, 11.0, 50.0], 5.0, 5.8).seconds == pytest.approx(1.0)


def test_moments_are_the_first_of_each_landmark_after_the_strike():
    """Whichever node said it first; what was said before belongs to another round, and not every line is an event."""
    lines = [
        line("roles_changed", 99.0),
        line("controller_fenced_broker", 100.02),
        "Traceback (most recent call last):",
        line("roles_changed", 100.05),
        line("roles_changed", 100.03),
        json.dumps(["no", "event"]),
        line("isr_shrunk", 100.01),
    ]
    assert moments(lines, 100.0) == pytest.approx({"fenced": 0.02, "led": 0.03})
    assert count_events(lines, "roles_changed", 100.0) == 2


def test_an_outcome_is_over_all_partitions_of_all_rounds():
    """The median of partitions, the worst of rounds, and every error."""
    outcome = Outcome(
        FAILOVER_FAULTS[0], [a_round(0.1, 0.2, 0.9, fenced=0.3), a_round(0.1, 0.1, errors=("lost",))]
    )
    assert outcome.median_s == 0.1
    assert outcome.worst_s == 0.9
    assert outcome.errors == 1
    assert outcome.moment_s("fenced") == 0.3
    assert outcome.moment_s("elected") is None


def test_every_scenario_has_an_aim():
    """A scenario without an aim could not be printed."""
    assert {scenario.name for scenario in FAILOVER_FAULTS} == AIMS.keys()
