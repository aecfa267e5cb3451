"""Bugs of the quorum's rhythm: heartbeats without a tick, and answers that are left out."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.quorum.core import RaftCore
from raftlog_chaos.scenarios.quorum_calm import quorum_calm
from tests.planted.plant import Plant


def trust_the_silent(patch: pytest.MonkeyPatch) -> None:
    """A leader without uncommitted entries takes all voters for present, so that no tick counts them."""
    patch.setattr(RaftCore, "_has_recent_majority", lambda core: True)


def answer_too_rarely(patch: pytest.MonkeyPatch) -> None:
    """A follower answers so few heartbeats that its leader steps down between two answers."""
    drop = RaftCore._drop_repeated_answer

    def drop_for_long(core: RaftCore, peer: int) -> None:
        timing = core._timing
        core._timing = timing._replace(heartbeat=6 * timing.heartbeat)
        drop(core, peer)
        core._timing = timing

    patch.setattr(RaftCore, "_drop_repeated_answer", drop_for_long)


calm = partial(Plant, scenario=quorum_calm, seconds=15.0)

PLANTS = [
    calm(
        "silent-voters-trusted",
        "isolation",
        plant=trust_the_silent,
        note="two lead for as long as it takes",
    ),
    calm("answers-too-rare", "P6 check quorum", plant=answer_too_rarely, note="a sound leader steps down"),
]
