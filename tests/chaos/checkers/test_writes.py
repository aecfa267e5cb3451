"""lost-write and unseen: what became of writes."""

from __future__ import annotations

from tests.chaos.checkers.told_history import ToldHistory, reading, sending


def test_a_value_that_a_later_poll_passes_over_is_lost():
    """jepsen.tests.kafka: committed, below the highest read place, and never read."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (1, "b"))
    assert tale.found() == {"lost-write", "unseen"}


def test_a_lost_write_is_shown_by_its_sender_and_a_reader_of_the_bound():
    """jepsen.tests.kafka: the report carries the writer, and one reader of the bound."""
    tale = ToldHistory().log("x").send(1, "a", 1).send(1, "b", 2).poll(2, (2, "b"))
    (finding,) = tale.verdict().anomalies["lost-write"]
    assert [(op.process, op.f) for op in finding.ops] == [(1, "send"), (2, "poll")]
    assert "'a' is at place 1" in finding.explanation and "'b' at place 2" in finding.explanation


def test_what_lies_above_everything_that_was_read_is_not_lost_but_unseen():
    """It may only be late; the final phase decides."""
    assert ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (0, "a")).found() == {"unseen"}


def test_a_write_of_unknown_fate_may_be_missing():
    """Its offset, if any, is not part of the log."""
    assert ToldHistory().send(1, "a", 0, "info").send(1, "b", 1).poll(2, (1, "b")).found() == set()


def test_a_failed_write_must_not_be_there():
    """It is neither lost nor unseen."""
    assert ToldHistory().send(1, "a", None, "fail").send(1, "b", 0).poll(2, (0, "b")).found() == set()


def test_an_unknown_transaction_of_which_one_write_was_read_has_committed_as_a_whole():
    """jepsen.tests.kafka, must_have_committed: so its other write is lost."""
    tale = ToldHistory().txn(1, sending(0, "a"), sending(1, "b"), type="info").send(2, "c", 2)
    assert tale.poll(3, (1, "b"), (2, "c")).found() == {"lost-write", "torn-transaction"}


def test_only_an_ok_read_proves_that_an_unknown_transaction_committed():
    """The records of a failed poll are no proof."""
    tale = ToldHistory().txn(1, sending(0, "a"), sending(1, "b"), type="info").send(2, "c", 2)
    tale.poll(4, (1, "b"), type="fail").poll(3, (2, "c"))
    assert "lost-write" not in tale.found()


def test_a_value_that_only_a_failed_poll_returned_was_not_read():
    """It is in the log, and lost all the same: only ok reads count as reads."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (0, "a"), type="fail").poll(3, (1, "b"))
    assert tale.found() == {"lost-write", "unseen"}


def test_a_failed_poll_does_not_raise_the_bound():
    """Offsets below its values may be read later."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (1, "b"), type="info")
    assert tale.found() == {"unseen"}


def test_the_bound_of_a_doubled_value_is_its_first_place():
    """a b c a: a was read, so the bound is place 0 and b and c may be late."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1).send(1, "c", 2).poll(2, (3, "a"), (0, "a"))
    assert "lost-write" not in tale.found()
    assert "duplicate" in tale.found()


def test_a_doubled_value_is_lost_only_if_its_last_place_is_below_the_bound():
    """a b a: only b was read; a's last place is above it."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1)
    tale.poll(2, (2, "a"), type="info").poll(3, (1, "b"))
    assert "lost-write" not in tale.found()
    tale.send(1, "c", 3).poll(4, (3, "c"))
    assert "lost-write" in tale.found()


def test_the_bound_is_the_highest_first_place_of_all_that_was_read():
    """a x b a: a lies last, but it is b that proves x lost."""
    tale = (
        ToldHistory()
        .send(1, "a", 0)
        .send(1, "x", 1)
        .send(1, "b", 2)
        .poll(2, (0, "a"))
        .poll(3, (2, "b"), (3, "a"))
    )
    assert [each.about for each in tale.verdict().anomalies["lost-write"]] == [("x", "b")]


def test_a_value_in_the_place_of_the_bound_is_lost_if_it_was_never_read():
    """Up to the bound, and the bound's own place."""
    tale = ToldHistory().send(1, "a", 0).send(2, "b", 0).poll(3, (0, "a"))
    assert [each.about[0] for each in tale.verdict().anomalies["lost-write"]] == ["b"]


def test_two_values_at_one_offset_do_not_make_either_lost():
    """Both belong to that place; the value that was never read is lost, the other not."""
    tale = ToldHistory().send(1, "a", 0).send(2, "b", 0).send(1, "c", 1).poll(3, (0, "a"), (1, "c"))
    assert [each.about[0] for each in tale.verdict().anomalies["lost-write"]] == ["b"]


def test_everything_acknowledged_and_read_is_seen():
    """By any consumer, in any order."""
    assert ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (0, "a")).poll(3, (1, "b")).found() == set()


def test_unseen_values_are_counted_one_by_one_and_named():
    """One finding for each key, with how many."""
    tale = ToldHistory().send(1, "x", 0).poll(9, (0, "x"))
    for number in range(7):
        tale.send(1, number, number + 1)
    verdict = tale.verdict()
    assert verdict.cases["unseen"] == 7
    assert verdict.anomalies["unseen"][0].explanation == "7 acknowledged values never read: 0, 1, 2, 3, 4, …"


def test_a_send_that_never_ended_is_of_unknown_fate():
    """A run that was killed: neither lost nor refused, and a reader may have it."""
    tale = ToldHistory()
    tale.line(1, "invoke", "send", [["send", "t-0", "a"]])
    assert tale.poll(2, (0, "a")).found() == set()
    tale = ToldHistory().send(2, "b", 0).poll(3, (0, "b"))
    tale.line(1, "invoke", "send", [["send", "t-0", "a"]])
    assert tale.found() == set()


def test_a_read_inside_a_transaction_counts():
    """Polls are polls in whatever operation."""
    assert (
        ToldHistory().send(1, "a", 0).txn(2, reading((0, "a")), sending(1, "b")).poll(3, (1, "b")).found()
        == set()
    )
