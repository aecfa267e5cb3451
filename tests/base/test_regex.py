"""Which expressions are let in, and how they match: RE2's syntax, and a bound on what a character may cost."""

from __future__ import annotations

import pytest

from raftlog.base.errors import InvalidRegularExpression
from raftlog.base.regex import LONGEST, MAX_INSTRUCTIONS, check_regex, compiled


@pytest.mark.parametrize("regex", ["(", "[a", "a{2,1}", "(?=a)", r"(a)\1", "x" * (LONGEST + 1)])
def test_what_re2_does_not_know_is_refused(regex: str) -> None:
    """With its own words; look-ahead and back-references are what makes others slow."""
    with pytest.raises(InvalidRegularExpression):
        check_regex(regex)


def test_an_expression_may_be_long_but_not_large() -> None:
    """A list of names is as large as it is long; a repetition of repetitions is much larger."""
    check_regex("|".join(f"name-{number}" for number in range(190)))
    with pytest.raises(InvalidRegularExpression, match=f"limit is {MAX_INSTRUCTIONS}"):
        check_regex("((a|b|c.?){30}){9}")


def test_an_expression_that_is_long_in_compiling_is_given_up_early() -> None:
    """Twenty thousand instructions take RE2 longer than a turn may be; a tenth of that shows that it is too large."""
    with pytest.raises(InvalidRegularExpression) as refused:
        check_regex("[a-z]{1,1000}" * 10)
    assert str(MAX_INSTRUCTIONS) not in str(refused.value), "it was compiled"


def test_an_expression_that_backtracking_never_ends_with_is_linear() -> None:
    """The textbook example: exponential in `re`, and immediate here."""
    regex = "(a+)+b"
    check_regex(regex)
    assert not compiled(regex).fullmatch("a" * 200)
    assert compiled(regex).fullmatch("a" * 200 + "b")
