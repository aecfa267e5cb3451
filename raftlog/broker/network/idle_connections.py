"""Frees what connections hold that make no progress: frames that never end, answers that nobody takes.

A look a second, only while some connection holds something. Bytes are counted against time, so a large frame may take
as long as it needs. Time is counted in looks, so a pause of our own loop is held against nobody.

| who | must move | may fall behind by |
|---|---|---|
| an incomplete frame arrives | SLOWEST_BYTES each second | PATIENCE_S |
| an answer that the transport holds leaves | SLOWEST_BYTES each second | PATIENCE_S |
| the first, where requests' memory is short | PRESSED_BYTES each second | PRESSED_S |
| the first, with a grant for which others wait | HOLDING_UP_BYTES each second | PRESSED_S |
| any answer, where half of answers' memory is used | PRESSED_BYTES each second | PRESSED_S |

In the last case those with the most bytes go first, until no more than half is used. A connection that was closed
sends the rest within FAREWELL_LOOKS seconds.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.memory import Account

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection
    from raftlog.broker.network.request_memory import FrameReader, RequestMemory

LOOK_S: Final = 1.0
SLOWEST_BYTES: Final = 8 * 1024
PATIENCE_S: Final = 30.0
PRESSED_BYTES: Final = 32 * 1024
PRESSED_S: Final = 3.0
HOLDING_UP_BYTES: Final = 1024 * 1024
FAREWELL_LOOKS: Final = 5


class ConnectionProgress:
    """Whether a count of bytes grows fast enough. `is_stuck` is asked once a look."""

    __slots__ = ("_credit_s", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._credit_s = PATIENCE_S

    def is_stuck(self, count: int, *, slowest: int, patience_s: float) -> bool:
        """Say whether the count, at `slowest` bytes a second, has fallen behind by more than `patience_s`."""
        gained_s = (count - self._seen) / slowest
        self._seen = count
        self._credit_s = min(self._credit_s + gained_s, patience_s) - LOOK_S
        return self._credit_s < 0


def pace_of_frame(requests: RequestMemory, reader: FrameReader) -> tuple[int, float]:
    """Return how many bytes of an incomplete frame must arrive each second, and how far they may fall behind."""
    if requests.holds_up_others(reader):  # perhaps with what was promised to it alone
        return HOLDING_UP_BYTES, PRESSED_S
    return (PRESSED_BYTES, PRESSED_S) if requests.is_short else (SLOWEST_BYTES, PATIENCE_S)


class IdleConnectionWatch:
    """The connections that hold something. They add themselves, and are dropped once they hold nothing."""

    __slots__ = ("_answers", "_connections", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, answers: Account) -> None:
        self._loop = loop
        self._answers = answers
        self._connections: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Look at a connection from now on. Fine if it is looked at already."""
        self._connections[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._connections.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        answers = self._answers
        crowded = answers.used > answers.limit // 2
        for connection in tuple(self._connections):
            connection.run_guarded(partial(connection.look, crowded=crowded))
            if not connection.is_watched:
                del self._connections[connection]
        if crowded:
            self._make_room()
        # The fired timer stood until here, so that a connection which adds itself as it ends starts no second one.
        self._timer = self._loop.call_later(LOOK_S, self._look) if self._connections else None

    def _make_room(self) -> None:
        """Abort those whose answers stand still, the largest first, until half of the memory is free."""
        stuck = [each for each in self._connections if each.outbox.stands_still]
        stuck.sort(key=lambda each: -each.outbox.waiting_bytes)
        for connection in stuck:
            if self._answers.used <= self._answers.limit // 2:
                return
            waiting = connection.outbox.waiting_bytes
            connection.run_guarded(partial(connection.cut, "memory_reclaimed", waiting_bytes=waiting))
