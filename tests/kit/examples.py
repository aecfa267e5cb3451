"""How many examples Hypothesis makes: a quarter of what a test asks for, and all of them in the profile nightly."""

from __future__ import annotations

from hypothesis import settings

SHARE = 4


def examples(count: int) -> int:
    """Return how many of so many examples to try in this run; at least five."""
    return count if settings.default.max_examples >= 100 else max(5, count // SHARE)
