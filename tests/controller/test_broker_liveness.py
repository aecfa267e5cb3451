"""Claims about how long the controller waits for whom."""

from __future__ import annotations

import pytest

from raftlog.base.lateness import PATIENCE, Lateness
from raftlog.controller.broker_liveness import SLOW_SESSION_S, BrokerLiveness
from tests.kit.slowness import make_slow

SESSION_S = 3.0


def heard(*, own_late_s: float = 0.0, late_s: float = 0.0, session_s: float = SESSION_S) -> float:
    """Return how long a broker has from a heartbeat on, which says that its loop is so late."""
    lateness = Lateness()
    make_slow(lateness, own_late_s)
    soft = BrokerLiveness(session_s, lateness)
    soft.on_heartbeat(1, 100.0, late_s)
    return soft.next_deadline([1]) - 100.0


def test_a_broker_that_is_on_time_has_the_session_timeout() -> None:
    """A dead one is found out as soon as the setting says."""
    assert heard() == SESSION_S


@pytest.mark.parametrize("where", ["own_late_s", "late_s"])
def test_a_slow_broker_and_a_slow_controller_have_more_time(where: str) -> None:
    """It was fenced for heartbeats that came late, or were read late, of brokers that were sound."""
    assert heard(**{where: 0.9}) == pytest.approx(SESSION_S + PATIENCE * 0.9)


def test_patience_ends_where_apache_kafkas_does() -> None:
    """A broker cannot stay unfenced by saying that it is slow; a longer session timeout is the operator's word."""
    assert heard(late_s=3600.0) == SLOW_SESSION_S
    assert heard(late_s=3600.0, session_s=20.0) == 20.0


@pytest.mark.parametrize(
    ("result", "condemned"), [("refused", True), ("silent", True), ("accepted", False), ("alive", False)]
)
def test_a_broker_whose_machine_takes_connections_is_not_dead(result: str, condemned: bool) -> None:
    """It gave its heartbeat connection up, since nobody answered in time, and is too slow to answer a probe."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    soft.on_heartbeat(1, 100.0)
    soft.on_disconnect(1, 100.1)
    soft.on_probe_result(1, result)  # type: ignore[arg-type]
    assert (soft.fence_reason(1, 100.5) is not None) == condemned
    assert soft.fence_reason(1, 100.0 + SESSION_S) is not None, "then the session decides"


def test_a_slow_controller_waits_longer_for_whom_it_has_yet_to_hear_of() -> None:
    """Every broker has to find it and connect first."""
    lateness = Lateness()
    make_slow(lateness, 1.0)
    soft = BrokerLiveness(SESSION_S, lateness)
    soft.start_sessions([1, 2], 100.0, connected={1, 2}, predecessor=-1)
    assert soft.fence_reason(1, 100.0 + SESSION_S) is None
    assert soft.fence_reason(1, 100.0 + SESSION_S + PATIENCE) == "session expired"
