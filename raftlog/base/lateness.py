"""How late a node's event loop runs what is due, and so how long the node waits before it takes others for dead.

A slow node (a busy machine, a container with a tenth of a core) hears late of all others, however alive they are. The
others are probably slow too. A node that stood still a few times, as a process that gets SIGSTOP, is not slow: it waits
for others no longer than usual. Knows no clock: it is told.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.1
"""An event loop that is so late is slow: that is most of a heartbeat's interval in the quorum. A shorter delay counts
as nothing.
"""

REMEMBERED_S: Final = 20.0
"""How long lateness counts after it was seen."""

OFTEN: Final = 5
"""Times that a node must have been late within `REMEMBERED_S` to be called slow."""

PATIENCE: Final = 2.0
"""A slow node waits longer for others by this times its own lateness: theirs on top of its own."""

MAX_PATIENCE_S: Final = 10.0


class Lateness:
    """How late a node often is. `note` it whenever a timer ran."""

    def __init__(self) -> None:
        self.late_s = 0.0
        """The least of its `OFTEN` worst times late within `REMEMBERED_S`; 0 on a node that is not slow."""
        self._seen: list[tuple[float, float]] = []
        """How late it was, and when."""

    def note(self, late_s: float, now: float) -> None:
        """A timer that was due `late_s` ago has just run."""
        if not self._seen and late_s < LATE_S:
            return
        self._seen = [each for each in self._seen if now - each[1] < REMEMBERED_S]
        if late_s >= LATE_S:
            self._seen.append((late_s, now))
        self.late_s = sorted(self._seen)[-OFTEN][0] if len(self._seen) >= OFTEN else 0.0

    @property
    def was_late(self) -> bool:
        """Whether it was late at all within `REMEMBERED_S`."""
        return bool(self._seen)

    @property
    def is_slow(self) -> bool:
        """Whether it was late again and again, so that a person should know; one stall is none of their business."""
        return self.late_s > 0

    @property
    def patience_s(self) -> float:
        """How much longer than usual to wait for others; 0 on a node that is not slow."""
        return min(MAX_PATIENCE_S, PATIENCE * self.late_s)
