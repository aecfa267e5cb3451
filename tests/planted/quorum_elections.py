"""Bugs of the quorum's elections: candidates, votes, resignations, and their notices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raftlog.quorum.core import RaftCore
from raftlog.quorum.driver import Driver
from raftlog.quorum.election import Election
from raftlog_chaos.scenarios.quorum import quorum_storm
from raftlog_chaos.scenarios.quorum_calm import quorum_calm
from raftlog_chaos.scenarios.quorum_controller import controller
from tests.planted.plant import Plant


def stand_without_asking(patch: pytest.MonkeyPatch) -> None:
    """A voter that hears no leader begins an election at once."""
    patch.setattr(Driver, "_ask_for_votes", lambda driver, now: driver._stand())


def encourage_anybody(patch: pytest.MonkeyPatch) -> None:
    """A voter that hears its leader encourages others all the same."""
    patch.setattr(Election, "has_recent_leader", lambda election, now: False)


def never_step_down(patch: pytest.MonkeyPatch) -> None:
    """A leader without responses goes on believing that it leads."""
    patch.setattr(RaftCore, "check_quorum_timeout_s", lambda core: 1e9)


def vote_for_the_stale(patch: pytest.MonkeyPatch) -> None:
    """A vote is granted whatever the candidate's log holds (Raft §5.4.1)."""
    received = RaftCore.receive

    def pass_as_fresh(self: RaftCore, peer: int, **message: Any) -> None:
        if message["type"] == "request_vote" and message["last_log_term"] >= 0:
            message |= {"last_log_index": 1 << 60, "last_log_term": 1 << 60}
        received(self, peer, **message)

    patch.setattr(RaftCore, "receive", pass_as_fresh)
    patch.setattr(Driver, "_answer_pre_vote", _encourage_the_stale(Driver._answer_pre_vote))


def _encourage_the_stale(answer: Any) -> Any:
    def answer_as_if_fresh(driver: Driver, peer: int, asked: Any) -> None:
        answer(driver, peer, type(asked)(asked.term, 1 << 60, 1 << 60))

    return answer_as_if_fresh


def remember_transfers(patch: pytest.MonkeyPatch) -> None:
    """A TimeoutNow that began no election makes its voter deaf to its leaders."""
    tick = RaftCore.run_tick

    def run_tick(core: RaftCore, check_quorum_timeout_s: float) -> None:
        pending, term = core._SyncObj__transferInProgress, core.term
        tick(core, check_quorum_timeout_s)
        core._SyncObj__transferInProgress = pending and core.term == term

    patch.setattr(RaftCore, "run_tick", run_tick)


def tell_of_losses_late(patch: pytest.MonkeyPatch) -> None:
    """A leader that stepped down is notified only after the next leader's batches were applied."""
    announce = Driver._announce

    def tell_of_gains(driver: Driver) -> None:
        if driver.core.is_leader:
            announce(driver)

    def silenced(stage: Callable[[Driver], None]) -> Callable[[Driver], None]:
        def run(driver: Driver) -> None:
            driver._announce = partial(tell_of_gains, driver)  # type: ignore[method-assign]
            stage(driver)
            driver.__dict__.pop("_announce", None)  # a stage may have run the next stage

        return run

    patch.setattr(Driver, "_deliver", silenced(Driver._deliver))
    patch.setattr(Driver, "_tick", silenced(Driver._tick))


def tick_for_heartbeats_only(patch: pytest.MonkeyPatch) -> None:
    """A follower that learns of a commit does not apply it until there is something else to do."""
    patch.setattr(RaftCore, "needs_tick", property(lambda core: core.is_leader))


def answer_new_links_late(patch: pytest.MonkeyPatch) -> None:
    """A follower repeats no message to a leader, though that leader may have lost its state."""

    def drop_repeated_answer(core: RaftCore, peer: int) -> None:
        answer = core.outbox[-1][1]
        before, _ = core._answered.get(peer, (None, 0.0))
        if answer == before:
            core.outbox.pop()
        else:
            core._answered[peer] = (answer, 0.0)  # type: ignore[assignment]

    patch.setattr(RaftCore, "_drop_repeated_answer", drop_repeated_answer)


calm = partial(Plant, scenario=quorum_calm, seconds=15.0)
storm = partial(Plant, scenario=quorum_storm, seconds=6.0)

PLANTS = [
    calm(
        "no-pre-vote",
        "P6 pre-vote",
        plant=stand_without_asking,
        note="one that was cut off deposes the leader",
    ),
    calm(
        "no-stickiness",
        "P6 pre-vote",
        plant=encourage_anybody,
        note="one that cannot hear the leader deposes it",
    ),
    calm(
        "isolated-leader-stays",
        "isolation",
        plant=never_step_down,
        note="two lead for as long as it takes",
    ),
    storm(
        "stale-candidate-elected",
        "Raft §5.4.1",
        plant=vote_for_the_stale,
        note="a leader lacks what was committed",
    ),
    Plant(
        "transfer-remembered",
        "liveness",
        scenario=controller,
        seconds=6.0,
        plant=remember_transfers,
        note="a node looks for its leader for ever",
        test="tests/quorum/test_core.py::test_a_transfer_that_began_no_election_is_over_with_its_tick",
    ),
    calm("commit-not-applied", "liveness", plant=tick_for_heartbeats_only, note="a follower stays behind"),
    calm(
        "heartbeats-unanswered",
        "P6 check quorum",
        plant=answer_new_links_late,
        note="a leader that all follow steps down",
    ),
    storm("loss-told-late", "law 1", plant=tell_of_losses_late, note="another's batch answers our callers"),
]
