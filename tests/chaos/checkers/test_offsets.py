"""inconsistent-offsets and duplicate: offset and value are each other's."""

from __future__ import annotations

from tests.chaos.checkers.told_history import ToldHistory


def test_one_value_at_one_offset_is_right():
    """Sender and every reader agree; gaps between offsets are control records."""
    tale = (
        ToldHistory().send(1, "a", 0).send(1, "b", 5).poll(2, (0, "a"), (5, "b")).poll(3, (0, "a"), (5, "b"))
    )
    assert tale.found() == set()


def test_two_readers_with_different_values_at_an_offset_are_inconsistent():
    """jepsen.tests.kafka: some log[k][o] has two values."""
    tale = ToldHistory().send(1, "a", 0).send(2, "b", None).poll(3, (0, "a")).poll(4, (0, "b"))
    assert tale.found() == {"inconsistent-offsets"}


def test_the_smallest_history_of_two_values_at_an_offset_is_their_reads():
    """The finding has the two reads, and none of the noise around them."""
    tale = ToldHistory().log("x", "y").send(1, "a", 7).send(2, "b", None)
    tale.poll(3, (7, "a")).poll(4, (7, "b")).poll(5, (7, "a"))
    (finding,) = tale.verdict().anomalies["inconsistent-offsets"]
    assert [(op.process, op.type) for op in finding.ops] == [(1, "ok"), (4, "ok")]
    assert finding.explanation == "offset 7 holds 'a' and 'b'"


def test_the_offset_of_a_send_counts_once_its_operation_committed():
    """jepsen.tests.kafka: sends of ok operations are part of the log."""
    assert "inconsistent-offsets" in ToldHistory().send(1, "a", 0).send(2, "b", 0).poll(3, (0, "a")).found()


def test_the_offset_of_a_send_of_unknown_fate_does_not_count():
    """A leader may have sent it before it was lost; the value was never read, so it never committed."""
    assert ToldHistory().send(1, "a", 0).send(2, "b", 0, "info").poll(3, (0, "a")).found() == set()


def test_a_value_at_two_offsets_is_a_duplicate():
    """jepsen.tests.kafka, duplicate: seen by one reader."""
    tale = ToldHistory().send(1, "a", 0).poll(2, (0, "a")).poll(3, (3, "a"))
    assert tale.found() == {"duplicate"}


def test_a_value_read_at_another_offset_than_its_send_returned_is_a_duplicate():
    """The sender's offset and the readers' are one log."""
    assert ToldHistory().send(1, "a", 0).poll(2, (3, "a")).found() == {"duplicate"}


def test_a_duplicate_and_two_values_at_an_offset_do_not_cancel_out():
    """As many places as values, and yet both are wrong."""
    tale = ToldHistory().send(1, "a", 0).poll(2, (3, "a")).send(3, "b", None).poll(4, (0, "b"))
    assert {"inconsistent-offsets", "duplicate"} <= tale.found()


def test_the_same_value_in_two_keys_is_no_duplicate():
    """Values are unique within a key only."""
    tale = ToldHistory().send(1, 1, 0, key="t-0").send(1, 1, 0, key="t-1")
    tale.line(2, "ok", "poll", [["poll", {"t-0": [[0, 1]], "t-1": [[0, 1]]}]])
    assert tale.found() == set()


def test_polls_of_unknown_and_failed_operations_count_for_the_log():
    """jepsen.tests.kafka: a poll must return safe data even if its transaction aborts later."""
    for type in ("info", "fail"):
        tale = ToldHistory().send(1, "a", 0).send(2, "b", None).poll(3, (0, "a")).poll(4, (0, "b"), type=type)
        tale.poll(5, (1, "b"))
        assert {"inconsistent-offsets", "duplicate"} <= tale.found()


def test_a_number_and_its_text_are_different_values():
    """1 and "1" may both be records of a key."""
    assert ToldHistory().send(1, 1, 0).send(1, "1", 1).poll(2, (0, 1), (1, "1")).found() == set()
