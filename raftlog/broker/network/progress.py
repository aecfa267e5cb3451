"""Checks whether the bytes that a connection holds move fast enough.

Bytes are counted against time, so a large frame may take as long as it needs. Time is counted in checks
(`idle_connections.py`), so a pause of our own loop counts against no connection.

| what | pace |
|---|---|
| an incomplete frame arrives, a response that the transport holds leaves | USUAL |
| the same where memory runs short: of requests, or half of that for responses | PRESSED |
| a frame arrives under a grant for which others wait | HOLDING_UP |
"""

from __future__ import annotations

from typing import Final, NamedTuple

CHECK_INTERVAL_S: Final = 1.0


class Pace(NamedTuple):
    """The bytes that must move each second, and the seconds by which they may fall behind."""

    bytes_per_second: int
    patience_s: float


USUAL: Final = Pace(8 * 1024, 30.0)
PRESSED: Final = Pace(32 * 1024, 3.0)
HOLDING_UP: Final = Pace(1024 * 1024, 3.0)


class ConnectionProgress:
    """Checks whether a count of bytes grows fast enough. `is_stuck` is called once a look."""

    __slots__ = ("_credit_s", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._credit_s = USUAL.patience_s

    def is_stuck(self, count: int, pace: Pace) -> bool:
        """Return whether the count has fallen behind by more than the pace allows."""
        gained_s = (count - self._seen) / pace.bytes_per_second
        self._seen = count
        self._credit_s = min(self._credit_s + gained_s, pace.patience_s) - CHECK_INTERVAL_S
        return self._credit_s < 0
