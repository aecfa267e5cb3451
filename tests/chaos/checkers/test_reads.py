"""G1a, precommitted-read and unwritten-read: what must not be read."""

from __future__ import annotations

from tests.chaos.checkers.told_history import ToldHistory, reading, sending


def test_reading_what_had_failed_is_an_aborted_read():
    """jepsen.tests.kafka, G1a."""
    assert ToldHistory().send(1, "a", None, "fail").poll(2, (0, "a")).found() == {"G1a"}


def test_an_aborted_read_is_shown_by_both_operations():
    """The failed send and the poll."""
    tale = ToldHistory().log("x").send(1, "a", None, "fail").poll(2, (1, "a")).poll(3, (1, "a"))
    verdict = tale.verdict()
    assert verdict.cases["G1a"] == 2
    assert [(op.process, op.type) for op in verdict.anomalies["G1a"][0].ops] == [(1, "fail"), (2, "ok")]


def test_only_ok_operations_read_aborted_values():
    """A poll of a failed operation may have seen anything."""
    for type in ("info", "fail"):
        tale = ToldHistory().log("x").send(1, "a", None, "fail").poll(2, (1, "a"), type=type)
        assert tale.found() == set()


def test_reading_what_is_of_unknown_fate_is_right():
    """It has committed, then."""
    assert ToldHistory().send(1, "a", None, "info").poll(2, (0, "a")).found() == set()


def test_an_operation_that_reads_its_own_write_read_before_the_commit():
    """jepsen.tests.kafka, precommitted-read."""
    assert "precommitted-read" in ToldHistory().txn(1, sending(0, "a"), reading((0, "a"))).found()


def test_a_transaction_may_read_another_value_of_the_key_it_writes():
    """Only the same value is its own."""
    tale = ToldHistory().send(1, "a", 0).txn(2, sending(1, "b"), reading((0, "a"))).poll(3, (1, "b"))
    assert tale.found() == set()


def test_a_value_that_was_never_sent_is_unwritten():
    """Ours: unknown value read."""
    assert ToldHistory().send(1, "a", 0).poll(2, (0, "a"), (1, "ghost")).found() == {"unwritten-read"}


def test_a_value_that_was_read_before_its_send_began_is_unwritten():
    """Ours: the future can't be read."""
    assert ToldHistory().log("x").poll(1, (1, "a")).send(2, "a", 1).found() >= {"unwritten-read"}


def test_a_value_may_be_read_before_its_send_ends():
    """Between its two lines it may be anywhere."""
    tale = ToldHistory()
    tale.line(1, "invoke", "send", [["send", "t-0", "a"]])
    tale.poll(2, (0, "a"))
    tale.line(1, "ok", "send", [sending(0, "a")])
    assert tale.found() == set()


def test_without_invocations_nothing_is_said_about_when_a_send_began():
    """A history of completions alone is judged by the rest."""
    tale = ToldHistory()
    tale.line(2, "ok", "poll", [reading((0, "a"))])
    tale.line(1, "ok", "send", [sending(0, "a")])
    assert tale.found() == set()
