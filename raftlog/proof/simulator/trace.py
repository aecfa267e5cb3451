"""What happened, in order: a running digest of every step, and the newest lines for a person to read."""

from __future__ import annotations

import hashlib
from collections import deque

KEPT_LINES = 2_000
"""Newest trace lines kept for reading; the digest covers all of them."""


class Trace:
    """Equal digests mean equal runs. It must not depend on hashes, addresses or the machine."""

    __slots__ = ("_digest", "_lines", "steps")

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.steps = 0

    def note(self, now: float, host: str, event: str) -> None:
        """Add one event; `now` is virtual loop seconds."""
        line = f"{now:.9f} {host} {event}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self._lines.append(line)
        self.steps += 1

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> list[str]:
        """Return the newest lines, oldest first."""
        return list(self._lines)
