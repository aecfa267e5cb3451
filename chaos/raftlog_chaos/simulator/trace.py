"""The steps in order: a running digest of every step, and the newest steps for a person to read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

FOLDED_STEPS = 2_000
"""Steps that enter the digest at once. At least so many of the newest are kept for reading."""


class Trace:
    """Equal digests mean equal runs. It must not depend on hashes, addresses or the machine.

    `on_note(now, host, event)` hears of what is worth a person's attention: lives, pauses, cuts, never of mere steps.
    """

    __slots__ = ("_before", "_digest", "_encode", "_newest", "on_note", "steps")

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode
        self._newest: list[tuple[float, str, str | int]] = []
        self._before: list[tuple[float, str, str | int]] = []
        self.steps = 0
        self.on_note: Callable[[float, str, str], None] | None = None

    def step(self, now: float, host: str, event: str | int) -> int:
        """Add one step (a callback, or so many bytes received) at virtual loop second `now`; returns their number."""
        self._newest.append((now, host, event))
        self.steps += 1
        if len(self._newest) >= FOLDED_STEPS:
            self._fold()
        return self.steps

    def note(self, now: float, host: str, event: str) -> None:
        """Add one event of the world itself."""
        self.step(now, host, event)
        if self.on_note is not None:
            self.on_note(now, host, event)

    def _fold(self) -> None:
        self._digest.update(self._encode(self._newest))
        self._before, self._newest = self._newest, []

    @property
    def digest(self) -> str:
        """Return the digest of all steps so far."""
        digest = self._digest.copy()
        digest.update(self._encode(self._newest))
        return digest.hexdigest()

    def lines(self) -> list[str]:
        """Return the newest steps, oldest first."""
        return [
            f"{now:.9f} {host} {f'received {event}' if isinstance(event, int) else event}"
            for now, host, event in (*self._before, *self._newest)
        ]
