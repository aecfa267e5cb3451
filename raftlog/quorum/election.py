"""Decides when a voter stands for leader, and grants pre-votes, which PySyncObj's core lacks (Raft thesis §9.6).

A real election happens only after a majority granted a pre-vote; a voter with a live leader refuses. So a voter that
was cut off, or merely lost its link to the leader, cannot depose a leader that the others follow. Terms, votes and logs
are the core's; this knows deadlines only. Times are loop seconds.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from raftlog.base.lateness import Lateness

NEVER: Final = float("-inf")


class Timing(NamedTuple):
    """Seconds. The core asserts election_min > 3 heartbeats.

    A leader steps down after `check_quorum_timeout` without answers of a majority if it lost its links. With links it
    waits for `linked_check_quorum_timeout`: a merely slow voter keeps its link.
    """

    election_min: float = 0.4
    election_max: float = 0.8
    heartbeat: float = 0.13
    check_quorum_timeout: float = 1.0
    linked_check_quorum_timeout: float = 1.6
    fast_election_min: float = 0.015
    fast_election_max: float = 0.08
    """How long to wait when the leader is known to be gone, or unknown at first; and between rounds."""


def timing_for(election_s: float) -> Timing:
    """Return the times of a quorum with an election timeout of `election_s` to twice that."""
    usual = Timing()
    return usual._replace(
        election_min=election_s,
        election_max=2 * election_s,
        heartbeat=min(usual.heartbeat, usual.heartbeat / usual.election_min * election_s),
        check_quorum_timeout=max(usual.check_quorum_timeout, 2 * election_s),
        linked_check_quorum_timeout=max(usual.linked_check_quorum_timeout, 4 * election_s),
        fast_election_max=min(usual.fast_election_max, election_s),
    )


class Election:
    """The deadlines of one voter. `deadline`: when to ask for pre-votes next, unless leading.

    `lateness`: of this voter's own loop. A slow voter processes a sound leader's heartbeats late, so it waits longer.
    """

    def __init__(
        self,
        *,
        alone: bool,
        timing: Timing,
        chance: random.Random,
        now: float,
        lateness: Lateness | None = None,
    ) -> None:
        self.timing = timing
        self._lateness = lateness or Lateness()
        self.deadline = (
            now if alone else now + chance.uniform(timing.fast_election_min, timing.fast_election_max)
        )
        self.leader_heard_at = now
        """When a leader's message last came here; at first the start."""
        self._needed = 1
        self._random = chance
        self._leader_heard_at = NEVER
        self._asking_for: int | None = None
        self._granted: set[int] = set()

    @property
    def has_no_leader(self) -> bool:
        """Whether no leader has been heard since the last round, loss or start."""
        return self._leader_heard_at == NEVER

    def has_recent_leader(self, now: float) -> bool:
        """Return whether a leader was heard so recently that no other voter should stand."""
        return now < self._leader_heard_at + self.timing.election_min + self._lateness.patience_s

    def on_leader_message(self, now: float, deadline: float) -> None:
        """Put the election off, since a leader sent a message. `deadline` is the core's new random deadline."""
        self.leader_heard_at = self._leader_heard_at = now
        self._asking_for = None
        self.deadline = deadline + self._lateness.patience_s

    def postpone(self, deadline: float) -> None:
        """Put the election off, to wait for the outcome of a granted vote or of a begun election."""
        self.deadline = deadline + self._lateness.patience_s

    def postpone_after_pre_vote(self, now: float) -> None:
        """Let the candidate of a granted pre-vote go first: split votes are rarer."""
        self.deadline = max(self.deadline, now + self._hurry())

    def on_leader_dead(self, now: float) -> None:
        """Stand soon: the leader's process is known to be gone."""
        self._leader_heard_at = NEVER
        self.deadline = min(self.deadline, now + self._hurry())

    def on_step_down(self, now: float) -> None:
        """Put the next election off by a random time, since this voter has just led."""
        self._leader_heard_at = NEVER
        self.deadline = now + self.random_timeout()

    def on_loop_stall(self, seconds: float, now: float) -> None:
        """Leave time to read messages that came while our own loop stood still: uvloop runs what is due first."""
        self.deadline = max(self.deadline + seconds, now + self.timing.heartbeat)

    def begin_pre_vote(self, term: int, me: int, now: float, *, needed: int) -> bool:
        """Begin a round for `term`; return True if our own pre-vote suffices."""
        self._leader_heard_at = NEVER
        self._asking_for, self._granted, self._needed = term, {me}, needed
        self.deadline = now + self._hurry()
        return needed == 1

    def on_pre_vote_granted(self, term: int, peer: int) -> bool:
        """Count a pre-vote; True exactly once, when there are as many as are needed."""
        if term != self._asking_for:
            return False
        self._granted.add(peer)
        if len(self._granted) < self._needed:
            return False
        self._asking_for = None
        return True

    def random_timeout(self) -> float:
        return (
            self._random.uniform(self.timing.election_min, self.timing.election_max)
            + self._lateness.patience_s
        )

    def _hurry(self) -> float:
        return self._random.uniform(self.timing.fast_election_min, self.timing.fast_election_max)
