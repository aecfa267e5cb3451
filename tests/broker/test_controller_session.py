"""Claims about how a broker knows by itself that it is cut off and that others may lead what it leads."""

from __future__ import annotations

import pytest

from raftlog.broker.controller_session import NOBODY, ControllerSession, may_be_led_elsewhere
from raftlog.broker.links.probe import ProbeResult
from raftlog.metadata.image import PartitionState
from tests.kit.slowness import make_slow

SESSION_S = 3.0


class Cut:
    """A broker's session with a clock that the test moves; brokers 2 and 3 are in its ISRs."""

    def __init__(self, fetch_wait_s: float = 0.5) -> None:
        self.now = 100.0
        self.members = frozenset({2, 3})
        self.told: list[frozenset[int]] = []
        self.session = ControllerSession(
            lambda: self.now,
            session_s=SESSION_S,
            fetch_wait_s=fetch_wait_s,
            isr_members=lambda: self.members,
            on_change=self.told.append,
        )
        self.ports: dict[int, ProbeResult] = {}
        """The words of ports; the others are silent."""
        self.session.probe = self.answer_probe

    def answer_probe(self, broker_id: int) -> None:
        self.session.probed(broker_id, self.ports.get(broker_id, "silent"))

    def fetch(self, *followers: int) -> None:
        for each in followers:
            self.session.fetched_at[each] = self.now

    def silent_after(self, seconds: float) -> frozenset[int]:
        self.now += seconds
        self.session.check()
        return self.session.silent


@pytest.fixture
def cut() -> Cut:
    """A broker with followers that have just fetched, and a heartbeat that was just answered."""
    cut = Cut()
    cut.session.renew(cut.now)
    cut.fetch(2, 3)
    return cut


def test_a_broker_without_answers_knows_that_it_is_cut_off_when_its_session_ends(cut: Cut) -> None:
    """Not before broker.session.timeout.ms since the last heartbeat that was answered was sent."""
    assert cut.silent_after(SESSION_S - 0.1) == NOBODY
    assert cut.silent_after(0.2) == {2, 3}
    assert cut.told == [{2}, {2, 3}]


def test_a_session_counts_from_the_moment_when_the_heartbeat_was_sent(cut: Cut) -> None:
    """The controller's own count began later, so no other leader is elected before this broker knows."""
    cut.now += 2.0
    cut.session.renew(cut.now - 2.0)
    assert cut.silent_after(1.1) == {2, 3}


def test_brokers_serve_on_without_a_controller_while_their_followers_fetch(cut: Cut) -> None:
    """A follower that fetches knows of no other leader; a follower that does not may lead."""
    for _ in range(10):
        cut.now += 1.0
        cut.fetch(2, 3)
        assert cut.silent_after(0.0) == NOBODY
    cut.now += 1.0
    cut.fetch(3)
    for _ in range(4):
        cut.now += 1.0
        cut.fetch(3)
    assert cut.silent_after(0.0) == {2}
    cut.fetch(2)
    assert cut.silent_after(0.0) == NOBODY, "the one that was silent is back"


def test_a_broker_without_another_isr_member_is_never_cut_off(cut: Cut) -> None:
    """In a cluster of one node no other node may lead its partitions."""
    cut.members = NOBODY
    assert cut.silent_after(100.0) == NOBODY
    assert not cut.told


def test_the_last_broker_serves_on_while_the_ports_of_all_others_refuse(cut: Cut) -> None:
    """A stopped process leads no partition. It may be started again, on the other side of a cut: then it is silent."""
    cut.ports = {2: "refused", 3: "refused"}
    assert cut.silent_after(SESSION_S + 0.1) == NOBODY
    assert cut.silent_after(60.0) == NOBODY
    cut.ports[3] = "unreachable"
    assert cut.silent_after(0.5) == {3}
    cut.ports[3] = "refused"
    assert cut.silent_after(0.5) == NOBODY


def test_a_broker_is_doubted_once_its_port_was_asked(cut: Cut) -> None:
    """Until then it may be gone as well."""
    cut.session.probe = lambda _broker_id: None
    assert cut.silent_after(SESSION_S + 0.1) == NOBODY
    cut.session.probed(2, "accepted")
    assert cut.session.silent == {2}
    cut.session.renew(cut.now)
    cut.session.probed(3, "silent")
    assert cut.session.silent == NOBODY, "it is missed no longer"


def test_a_port_is_asked_again_only_when_it_has_answered(cut: Cut) -> None:
    """A probe of a slow node waits for seconds, and checks come every half second: they would pile up."""
    asked: list[int] = []
    cut.session.probe = asked.append
    for _ in range(5):
        cut.silent_after(SESSION_S + 0.1)
    assert sorted(asked) == [2, 3]
    cut.session.probed(3, "refused")
    cut.silent_after(0.5)
    assert sorted(asked) == [2, 3, 3]


def test_a_follower_that_never_fetched_is_silent(cut: Cut) -> None:
    """It joined while this broker was cut off, or this broker has just become the leader."""
    cut.members = frozenset({4})
    assert cut.silent_after(SESSION_S + 0.1) == {4}


def test_an_answered_heartbeat_ends_the_doubt(cut: Cut) -> None:
    """At once, and followers are no longer checked."""
    assert cut.silent_after(SESSION_S + 0.1)
    cut.session.renew(cut.now)
    assert cut.session.silent == NOBODY
    assert cut.told[-1] == NOBODY
    assert cut.silent_after(SESSION_S - 0.1) == NOBODY


def test_a_broker_that_stood_still_has_what_was_left_of_its_session(cut: Cut) -> None:
    """Answers may have come meanwhile, which it has yet to read."""
    cut.now += 15.0
    cut.session.check(late_s=14.0)
    assert cut.session.silent == NOBODY
    assert cut.silent_after(2.1) == {2, 3}


def test_a_slow_broker_waits_longer_as_the_controller_does(cut: Cut) -> None:
    """Its heartbeats say how late its loop is."""
    make_slow(cut.session.lateness, late_s=0.5, now=cut.now)
    assert cut.silent_after(SESSION_S + 0.9) == NOBODY
    assert cut.silent_after(0.2) == {2, 3}


def test_a_fetch_that_waits_for_long_is_no_silence() -> None:
    """replica.fetch.wait.max.ms may be longer than the session."""
    cut = Cut(fetch_wait_s=10.0)
    cut.session.renew(cut.now)
    cut.fetch(2, 3)
    assert cut.silent_after(19.0) == NOBODY
    assert cut.silent_after(2.0) == {2, 3}


def test_nothing_is_doubted_before_the_first_session(cut: Cut) -> None:
    """A broker that was never unfenced leads no partition."""
    fresh = Cut()
    assert fresh.silent_after(100.0) == NOBODY


def test_a_partition_is_doubted_for_the_members_of_its_own_isr_only() -> None:
    """A partition alone in its ISR has no other leader; other leaders' partitions are not its concern."""
    shared = PartitionState(replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=7)
    alone = PartitionState(replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=4, partition_epoch=7)
    assert may_be_led_elsewhere(shared, 1, frozenset({2}))
    assert not may_be_led_elsewhere(shared, 1, frozenset({3}))
    assert not may_be_led_elsewhere(shared, 1, NOBODY)
    assert not may_be_led_elsewhere(alone, 1, frozenset({2, 3}))
    assert not may_be_led_elsewhere(shared, 2, frozenset({1}))
