"""How many examples Hypothesis makes: a quarter of what a test asks for, and all of them in the profile nightly."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import providers

SHARE = 4


def examples(count: int) -> int:
    """Return how many of so many examples to try in this run; at least five."""
    return count if settings.default.max_examples >= 100 else max(5, count // SHARE)


def leave_constants_out() -> None:
    """Make no examples of the constants in the modules that are loaded.

    The examples of a test would differ with the tests that run before it, and each process would read a thousand files.
    """
    providers.is_local_module_file = lambda path: False
