"""Replication throttling, so that clients keep their share: KIP-73, the quotas of leaders and followers.

Only a replica that its topic lists is throttled, and only while it is out of sync. Throttling the ISR would throttle
producers. The bytes that listed replicas fetch count, in sync or not, as in Apache Kafka. It knows neither configs nor
connections: callers check it before a read and record the bytes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST_S: Final = 1.0
"""The burst that a quota saves up while idle, in seconds of its rate."""

EVERYONE: Final = ("*",)

SETS_KEPT: Final = 1_000
"""Lists of throttled replicas that are kept as sets."""

_sets: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
"""By the list's identity, with the list itself: comparing lists would take as long as looking through them."""


class ReplicationQuota:
    """A token bucket of bytes. One response may overdraw it. Fetches then stop until the bucket is positive again."""

    __slots__ = ("_left", "_now", "_rate", "_seen_at", "is_limited")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: loop seconds."""
        self._now = now
        self._rate: float | None = None
        self._left = 0.0
        self._seen_at = 0.0
        self.is_limited = False

    def limit(self, rate: int | None) -> None:
        """Allow this many bytes a second from now on, or any number with None."""
        if rate != self._rate:
            self._rate = rate
            self.is_limited = rate is not None
            self._left = 0.0 if rate is None else rate * BURST_S
            self._seen_at = self._now()

    def record(self, count: int) -> None:
        """Record that so many bytes were sent."""
        if self._rate is not None:
            self._refill(self._rate)
            self._left -= count

    def wait_s(self) -> float:
        """Return the seconds until more may be sent; 0 means now."""
        if self._rate is None:
            return 0.0
        self._refill(self._rate)
        return max(0.0, (1.0 - self._left) / self._rate)

    def _refill(self, rate: float) -> None:
        now = self._now()
        self._left = min(rate * BURST_S, self._left + rate * (now - self._seen_at))
        self._seen_at = now


def is_listed(listed: tuple[str, ...], index: int, broker_id: int) -> bool:
    """Return whether a topic's config throttles a partition's replica at a broker."""
    return bool(listed) and (listed == EVERYONE or f"{index}:{broker_id}" in _as_set(listed))


def _as_set(listed: tuple[str, ...]) -> frozenset[str]:
    """Return a config's list as a set; each is made once, since a list may have thousands of entries."""
    found = _sets.get(id(listed))
    if found is None or found[0] is not listed:
        if len(_sets) >= SETS_KEPT:
            _sets.clear()
        found = _sets[id(listed)] = (listed, frozenset(listed))
    return found[1]
