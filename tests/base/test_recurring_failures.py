"""Recurring work that failed for one subject: named, left out for a while, tried again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftlog.base.recurring_failures import FIRST_RETRY_S, LONGEST_RETRY_S, MOST_NAMED, Failures


def broken() -> int:
    raise ValueError("a bug")


def attempt(failures: Failures, now: float, subject: str = "t-0", work: object = broken) -> int | None:
    return failures.attempt("chore", subject, now, work, raises=AssertionError)  # type: ignore[arg-type]


def test_a_subject_that_failed_is_named_and_left_out_longer_each_time() -> None:
    """30 s, a minute, two, … an hour: it is cheap, and a repair is noticed well within the hour."""
    failures, now, tries = Failures(), 0.0, []
    while len(tries) < 12:
        if failures.is_due("chore", "t-0", now):
            assert attempt(failures, now) is None
            tries.append(now)
        now += 1.0
    pauses = [later - before for before, later in pairwise(tries)]
    assert pauses[:4] == [FIRST_RETRY_S * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == LONGEST_RETRY_S
    (failure,) = failures
    assert (failure.subject, failure.reason, failure.times) == ("t-0", "ValueError: a bug", 12)
    assert attempt(failures, now, work=lambda: 7) is None, "it is left out"
    assert attempt(failures, now + LONGEST_RETRY_S, work=lambda: 7) == 7
    assert not len(failures)


def test_others_are_not_left_out() -> None:
    """Another subject, and another chore for the same subject."""
    failures = Failures()
    attempt(failures, 0.0)
    assert attempt(failures, 0.0, subject="t-1", work=lambda: 1) == 1
    assert failures.is_due("another chore", "t-0", 0.0)


def test_what_the_caller_wants_to_hear_of_is_no_failure() -> None:
    """A disk's errors concern more than one log, a broken invariant more than one group."""
    failures = Failures()

    def invariant() -> int:
        raise AssertionError

    with pytest.raises(AssertionError):
        attempt(failures, 0.0, work=invariant)
    assert not len(failures)


def test_no_more_failures_are_remembered_than_the_limit() -> None:
    """Clients choose the names of groups. A subject that is not remembered is tried each time."""
    failures = Failures()
    for number in range(MOST_NAMED + 5):
        attempt(failures, 0.0, subject=str(number))
    assert len(failures) == MOST_NAMED
    assert failures.is_due("chore", str(MOST_NAMED), 0.0)
    failures.forget_subjects(frozenset({"7"}))
    assert [each.subject for each in failures] == ["7"]
