"""Bugs of nodes that are only slow: nodes that are taken for dead, and by which others."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.base import lateness
from raftlog.base.lateness import Lateness
from raftlog.controller import broker_liveness
from raftlog_chaos.scenarios.slow_nodes import slow_nodes
from tests.planted.plant import Plant


def ignore_own_slowness(patch: pytest.MonkeyPatch) -> None:
    """A node that runs for a tenth of the time expects others to be heard of as soon as ever."""
    patch.setattr(Lateness, "patience_s", 0.0)


def take_one_stall_for_slowness(patch: pytest.MonkeyPatch) -> None:
    """A node that stood still once waits longer for others, and has the controller wait longer for it."""
    patch.setattr(lateness, "OFTEN", 1)


def fence_again_what_hung_before(patch: pytest.MonkeyPatch) -> None:
    """A broker that came back is fenced as soon as before when it stands still again."""
    patch.setattr(broker_liveness, "HUNG_AGAIN_S", 0.0)


def wait_for_the_session_of_what_hangs(patch: pytest.MonkeyPatch) -> None:
    """A silent broker is not probed before its session ends."""
    patch.setattr(broker_liveness, "HUNG_SHARE", 1.0)


scenario = partial(Plant, scenario=slow_nodes, seconds=20.0)

PLANTS = [
    scenario(
        "own-slowness-ignored",
        "liveness",
        plant=ignore_own_slowness,
        note="a quiet cluster changes its controller again and again",
    ),
    scenario(
        "one-stall-is-slowness",
        "liveness",
        plant=take_one_stall_for_slowness,
        note="after a stop, a stopped node is found out seconds late",
    ),
    scenario(
        "hung-brokers-flap",
        "liveness",
        plant=fence_again_what_hung_before,
        note="leaderships leave a machine that stalls now and then, again and again",
    ),
    scenario(
        "hung-brokers-awaited",
        "liveness",
        plant=wait_for_the_session_of_what_hangs,
        note="its partitions stall for seconds",
    ),
]
