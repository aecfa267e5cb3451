"""Claims about when a voter takes its leader for lost, if its own loop is slow."""

from __future__ import annotations

import random

import pytest

from raftlog.base.config import NodeConfig
from raftlog.base.lateness import PATIENCE, Lateness
from raftlog.quorum.election import Election, Timing, timing_for
from raftlog.quorum.pysyncobj_adapter import pysyncobj_conf
from tests.kit.slowness import make_slow

TIMING = Timing()


def election(late_s: float) -> Election:
    lateness = Lateness()
    make_slow(lateness, late_s)
    return Election(alone=False, timing=TIMING, chance=random.Random(1), now=100.0, lateness=lateness)


def test_a_slow_voter_waits_longer_before_it_stands() -> None:
    """It hears of its leader late because it reads late: it deposed leaders that were sound."""
    for late_s, more_s in ((0.0, 0.0), (0.9, PATIENCE * 0.9)):
        found = election(late_s)
        found.on_leader_message(100.0, 100.5)
        assert found.deadline == 100.5 + more_s


def test_a_slow_voter_grants_no_pre_vote_against_a_leader_that_it_may_yet_hear() -> None:
    """A voter that hears no leader grants a pre-vote: a slow voter hears it later."""
    just_after = 100.0 + TIMING.election_min + 0.1
    assert [election(late_s).has_recent_leader(just_after) for late_s in (0.0, 0.9)] == [False, False]
    heard = [election(late_s) for late_s in (0.0, 0.9)]
    for each in heard:
        each.on_leader_message(100.0, 100.5)
    assert [each.has_recent_leader(just_after) for each in heard] == [False, True]


def test_a_slow_voter_stands_at_once_where_its_leader_is_known_to_be_dead() -> None:
    """Patience is for silence, not for a refused connection."""
    found = election(5.0)
    found.on_leader_message(100.0, 100.5)
    found.on_leader_dead(100.1)
    assert found.deadline <= 100.1 + TIMING.fast_election_max


def test_after_a_stall_there_is_time_to_read() -> None:
    """A deadline that is put off by the stall alone is now: uvloop runs what is due before it reads what has come."""
    found = election(0.0)
    found.on_leader_message(100.0, 100.5)
    found.on_loop_stall(0.4, 100.9)
    assert found.deadline >= 100.9 + TIMING.heartbeat


@pytest.mark.parametrize("election_ms", [50, 400, 1_000, 30_000])
def test_the_configured_election_timeout_makes_times_that_fit_together(election_ms: int) -> None:
    """controller.quorum.election.timeout.ms: to twice that; a leader beats often enough, and outlasts its followers."""
    timing = timing_for(election_ms / 1000)
    assert (timing.election_min, timing.election_max) == (election_ms / 1000, 2 * election_ms / 1000)
    assert timing.election_min > 3 * timing.heartbeat, "the core asserts it"
    assert timing.check_quorum_timeout >= timing.election_max
    assert timing.fast_election_max <= timing.election_min
    pysyncobj_conf(timing)


def test_the_default_election_timeout_makes_the_default_times() -> None:
    """The table's default equals the room's."""
    assert timing_for(NodeConfig().controller_quorum_election_timeout_ms / 1000) == Timing()
