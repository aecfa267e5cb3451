"""poll-skip, nonmonotonic-poll and what is within one operation: the order of reading."""

from __future__ import annotations

import pytest

from tests.chaos.checkers.told_history import KEY, ToldHistory, reading, sending

ABC = ("a", "b", "c")


def test_a_consumer_that_reads_on_is_right():
    """Across operations and within an operation; gaps of offsets are ignored."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1, (1, "b"), (2, "c"))
    assert tale.found() == set()


def test_one_poll_that_leaves_out_a_value_skips():
    """jepsen.tests.kafka, int-poll-skip."""
    assert ToldHistory().log(*ABC).poll(1, (0, "a"), (2, "c")).found() == {"int-poll-skip"}


def test_a_skip_between_the_polls_of_one_operation_is_internal():
    """Successive reads of a key, whichever poll brought them."""
    tale = (
        ToldHistory()
        .log(*ABC)
        .txn(1, reading((0, "a")), sending(3, "d"), reading((2, "c")))
        .poll(99, (3, "d"))
    )
    assert tale.found() == {"int-poll-skip"}


def test_one_poll_that_goes_backwards_or_repeats_is_not_monotonic():
    """jepsen.tests.kafka, int-nonmonotonic-poll: a delta below 1."""
    assert ToldHistory().log(*ABC).poll(1, (1, "b"), (0, "a")).found() == {"int-nonmonotonic-poll"}
    assert ToldHistory().log(*ABC).poll(1, (1, "b"), (1, "b")).found() == {"int-nonmonotonic-poll"}


def test_internal_order_is_judged_in_operations_of_any_fate():
    """Records that a consumer was given in an aborted transaction have an order, too."""
    for type in ("info", "fail"):
        assert ToldHistory().log(*ABC).poll(1, (0, "a"), (2, "c"), type=type).found() == {"int-poll-skip"}


def test_keys_that_were_rebalanced_meanwhile_are_exempt_within_the_operation():
    """jepsen.tests.kafka: keys in the operation's rebalance log; others are not."""
    assert ToldHistory().log(*ABC).poll(1, (0, "a"), (2, "c"), rebalanced=[KEY]).found() == set()
    assert ToldHistory().log(*ABC).poll(1, (0, "a"), (2, "c"), rebalanced=["t-1"]).found() == {
        "int-poll-skip"
    }


def test_a_consumer_that_leaves_out_values_between_two_polls_skips():
    """jepsen.tests.kafka, poll-skip."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1, (2, "c"))
    assert tale.found() == {"poll-skip"}
    (finding,) = tale.verdict().anomalies["poll-skip"]
    assert [op.process for op in finding.ops] == [1, 1]
    assert "1 between them: 'b'" in finding.explanation


@pytest.mark.parametrize("again", ["a", "b"])
def test_a_consumer_that_goes_back_or_repeats_is_not_monotonic(again):
    """jepsen.tests.kafka, nonmonotonic-poll."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a"), (1, "b")).poll(1, (ABC.index(again), again))
    assert tale.found() == {"nonmonotonic-poll"}


def test_an_empty_poll_changes_nothing():
    """The consumer stands where it stood."""
    assert ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1).poll(1, (1, "b")).found() == set()


def test_different_processes_do_not_continue_each_other():
    """Each has its own place."""
    assert ToldHistory().log(*ABC).poll(1, (0, "a")).poll(2, (2, "c")).found() == set()


def test_after_an_unknown_or_failed_poll_a_consumer_goes_back():
    """jepsen.tests.kafka: the client seeks back, so such polls don't count as what was last read, …"""
    for type in ("info", "fail"):
        tale = (
            ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1, (1, "b"), type=type).poll(1, (1, "b"), (2, "c"))
        )
        assert tale.found() == set()


def test_an_unknown_or_failed_poll_is_held_to_what_was_read_before():
    """… but it goes on from the last ok poll."""
    for type in ("info", "fail"):
        assert ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1, (2, "c"), type=type).found() == {"poll-skip"}


def test_a_key_that_stays_assigned_is_remembered():
    """jepsen.tests.kafka: a successful assign keeps memory for keys still in its list."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a")).assign(1, KEY, "t-1").poll(1, (2, "c"))
    assert tale.found() == {"poll-skip"}


def test_a_key_that_was_given_up_is_forgotten():
    """Coming back to it, a consumer begins somewhere."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a")).assign(1, "t-1").assign(1, KEY).poll(1, (2, "c"))
    assert tale.found() == set()


def test_an_assign_that_did_not_succeed_forgets_nothing():
    """Only ok assigns replace the consumer's keys."""
    tale = (
        ToldHistory()
        .log(*ABC)
        .assign(7, KEY)
        .poll(1, (0, "a"))
        .assign(1, "t-1", type="info")
        .poll(1, (2, "c"))
    )
    assert tale.found() == {"poll-skip"}


def test_a_consumer_that_was_rewound_may_read_again():
    """seek_to_beginning: the harness moved it."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a"), (1, "b")).assign(1, KEY, seek_to_beginning=True)
    assert tale.poll(1, (0, "a")).found() == set()


def test_with_subscribe_skips_between_polls_are_allowed_but_not_within_one():
    """jepsen.tests.kafka: a rebalance may move a consumer."""
    tale = (
        ToldHistory()
        .log(*ABC)
        .assign(1, KEY, f="subscribe")
        .poll(1, (0, "a"))
        .poll(1, (2, "c"))
        .poll(1, (0, "a"))
    )
    verdict = tale.verdict()
    assert set(verdict.anomalies) == {"poll-skip", "nonmonotonic-poll"} and verdict.valid
    assert not tale.poll(2, (0, "a"), (2, "c")).verdict().valid


def test_without_subscribe_the_same_is_invalid():
    """Only the consumer moves itself."""
    assert not ToldHistory().log(*ABC).poll(1, (0, "a")).poll(1, (2, "c")).verdict().valid


def test_a_repeated_subscription_to_a_topic_does_not_excuse_a_skip():
    """The list may name the topic instead of its partitions."""
    tale = (
        ToldHistory().log(*ABC).assign(1, "t", f="subscribe").poll(1, (0, "a")).assign(1, "t", f="subscribe")
    )
    assert tale.poll(1, (2, "c")).found() == {"poll-skip"}


def test_a_value_read_in_a_place_that_is_anothers_counts_as_one_step():
    """jepsen.tests.kafka: an unknown index counts as delta 1. Only one value of an offset has a place."""
    for second in ((2, "z"), (1, "b")):
        tale = ToldHistory().log(*ABC).send(5, "z", None).poll(7, (2, "z"))
        assert tale.poll(1, (0, "a"), second).found() == {"inconsistent-offsets"}
    tale = ToldHistory().log(*ABC).send(5, "z", None).poll(1, (0, "a")).poll(1, (2, "z")).poll(1, (2, "c"))
    assert tale.found() == {"inconsistent-offsets"}


def test_a_process_that_crashed_is_forgotten():
    """It never comes back, and its number never does."""
    tale = ToldHistory().log(*ABC).poll(1, (0, "a")).both(1, "info", "crash", None).poll(1, (2, "c"))
    assert tale.found() == set()
