"""Claims about outcomes: what a gap is, where its time went, and which expectation was broken."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from raftlog_chaos.runs.landmarks import read_events, violations
from raftlog_chaos.runs.outcome import Judgement, conclude, unrun
from raftlog_chaos.runs.record import Injection, covered, injections
from tests.chaos.runs.runs import CLEAN, beats, case, events, line, record


class Moment(NamedTuple):
    at_s: float
    event: str
    fault: str
    target: str


def test_a_gap_is_the_worst_partitions_and_says_where_its_time_went():
    """The longest time between two acknowledgements that overlaps the fault, and the landmarks on the way."""
    kill, pause = conclude(record(), CLEAN, events=events()).stalls
    assert kill.gap_s == pytest.approx(0.75)
    assert kill.moments == pytest.approx({"fenced": 0.2, "led": 0.25, "acknowledged": 0.7})
    assert pause.gap_s == pytest.approx(0.05)
    assert "fenced" not in pause.moments, "what happens after the healing belongs to no injection"


def test_what_follows_a_fault_may_be_logged_before_the_fault_is_noted():
    """A killed node's peers know it before the harness has seen its process gone; that took no time at all."""
    hasty = read_events(1, [line("controller_fenced_broker", 2.999, broker_id=2)])
    kill, _ = conclude(record(), CLEAN, events=[*hasty, *events()]).stalls
    assert kill.moments["fenced"] == 0.0


def test_pauses_of_coordinators_are_reported_by_what_they_commit():
    """As of partitions: by fault, of each injection's worst id or group."""
    made = record()
    made.commits = {"transactions": [beats(), beats((3.1, 4.0))], "offsets": [beats((7.2, 7.6))]}
    commits = conclude(made, CLEAN).commits
    assert {each.fault: each.max_s for each in commits["transactions"]} == pytest.approx(
        {"kill-leader": 0.95, "pause": 0.05}
    )
    assert {each.fault: each.max_s for each in commits["offsets"]}["pause"] == pytest.approx(0.45)


def test_unavailability_is_reported_by_fault():
    """A table of medians and maxima, of each injection's worst partition."""
    kill, pause = conclude(record(), CLEAN).unavailability
    assert (kill.fault, kill.count, kill.max_s) == ("kill-leader", 1, pytest.approx(0.75))
    assert (pause.fault, pause.after_heal_max_s) == ("pause", pytest.approx(0.0, abs=0.06))


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"acked": 121}, "120 writes acknowledged, expected at least 121"),
        ({"acked_during_faults": 60}, "30 writes acknowledged during faults, expected at least 60"),
        (
            {"registered_during_faults": 3},
            "2 new ids of schemas during faults, expected at least 3",
        ),
        ({"injections": 3}, "2 faults injected, expected at least 3"),
        (
            {"unavailable_s": {"kill-leader": 0.5}},
            "kill-leader: 0.75 s without an acknowledgement, limit 0.5 s",
        ),
        (
            {"unseen": ("NOT_ENOUGH_REPLICAS",)},
            "1 records of the meter failed with NOT_ENOUGH_REPLICAS, expected none",
        ),
    ],
)
def test_an_expectation_that_was_not_met_fails_the_case_and_is_named(expected, reason):
    """Each bound, one by one; the same run without the bound passes."""
    outcome = conclude(record(**expected), CLEAN)
    assert (outcome.status, outcome.reasons) == ("failed", [reason])
    assert conclude(record(), CLEAN).status == "passed"


def test_anomalies_fail_a_case_unless_they_are_allowed():
    """The checker's verdict comes first."""
    found = Judgement({"lost-write": 2}, {}, "INVALID")
    assert conclude(record(), found).reasons == ["2 lost-write"]
    assert conclude(record(), Judgement({}, {"G0": 2}, "VALID")).status == "passed"


def test_a_node_that_ended_by_itself_fails_a_case_that_does_not_expect_it():
    """A failed disk may end a node; a kill of another never does."""
    for may_stop, status in ((False, "failed"), (True, "passed")):
        made = record(nodes_may_stop=may_stop)
        made.fallen = ["node 3: ended by itself"]
        assert conclude(made, CLEAN).status == status


def test_one_client_that_never_came_back_is_reported_and_more_fail_a_case():
    """librdkafka has calls that hang; a cluster that lets clients hang affects more than one."""
    run = record()
    run.left_behind = ["client 3: close did not return within 40 s"]
    outcome = conclude(run, CLEAN)
    assert outcome.status == "passed" and run.left_behind[0] in outcome.notes
    run.left_behind.append("client 4: commit did not return within 40 s")
    outcome = conclude(run, CLEAN)
    assert outcome.status == "failed" and run.left_behind[1] in outcome.reasons


def test_what_a_place_cannot_inject_is_not_run_and_never_passed():
    """Neither a whole case nor a single fault."""
    assert unrun(case(), {"processes": "can't cut"}, seed=1).status == "not run"
    made = record()
    made.injections, made.not_run = [], dict.fromkeys(made.case.faults.names, "processes lacks it")
    outcome = conclude(made, CLEAN)
    assert outcome.status == "not run"
    assert outcome.notes == ["kill-leader not run: processes lacks it", "pause not run: processes lacks it"]


def test_what_a_place_lacks_excuses_no_fault_that_it_can_inject():
    """The other faults are still run; a fault that never struck is reported."""
    made = record()
    made.injections, made.not_run = [], {"pause": "processes lacks pause"}
    outcome = conclude(made, CLEAN)
    assert outcome.status == "failed"
    assert outcome.reasons == ["0 faults injected, expected at least 1"]
    assert outcome.notes == ["pause not run: processes lacks pause", "kill-leader never struck"]


def test_a_log_may_hold_no_traceback_and_only_the_errors_that_the_faults_explain():
    """Error events by name; a traceback is never expected."""
    lines = [
        line("node_ready", 0),
        '{"event": "log_directory_failed", "timestamp": "2024-01-01", "level": "error"}',
        "Traceback (most recent call last):",
        "AssertionError: isr within replicas",
    ]
    assert len(list(violations(1, lines, ()))) == 3
    assert list(violations(1, lines, ["log_directory_failed"])) == [
        "node 1: Traceback (most recent call last):",
        "node 1: AssertionError: isr within replicas",
    ]


def test_injections_are_paired_with_their_own_healing():
    """Overlapping faults of a kind in order; a fault without a target is none; an unhealed fault lasts to the end."""
    moments = [
        Moment(101, "inject", "kill", "node 1"),
        Moment(102, "inject", "pause", "node 2"),
        Moment(103, "inject", "kill", ""),
        Moment(104, "heal", "kill", "node 1"),
        Moment(105, "inject", "cut-pair", "1, 2"),
        Moment(106, "heal", "pause", "node 2"),
        Moment(107, "not run", "wipe-follower", ""),
    ]
    assert list(injections(moments, 100, 20)) == [
        Injection("kill", "node 1", 1, 4),
        Injection("pause", "node 2", 2, 6),
        Injection("cut-pair", "1, 2", 5, 20),
    ]


def test_writes_during_faults_are_counted_once_where_faults_overlap():
    """A short fault inside a long fault does not end it."""
    spans = [Injection("a", "", 1, 9), Injection("b", "", 2, 3), Injection("c", "", 20, 21)]
    assert covered(spans, [0.5, 1.0, 2.5, 5.0, 9.5, 20.5, 22.0]) == 4
