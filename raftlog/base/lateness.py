"""How late a node's event loop runs what is due, and so how long the node waits before it takes others for dead.

A node that is slow itself (a busy machine, a container with a tenth of a core, a stopped process) hears late of
everybody, however alive they are, and is likely to share its slowness with them. Knows no clock: it is told.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.1
"""An event loop that is so late is slow: that is a heartbeat of the quorum's leader. What is less counts as nothing."""

REMEMBERED_S: Final = 20.0
"""How long, at least, lateness counts after it was seen; at most half as long again."""

OFTEN: Final = 5
"""Times that a node was late within `REMEMBERED_S` to be called slow."""

PATIENCE: Final = 2.0
"""A slow node waits longer for others by this times its own lateness: theirs on top of its own."""

MAX_PATIENCE_S: Final = 10.0


class Lateness:
    """The worst lateness of late. `note` it whenever a timer ran."""

    def __init__(self) -> None:
        self._now_s = self._before_s = 0.0
        self._times = self._times_before = 0
        self._turned_at = 0.0

    def note(self, late_s: float, now: float) -> None:
        """A timer that was due `late_s` ago has just run."""
        if now - self._turned_at >= REMEMBERED_S / 2:
            fresh = now - self._turned_at < REMEMBERED_S
            self._before_s, self._times_before = (self._now_s, self._times) if fresh else (0.0, 0)
            self._now_s, self._times, self._turned_at = 0.0, 0, now
        self._now_s = max(self._now_s, late_s)
        self._times += late_s >= LATE_S

    @property
    def worst_s(self) -> float:
        """The worst of the last `REMEMBERED_S`; 0 where that is usual."""
        worst = max(self._now_s, self._before_s)
        return worst if worst >= LATE_S else 0.0

    @property
    def is_slow(self) -> bool:
        """Whether it was late again and again, so that a person should know; one stall is none of their business."""
        return self._times + self._times_before >= OFTEN

    @property
    def patience_s(self) -> float:
        """How much longer than usual to wait for others; 0 on a node that is not slow."""
        return min(MAX_PATIENCE_S, PATIENCE * self.worst_s)
