"""A clock for tests, and the timers of a loop that goes by it: its time passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class Timer:
    """A call that is due. Like uvloop's handle, it cannot say `when` if that was past as the timer was made."""

    def __init__(self, at: float, call: Callable[[], object], *, is_past: bool) -> None:
        self.at, self.call, self.cancelled = at, call, False
        self._is_past = is_past

    def when(self) -> float:
        assert not self._is_past, "uvloop makes it a plain call, which has no time"
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Return the time in seconds when called, as `loop.time` does. It also stands in for the loop that has timers."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.timers: list[Timer] = []
        """The timers that have not fired."""

    def __call__(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(when, partial(call, *args), is_past=when <= self.now)
        self.timers.append(timer)
        return timer

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Timer:
        return self.call_at(self.now + delay, call, *args)

    def advance(self, seconds: float) -> None:
        """Let time pass, and fire the timers that are due, in their order."""
        end = self.now + seconds
        while due := [each for each in self.timers if each.at <= end and not each.cancelled]:
            timer = min(due, key=lambda each: each.at)
            self.now = max(self.now, timer.at)
            self.timers.remove(timer)
            timer.call()
        self.now = end
        self.timers = [each for each in self.timers if not each.cancelled]
