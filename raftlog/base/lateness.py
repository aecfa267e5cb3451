"""The lateness of a node's event loop, which extends the timeouts for other nodes.

A slow node (a busy machine, a container with a tenth of a core) processes messages of live nodes late. The others are
probably slow too. A node that stood still a few times, as by SIGSTOP, is not slow, and keeps its usual timeouts. It
knows no clock: the caller passes the time.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.1
"""An event loop this late is slow: most of a heartbeat's interval in the quorum. Shorter delays are ignored."""

REMEMBERED_S: Final = 20.0
"""How long a late timer counts."""

OFTEN: Final = 5
"""Times that a node must have been late within `REMEMBERED_S` to be called slow."""

PATIENCE: Final = 2.0
"""A slow node extends its timeouts by this multiple of its own lateness: the others' on top of its own."""

MAX_PATIENCE_S: Final = 10.0


class Lateness:
    """Estimates how late a node often is. Call `note` whenever a timer has run."""

    def __init__(self) -> None:
        self.late_s = 0.0
        """The least of the `OFTEN` largest delays within `REMEMBERED_S`; 0 on a node that is not slow."""
        self._seen: list[tuple[float, float]] = []
        """How late it was, and when."""

    def note(self, late_s: float, now: float) -> None:
        """Note that a timer has just run which was due `late_s` ago."""
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
        """Whether it was late repeatedly, which operators should know; a single stall is not worth a report."""
        return self.late_s > 0

    @property
    def patience_s(self) -> float:
        """How much to extend timeouts for others; 0 on a node that is not slow."""
        return min(MAX_PATIENCE_S, PATIENCE * self.late_s)
