"""A clock for tests: its time passes when a test says so."""

from __future__ import annotations


class Clock:
    """Return the time in seconds when called, as `loop.time` does."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
