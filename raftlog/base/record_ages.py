"""By which time data is deleted for its age. A wall clock that jumps must not make everything old at once.

The clock is held against the monotonic one. While they disagree, age is judged by the earlier of two times: what the
wall clock says, and what it would say had it not jumped. So what is due by both still goes, and nothing else does.
The jump is accepted when an operator says so, or when the clocks have agreed again for an hour. If the wall clock
comes back first, it is as if nothing had happened. A record that is stamped meanwhile takes the later of the two
times, so that a clock that went back makes nothing old that is new.

A jump while the process does not run is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.base.log import get_logger

MOST_JUMP_MS: Final = 60_000
"""By so much the clocks may part between two looks. A clock that is set right drifts by milliseconds in that time."""
ACCEPTED_AFTER_S: Final = 3_600.0
"""A jump is accepted after the clocks have agreed for so long, since a machine that slept comes back with one too."""

log = get_logger(__name__)


class Ages:
    """The wall clock as far as data is deleted by it. Each question is a look at the clocks."""

    __slots__ = ("_believed_ms", "_jumped_at", "_monotonic_s", "_seen_ms", "_wall_clock_ms")

    def __init__(self, wall_clock_ms: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
        self._wall_clock_ms = wall_clock_ms
        self._monotonic_s = monotonic_s
        self._believed_ms: int | None = None
        """The lead of the wall clock over the monotonic one, as far as it is believed; None before the first look."""
        self._seen_ms = 0
        """The same as the last look found it."""
        self._jumped_at: float | None = None
        """When a look found the last jump, monotonic; None while the clocks agree."""

    def now_ms(self) -> int:
        """Return the time by which age is judged: what is too old then may be deleted."""
        wall_ms, believed_ms = self._look()
        return min(wall_ms, believed_ms)

    def latest_ms(self) -> int:
        """Return the time to stamp with what will be deleted for its age."""
        wall_ms, believed_ms = self._look()
        return max(wall_ms, believed_ms)

    def jump_ms(self) -> int:
        """Return how far the wall clock is ahead (or, negative, behind) of where it is believed; 0: they agree."""
        wall_ms, believed_ms = self._look()
        return 0 if self._jumped_at is None else wall_ms - believed_ms

    def accept(self) -> bool:
        """Believe the wall clock from now on, as an operator says; False if the clocks agree anyway."""
        jump_ms = self.jump_ms()
        if self._jumped_at is None:
            return False
        self._believe(self._seen_ms)
        log.warning("clock_jump_accepted", jump_ms=jump_ms)
        return True

    def _believe(self, ahead_ms: int) -> None:
        self._believed_ms, self._jumped_at = ahead_ms, None

    def _look(self) -> tuple[int, int]:
        """Return the wall clock's time, and what it would be without a jump."""
        monotonic_s, wall_ms = self._monotonic_s(), self._wall_clock_ms()
        monotonic_ms = int(monotonic_s * 1000)
        ahead_ms = wall_ms - monotonic_ms
        if self._believed_ms is None:
            self._believed_ms = self._seen_ms = ahead_ms
        jump_ms = ahead_ms - self._believed_ms
        if abs(jump_ms) <= MOST_JUMP_MS:
            if self._jumped_at is not None:
                log.warning("clock_jump_undone")
            self._believe(ahead_ms)
        elif self._jumped_at is None or abs(ahead_ms - self._seen_ms) > MOST_JUMP_MS:
            self._jumped_at = monotonic_s
            log.error("clock_jumped", jump_ms=jump_ms, consequence="deletion by age waits")
        elif monotonic_s - self._jumped_at >= ACCEPTED_AFTER_S:
            self._believe(ahead_ms)
            log.warning("clock_jump_accepted", jump_ms=jump_ms)
        self._seen_ms = ahead_ms
        return wall_ms, monotonic_ms + self._believed_ms
