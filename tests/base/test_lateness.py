"""Claims about what a node makes of its own lateness."""

from __future__ import annotations

from raftlog.base.lateness import LATE_S, MAX_PATIENCE_S, OFTEN, PATIENCE, REMEMBERED_S, Lateness
from tests.kit.slowness import make_slow


def test_a_node_that_is_on_time_waits_no_longer_than_usual() -> None:
    """A dead node is found out as soon as ever."""
    lateness = Lateness()
    for tick in range(1000):
        lateness.note(LATE_S * 0.9, 100 + tick / 10)
    assert (lateness.late_s, lateness.patience_s) == (0.0, 0.0)


def test_slowness_is_remembered_for_a_while_and_then_forgotten() -> None:
    """A rhythm of stalls counts as one slowness; it does not count for ever."""
    lateness = Lateness()
    make_slow(lateness, 0.9, 100.0)
    seen = {}
    for tick in range(1, 400):
        lateness.note(0.0, 100 + tick / 10)
        seen[tick / 10] = lateness.late_s
    assert {late for after, late in seen.items() if after < REMEMBERED_S} == {0.9}
    assert {late for after, late in seen.items() if after > REMEMBERED_S} == {0.0}
    assert lateness.patience_s == 0.0


def test_a_node_that_was_stopped_a_few_times_waits_no_longer_than_usual() -> None:
    """For half a minute after a SIGSTOP a node found others out up to ten seconds late."""
    lateness = Lateness()
    for stop in range(OFTEN - 1):
        lateness.note(3.0, 100.0 + stop)
        assert (lateness.is_slow, lateness.late_s, lateness.patience_s) == (False, 0.0, 0.0)
    lateness.note(3.0, 100.0 + OFTEN)
    assert lateness.is_slow and lateness.patience_s == PATIENCE * 3.0, "now it is a habit"


def test_the_patience_of_a_slow_node_does_not_grow_by_one_stall() -> None:
    """It counts how late the node often is, not how late it was once."""
    lateness = Lateness()
    make_slow(lateness, 0.2, 100.0)
    lateness.note(9.0, 110.0)
    assert lateness.patience_s == PATIENCE * 0.2


def test_patience_grows_with_lateness_and_has_an_end() -> None:
    """A node that stood still for an hour does not wait for hours."""
    lateness = Lateness()
    make_slow(lateness, 0.5, 100.0)
    assert lateness.patience_s == PATIENCE * 0.5
    make_slow(lateness, 3600.0, 3700.0)
    assert lateness.patience_s == MAX_PATIENCE_S
