"""A clock for tests, and the timers of a loop that goes by it: its time passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable


class Timer:
    """A call that is due. Like uvloop's handle for a time that is past, it cannot say `when`."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

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

    def call_at(self, when: float, call: Callable[[], object]) -> Timer:
        timer = Timer(when, call)
        self.timers.append(timer)
        return timer

    def call_later(self, delay: float, call: Callable[[], object]) -> Timer:
        return self.call_at(self.now + delay, call)

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
