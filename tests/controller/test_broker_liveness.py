"""Claims about how long the controller waits for each broker."""

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
    soft.take_due_probes(102.0)
    return soft.next_deadline() - 100.0


def test_a_broker_that_is_on_time_has_the_session_timeout() -> None:
    """A dead broker is found out as soon as the setting says."""
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
    ("result", "fenced"),
    [("refused", True), ("unreachable", True), ("silent", True), ("accepted", False), ("alive", False)],
)
def test_a_broker_whose_machine_takes_connections_is_not_dead(result: str, fenced: bool) -> None:
    """It closed its heartbeat connection after a timeout, and is too slow to answer a probe."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    soft.on_heartbeat(1, 100.0)
    soft.on_disconnect(1, 100.1)
    soft.on_probe_result(1, result)  # type: ignore[arg-type]
    assert (1 in soft.brokers_to_fence(100.5)) == fenced
    assert 1 in soft.brokers_to_fence(100.0 + SESSION_S), "then the session decides"


def test_a_slow_controller_waits_longer_for_brokers_without_a_heartbeat_yet() -> None:
    """Every broker has to find it and connect first."""
    lateness = Lateness()
    make_slow(lateness, 1.0)
    soft = BrokerLiveness(SESSION_S, lateness)
    soft.start_sessions([1, 2], 100.0, connected={1, 2}, predecessor=-1)
    assert soft.brokers_to_fence(100.0 + SESSION_S) == {}
    assert soft.brokers_to_fence(100.0 + SESSION_S + PATIENCE)[1] == "session expired"


def test_a_heartbeat_puts_the_deadline_off_without_a_place_of_its_own_in_the_queue() -> None:
    """However often a broker is heard of, it is in the queue once, and it is found there no later than it is due."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    for beat in range(1_000):
        soft.on_heartbeat(1, 100.0 + beat / 1_000)
        soft.on_heartbeat(2, 100.0 + beat / 1_000)
    assert len(soft._queue) == 2
    assert soft.next_deadline() <= 100.999 + SESSION_S
    assert soft.brokers_to_fence(100.998 + SESSION_S) == {}
    assert soft.next_deadline() == pytest.approx(100.999 + SESSION_S)
    assert list(soft.brokers_to_fence(101.0 + SESSION_S)) == [1, 2]


def test_patience_that_shrinks_counts_at_once() -> None:
    """A broker that said it was slow and says so no more has the session timeout, from its last heartbeat on."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    soft.on_heartbeat(1, 100.0, 3_600.0)
    soft.on_heartbeat(1, 100.1)
    assert soft.brokers_to_fence(100.2 + SESSION_S) == {1: "session expired"}


def test_a_broker_due_for_fencing_stays_so_until_its_next_heartbeat_or_fencing() -> None:
    """A fencing that the quorum refused is tried again; a stall of our own takes an expired session back."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    for broker_id in (1, 2, 3, 4):
        soft.on_heartbeat(broker_id, 100.0)
    soft.on_disconnect(4, 100.1)
    soft.on_probe_result(4, "refused")
    assert sorted(soft.brokers_to_fence(104.0)) == sorted(soft.brokers_to_fence(104.1)) == [1, 2, 3, 4]
    assert soft.next_deadline() < 0
    soft.on_heartbeat(1, 104.2)
    soft.mark_fenced(2)
    assert sorted(soft.brokers_to_fence(104.2)) == [3, 4]
    soft.postpone_all(2.0)
    assert soft.brokers_to_fence(104.2) == {4: "connection refused"}
    assert sorted(soft.brokers_to_fence(105.1)) == [3, 4]


def test_a_probe_is_due_once_for_each_doubt() -> None:
    """A lost connection is probed at once; a new controller probes the brokers that it waits for, its predecessor
    first.
    """
    soft = BrokerLiveness(SESSION_S, Lateness())
    soft.start_sessions([1, 2, 3], 100.0, connected={1}, predecessor=2)
    assert soft.take_due_probes(100.0) == [2]
    assert soft.take_due_probes(100.1) == []
    assert soft.take_due_probes(100.3) == [3]
    assert soft.suspected == {1, 2, 3}
    soft.on_heartbeat(1, 100.4)
    soft.on_heartbeat(2, 100.4)
    soft.on_disconnect(1, 100.5)
    assert soft.take_due_probes(100.5) == [1]
