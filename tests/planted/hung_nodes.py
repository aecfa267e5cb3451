"""Bugs of nodes that hang: the others wait for an answer, know less than their predecessors, or forget too much."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from raftlog.controller.broker_liveness import BrokerLiveness
from raftlog.metadata.history import History
from raftlog.quorum.client import ControllerClient
from raftlog_chaos.scenarios.hung_nodes import hung_nodes
from tests.planted.plant import Plant

_CLIENT_TESTS = "tests/quorum/test_client.py"
_TESTS = "tests/controller/test_hung_brokers.py"


def wait_for_the_former_controller(patch: pytest.MonkeyPatch) -> None:
    """Heartbeats wait for the answer of a controller that hangs, though its successor is known."""
    patch.setattr(ControllerClient, "leader_changed", lambda client: None)


def suspect_the_predecessor_from_zero(patch: pytest.MonkeyPatch) -> None:
    """A new controller counts its predecessor's silence from its own election on."""
    start = BrokerLiveness.start_sessions

    def start_from_zero(soft: BrokerLiveness, *given: Any, **named: Any) -> None:
        start(soft, *given, **{**named, "heard_at": None})

    patch.setattr(BrokerLiveness, "start_sessions", start_from_zero)


def forget_what_hung_before(patch: pytest.MonkeyPatch) -> None:
    """A new controller does not know which brokers its predecessors fenced for hanging."""
    patch.setattr(History, "fenced_at_ms", lambda history, broker_id, reason: None)


scenario = partial(Plant, scenario=hung_nodes, seconds=4.0)

PLANTS = [
    scenario(
        "former-controller-awaited",
        "liveness",
        plant=wait_for_the_former_controller,
        note="the new controller hears of no broker for two seconds, and elects none",
        test=f"{_CLIENT_TESTS}::test_a_request_leaves_a_controller_that_hangs_once_there_is_another",
    ),
    scenario(
        "predecessor-suspected-from-zero",
        "liveness",
        plant=suspect_the_predecessor_from_zero,
        note="its partitions stall for longer",
        test=f"{_TESTS}::test_the_predecessor_of_a_new_controller_is_fenced_after_a_second_of_silence",
    ),
    scenario(
        "hung-brokers-forgotten",
        "liveness",
        plant=forget_what_hung_before,
        note="each new controller fences its predecessor for a moment's standstill",
        test=f"{_TESTS}::test_a_new_controller_knows_which_brokers_hung",
    ),
]
