"""How fast the bytes that a connection holds must move, and whether they do.

Bytes are counted against time, so a large frame may take as long as it needs. Time is counted in looks
(`idle_connections.py`), so a pause of our own loop counts against no connection.

| what | must move | may fall behind by |
|---|---|---|
| an incomplete frame arrives | SLOWEST_BYTES each second | PATIENCE_S |
| a response that the transport holds leaves | SLOWEST_BYTES each second | PATIENCE_S |
| the first, where requests' memory is short | PRESSED_BYTES each second | PRESSED_S |
| the first, with a grant for which others wait | HOLDING_UP_BYTES each second | PRESSED_S |
| any response, where half of responses' memory is used | PRESSED_BYTES each second | PRESSED_S |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raftlog.broker.network.request_memory import FrameReader, RequestMemory

LOOK_S: Final = 1.0
SLOWEST_BYTES: Final = 8 * 1024
PATIENCE_S: Final = 30.0
PRESSED_BYTES: Final = 32 * 1024
PRESSED_S: Final = 3.0
HOLDING_UP_BYTES: Final = 1024 * 1024


class ConnectionProgress:
    """Checks whether a count of bytes grows fast enough. `is_stuck` is called once a look."""

    __slots__ = ("_credit_s", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._credit_s = PATIENCE_S

    def is_stuck(self, count: int, *, slowest: int, patience_s: float) -> bool:
        """Return whether the count, at `slowest` bytes a second, has fallen behind by more than `patience_s`."""
        gained_s = (count - self._seen) / slowest
        self._seen = count
        self._credit_s = min(self._credit_s + gained_s, patience_s) - LOOK_S
        return self._credit_s < 0


def pace_of_frame(requests: RequestMemory, reader: FrameReader) -> tuple[int, float]:
    """Return how many bytes of an incomplete frame must arrive each second, and how far they may fall behind."""
    if requests.holds_up_others(reader):  # perhaps with bytes that were promised to it alone
        return HOLDING_UP_BYTES, PRESSED_S
    return (PRESSED_BYTES, PRESSED_S) if requests.is_short else (SLOWEST_BYTES, PATIENCE_S)
