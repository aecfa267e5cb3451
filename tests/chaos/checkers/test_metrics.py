"""Figures beside the verdict: lag, consume counts, and what never succeeded."""

from __future__ import annotations

from tests.chaos.checkers.told_history import KEY, ToldHistory

MS = 0.001


def test_lag_is_the_age_of_the_first_record_that_a_poll_should_have_found():
    """At the poll's beginning, since the next offset was first known to exist: lines 5, 6 and 8, a millisecond each."""
    tale = ToldHistory().assign(1, KEY).send(2, "a", 0).send(2, "b", 1)
    tale.poll(1, (0, "a"))  # begins in line 6; offset 1 is known since line 5
    tale.poll(1)  # begins in line 8
    assert tale.poll(1, (1, "b")).verdict().metrics["worst_realtime_lag_s"] == 3 * MS


def test_a_poll_that_finds_all_there_is_has_no_lag():
    """Events that come while it runs are not its fault."""
    tale = ToldHistory().assign(1, KEY).send(2, "a", 0)
    tale.line(1, "invoke", "poll", [["poll"]])
    tale.send(2, "b", 1)
    tale.line(1, "ok", "poll", [["poll", {KEY: [[0, "a"]]}]])
    assert tale.verdict().metrics["worst_realtime_lag_s"] == 0


def test_reading_from_the_beginning_is_lag_but_not_of_a_follower():
    """The final phase would otherwise always be the worst."""
    tale = ToldHistory().assign(1, KEY).send(2, "a", 0).send(2, "b", 1).poll(1, (0, "a"), (1, "b"))
    for process in (1, 3):
        tale.assign(process, KEY, seek_to_beginning=True).poll(process, (0, "a")).poll(process, (1, "b"))
    metrics = tale.verdict().metrics
    assert metrics["worst_realtime_lag_s"] > 0
    assert metrics["worst_realtime_lag_following_s"] == 0


def test_keys_that_a_process_does_not_hold_are_no_lag():
    """It is not asked for them."""
    tale = ToldHistory().assign(1, "t-1").send(2, "a", 0).poll(1).poll(1).poll(3, (0, "a"))
    assert tale.verdict().metrics["worst_realtime_lag_s"] == 0


def test_consume_counts_say_how_often_subscribers_read_each_value():
    """1 is exactly once; ok operations of processes that subscribed."""
    tale = ToldHistory().log("a", "b", "c").assign(1, KEY, f="subscribe")
    tale.poll(1, (0, "a"), (1, "b")).poll(1, (1, "b"), (2, "c")).poll(1, (2, "c"), type="info")
    tale.poll(2, (0, "a"))
    assert tale.verdict().metrics["consume_counts"] == {1: 2, 2: 1}


def test_what_a_former_subscriber_reads_by_assignment_is_not_counted():
    """A read as a subscriber is still counted."""
    tale = ToldHistory().log("a", "b").assign(1, KEY, f="subscribe").poll(1, (0, "a")).assign(1, KEY)
    assert tale.poll(1, (1, "b")).verdict().metrics["consume_counts"] == {1: 1}


def test_a_function_that_never_once_succeeded_is_invalid():
    """jepsen.tests.kafka: the test also fails on any f that never succeeds, …"""
    tale = ToldHistory().send(1, "a", None, "info").poll(2, (0, "a"))
    verdict = tale.verdict()
    assert not verdict.valid
    assert verdict.faults() == ["never-ok: send: tried 1 times, never ok"]


def test_crashes_need_not_succeed():
    """… crash and debug exempt: a crash is always info."""
    tale = ToldHistory().log("a").both(1, "info", "crash", None).both(2, "info", "debug", None)
    assert tale.verdict().valid


def test_a_history_in_which_nothing_succeeded_shows_nothing():
    """Empty histories are not valid."""
    assert not ToldHistory().verdict().valid
    assert not ToldHistory().both(1, "info", "crash", None).verdict().valid
