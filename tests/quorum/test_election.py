"""Claims about when a voter takes its leader for lost, if its own loop is slow."""

from __future__ import annotations

import random

from raftlog.base.lateness import PATIENCE, Lateness
from raftlog.quorum.election import Election, Timing

TIMING = Timing()


def election(late_s: float) -> Election:
    lateness = Lateness()
    lateness.note(late_s, 0.0)
    return Election(majority=2, timing=TIMING, chance=random.Random(1), now=100.0, lateness=lateness)


def test_a_slow_voter_waits_longer_before_it_stands() -> None:
    """It hears of its leader late because it reads late: it deposed leaders that were sound."""
    for late_s, more_s in ((0.0, 0.0), (0.9, PATIENCE * 0.9)):
        found = election(late_s)
        found.heard_leader(100.0, 100.5)
        assert found.deadline == 100.5 + more_s


def test_a_slow_voter_encourages_nobody_against_a_leader_that_it_may_yet_hear() -> None:
    """A pre-vote is granted by whoever hears no leader: a slow one hears it later."""
    just_after = 100.0 + TIMING.election_min + 0.1
    assert [election(late_s).hears_leader(just_after) for late_s in (0.0, 0.9)] == [False, False]
    heard = [election(late_s) for late_s in (0.0, 0.9)]
    for each in heard:
        each.heard_leader(100.0, 100.5)
    assert [each.hears_leader(just_after) for each in heard] == [False, True]


def test_a_slow_voter_stands_at_once_where_its_leader_is_known_to_be_dead() -> None:
    """Patience is for silence, not for a refused connection."""
    found = election(5.0)
    found.heard_leader(100.0, 100.5)
    found.lost_leader(100.1)
    assert found.deadline <= 100.1 + TIMING.hurry_max


def test_after_a_stall_there_is_time_to_read() -> None:
    """A deadline that is put off by the stall alone is now: uvloop runs what is due before it reads what has come."""
    found = election(0.0)
    found.heard_leader(100.0, 100.5)
    found.stalled(0.4, 100.9)
    assert found.deadline >= 100.9 + TIMING.heartbeat
