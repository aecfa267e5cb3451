"""Claims about brokers that hang: their machine accepts connections, without an answer."""

from __future__ import annotations

import pytest

from raftlog.base.lateness import Lateness
from raftlog.controller.broker_liveness import HUNG_AFTER_S, HUNG_AGAIN_S, BrokerLiveness, ProbeResult
from tests.controller.controller_cluster import ControllerCluster

SESSION_S = 3.0
PROBED = 100.0 + HUNG_AFTER_S
NO_ANSWER = {1: "no heartbeat, and no answer to a probe"}


def liveness(*, late_s: float = 0.0, session_s: float = SESSION_S) -> BrokerLiveness:
    """Return the liveness of broker 1, which sent heartbeats until 100.0 and said how late its loop is."""
    soft = BrokerLiveness(session_s, Lateness())
    soft.on_heartbeat(1, 99.5, late_s)
    soft.on_heartbeat(1, 100.0, late_s)
    return soft


def test_a_broker_that_was_on_time_and_hangs_is_fenced_after_a_second() -> None:
    """A process that was sent SIGSTOP; its partitions wait for that."""
    soft = liveness()
    assert soft.take_due_probes(100.8) == []
    assert soft.take_due_probes(PROBED) == [1]
    assert soft.take_due_probes(PROBED + 0.1) == []
    assert soft.brokers_to_fence(PROBED + 0.1) == {}
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(PROBED + 0.3) == NO_ANSWER


@pytest.mark.parametrize("result", ["alive", "refused", "silent", "unreachable"])
def test_any_other_result_leaves_a_silent_broker_its_session(result: ProbeResult) -> None:
    """What answers is alive, and what is cut off counts on its session: it may still serve clients."""
    soft = liveness()
    soft.take_due_probes(PROBED)
    soft.on_probe_result(1, result)
    assert soft.brokers_to_fence(PROBED + 0.3) == {}
    assert 1 in soft.brokers_to_fence(100.0 + SESSION_S)


def test_a_heartbeat_that_comes_before_the_result_counts() -> None:
    """The probe waits while a stalled loop reads what is older."""
    soft = liveness()
    soft.take_due_probes(PROBED)
    soft.on_heartbeat(1, PROBED + 0.2)
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(PROBED + 0.3) == {}


def test_a_broker_that_reports_a_late_loop_is_not_probed() -> None:
    """It is slow, and would not answer in time."""
    assert liveness(late_s=0.2).take_due_probes(PROBED) == []


def test_a_controller_that_was_late_itself_fences_no_broker_for_a_missing_answer() -> None:
    """Whether it was late before the heartbeat, or since: answers may wait in its own loop."""
    lateness = Lateness()
    soft = BrokerLiveness(SESSION_S, lateness)
    soft.on_heartbeat(1, 100.0)
    assert soft.take_due_probes(PROBED) == [1]
    lateness.note(0.3, PROBED)
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(PROBED + 0.3) == {}
    soft.on_heartbeat(1, PROBED + 0.4)
    assert soft.take_due_probes(PROBED + 0.4 + HUNG_AFTER_S) == []


def test_a_stall_of_the_controller_takes_a_missing_answer_back() -> None:
    """The answer came while its loop stood still, and the timeout was read first."""
    soft = liveness()
    soft.take_due_probes(PROBED)
    soft.postpone_all(2.0)
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(PROBED + 2.0) == {}


def test_a_broker_that_hung_and_came_back_has_the_whole_session_for_ten_minutes() -> None:
    """Else leaderships would leave a machine that stalls now and then again and again."""
    soft = liveness()
    soft.take_due_probes(PROBED)
    soft.on_probe_result(1, "accepted")
    soft.mark_fenced(1)
    soft.on_heartbeat(1, 110.0)
    assert soft.take_due_probes(112.0) == []
    assert soft.brokers_to_fence(109.9 + SESSION_S) == {}
    assert soft.brokers_to_fence(110.0 + SESSION_S) == {1: "session expired"}
    again = 110.0 + HUNG_AGAIN_S
    soft.on_heartbeat(1, again)
    assert soft.take_due_probes(again + HUNG_AFTER_S) == [1]


def test_a_session_that_is_shorter_than_that_decides_alone() -> None:
    """broker.session.timeout.ms is the operator's word."""
    soft = liveness(session_s=0.9)
    assert soft.take_due_probes(PROBED - 0.2) == []
    assert soft.brokers_to_fence(100.9) == {1: "session expired"}


def test_a_longer_session_waits_longer() -> None:
    """An operator who gives brokers nine seconds, as Kafka does, has machines that stall."""
    soft = liveness(session_s=9.0)
    assert soft.take_due_probes(102.8) == []
    assert soft.take_due_probes(103.0) == [1]


@pytest.mark.parametrize(
    ("session_s", "interval_s", "silence_s"), [(3.0, 1.0, 2.0), (9.0, 2.0, 4.0), (9.0, 0.5, 3.0)]
)
def test_one_late_heartbeat_is_no_silence(session_s: float, interval_s: float, silence_s: float) -> None:
    """A machine that stalls for a moment would be fenced, and each interval would have its probe."""
    soft = BrokerLiveness(session_s, Lateness(), interval_s=interval_s)
    soft.on_heartbeat(1, 100.0)
    assert soft.take_due_probes(100.0 + silence_s - 0.2) == []
    assert soft.take_due_probes(100.0 + silence_s) == [1]


def test_with_heartbeats_that_are_rare_for_its_length_the_session_decides_alone() -> None:
    """Kafka's interval of two seconds with the default of three for the session."""
    soft = BrokerLiveness(SESSION_S, Lateness(), interval_s=2.0)
    soft.on_heartbeat(1, 100.0)
    assert soft.take_due_probes(102.9) == []
    assert soft.brokers_to_fence(100.0 + SESSION_S) == {1: "session expired"}


@pytest.mark.parametrize("election_s", [0.5, 0.8])
def test_the_predecessor_of_a_new_controller_is_fenced_after_a_second_of_silence(election_s: float) -> None:
    """Most voters missed its messages, which come four times as often as heartbeats: or they would not have elected."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    elected_at, probed_at = 100.0 + election_s, max(100.75, 100.0 + election_s)
    soft.start_sessions([1, 2], elected_at, connected={2}, predecessor=1, heard_at=100.1)
    assert soft.take_due_probes(probed_at - 0.01) == []
    assert soft.take_due_probes(probed_at) == [1]
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(probed_at + 0.3) == NO_ANSWER


def test_a_predecessor_that_was_heard_a_moment_ago_is_probed_twice() -> None:
    """Its connections broke: the first probe finds out whether it died, the second whether it hangs."""
    soft = BrokerLiveness(SESSION_S, Lateness())
    soft.start_sessions([1], 100.0, connected={}, predecessor=1, heard_at=99.9)
    assert soft.take_due_probes(100.0) == [1]
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(100.3) == {}
    assert soft.take_due_probes(100.5) == [1]
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(100.8) == NO_ANSWER


@pytest.mark.parametrize(("passed_s", "fenced"), [(HUNG_AGAIN_S - 30.0, False), (HUNG_AGAIN_S, True)])
def test_a_new_controller_knows_which_brokers_hung(passed_s: float, *, fenced: bool) -> None:
    """A broker that stands still now and then, and leads the quorum, has another controller each time."""
    controllers = ControllerCluster(2)
    controllers.keep_history()
    controllers.elect(1)
    controllers.start(1, 2)
    controllers.advance(1.5, heartbeats=(1,))
    controllers.active.on_probe_result(2, "accepted", controllers.now)
    assert controllers.image.brokers[2].fenced
    controllers.advance(passed_s, heartbeats=(1, 2))
    assert not controllers.image.brokers[2].fenced
    controllers.elect(2)
    controllers.elect(1)
    controllers.advance(0.2, heartbeats=(1, 2))
    controllers.advance(1.5, heartbeats=(1,))
    controllers.active.on_probe_result(2, "accepted", controllers.now)
    assert controllers.image.brokers[2].fenced is fenced


def test_a_broker_that_lost_its_connection_has_its_session() -> None:
    """A slow broker gives the connection up if no answer comes in time, and does not answer a probe in time either."""
    soft = liveness()
    soft.on_disconnect(1, 100.5)
    assert soft.take_due_probes(100.5) == [1]
    assert soft.take_due_probes(PROBED) == []
    soft.on_probe_result(1, "accepted")
    assert soft.brokers_to_fence(100.0 + SESSION_S - 0.1) == {}


@pytest.mark.parametrize(("interval_ms", "probed"), [(500, [2]), (2_000, [])])
def test_a_controller_takes_the_interval_from_its_own_setting(interval_ms: int, probed: list[int]) -> None:
    """A broker's setting is not known to it."""
    controllers = ControllerCluster(broker_heartbeat_interval_ms=interval_ms)
    controllers.elect(1)
    controllers.start(1, 2)
    controllers.probes.clear()
    controllers.advance(1.5, heartbeats=(1,))
    assert controllers.probes == probed
