"""Claims about what a node makes of its own lateness."""

from __future__ import annotations

from raftlog.base.lateness import LATE_S, MAX_PATIENCE_S, PATIENCE, REMEMBERED_S, Lateness


def test_a_node_that_is_on_time_waits_no_longer_than_usual() -> None:
    """Whoever is dead is found out as soon as ever."""
    lateness = Lateness()
    for tick in range(1000):
        lateness.note(LATE_S * 0.9, 100 + tick / 10)
    assert (lateness.worst_s, lateness.patience_s) == (0.0, 0.0)


def test_one_stall_is_remembered_for_a_while_and_then_forgotten() -> None:
    """A rhythm of stalls counts as one slowness; a single one does not count for ever."""
    lateness = Lateness()
    lateness.note(0.9, 100.0)
    seen = {}
    for tick in range(1, 400):
        lateness.note(0.0, 100 + tick / 10)
        seen[tick / 10] = lateness.worst_s
    assert {late for after, late in seen.items() if after < REMEMBERED_S / 2} == {0.9}
    assert {late for after, late in seen.items() if after > 1.5 * REMEMBERED_S} == {0.0}
    assert lateness.patience_s == 0.0


def test_patience_grows_with_lateness_and_has_an_end() -> None:
    """A node that stood still for an hour does not wait for hours."""
    lateness = Lateness()
    lateness.note(0.5, 100.0)
    assert lateness.patience_s == PATIENCE * 0.5
    lateness.note(3600.0, 3700.0)
    assert lateness.patience_s == MAX_PATIENCE_S
