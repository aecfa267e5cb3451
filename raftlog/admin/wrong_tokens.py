"""Limits wrong tokens by address: a token bucket for each address with failed attempts, at most `most` buckets.

An address with an empty bucket is refused, whether its token is right or wrong. Otherwise guessing would be free. This
module knows neither HTTP nor tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.base.places import machine_of

BURST: Final = 20
"""Wrong tokens at once."""
EVERY_S: Final = 1.0
"""One more is forgiven."""
MAX_ADDRESSES: Final = 1024


class WrongTokens:
    """Counts wrong tokens by address; `clock` in seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        burst: int = BURST,
        every_s: float = EVERY_S,
        most: int = MAX_ADDRESSES,
    ) -> None:
        self._clock = clock
        self._most_s = (burst - 1) * every_s
        self._every_s = every_s
        self._most = most
        self._forgiven_at: dict[str, float] = {}

    def wait_s(self, address: str) -> float:
        """Return how long an address has to wait until a token of it is looked at; 0: not at all."""
        debt = self._forgiven_at.get(machine_of(address), 0.0) - self._clock()
        return max(0.0, debt - self._most_s)

    def add(self, address: str) -> None:
        """Count a token that is wrong, or not checked yet."""
        machine, now = machine_of(address), self._clock()
        if machine not in self._forgiven_at and len(self._forgiven_at) >= self._most:
            self._make_room(now)
        self._forgiven_at[machine] = max(now, self._forgiven_at.get(machine, now)) + self._every_s

    def take_back(self, address: str) -> None:
        """Subtract a counted token that turned out to be right."""
        machine = machine_of(address)
        if machine in self._forgiven_at:
            self._forgiven_at[machine] -= self._every_s
            if self._forgiven_at[machine] <= self._clock():
                del self._forgiven_at[machine]

    def _make_room(self, now: float) -> None:
        self._forgiven_at = {each: at for each, at in self._forgiven_at.items() if at > now}
        if len(self._forgiven_at) >= self._most:
            del self._forgiven_at[min(self._forgiven_at, key=self._forgiven_at.__getitem__)]
