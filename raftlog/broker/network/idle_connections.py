"""Frees the memory of connections without progress: frames that never end, and responses that are never read.

Connections are checked once a second while they hold bytes; `progress.py` says what is too slow. Slow connections are
closed sooner while more than half of the memory for responses is used. The largest are closed first. A connection that
was closed sends the rest within FAREWELL_CHECKS seconds.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.memory import Account
from raftlog.broker.network.progress import CHECK_INTERVAL_S

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

FAREWELL_CHECKS: Final = 5


class IdleConnectionWatch:
    """The connections that hold bytes. They add themselves, and are dropped once they hold none."""

    __slots__ = ("_answers", "_connections", "_farewell_checks", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, answers: Account) -> None:
        self._loop = loop
        self._answers = answers
        self._connections: dict[Connection, None] = {}
        self._farewell_checks: dict[Connection, int] = {}
        """Checks since each connection was closed."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Check a connection from now on. It may be checked already."""
        self._connections[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check_all)

    def add_aborted(self, connection: Connection) -> None:
        """Check a connection that is closed and sends no more."""
        self._farewell_checks[connection] = FAREWELL_CHECKS
        self.add(connection)

    def close(self) -> None:
        """Stop all checks."""
        self._connections.clear()
        self._farewell_checks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_all(self) -> None:
        answers = self._answers
        crowded = answers.used > answers.limit // 2
        for connection in tuple(self._connections):
            if connection.is_open:
                connection.run_guarded(partial(connection.check_progress, crowded=crowded))
            else:
                connection.run_guarded(partial(self._check_closing, connection))
            if not connection.is_watched:
                del self._connections[connection]
                self._farewell_checks.pop(connection, None)
        if crowded:
            self._make_room()
        # The fired timer stayed set until here, so that a connection which adds itself as it ends starts no second
        # timer.
        self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check_all) if self._connections else None

    def _check_closing(self, connection: Connection) -> None:
        """Abort a closing connection that does not finish.

        A client that reads no data keeps a transport from closing, and uvloop may not report a lost client.
        """
        checks = self._farewell_checks.get(connection, 0) + 1
        self._farewell_checks[connection] = checks
        if checks == FAREWELL_CHECKS:
            connection.abort()
        elif checks > FAREWELL_CHECKS + 1:
            connection.connection_lost(None)

    def _make_room(self) -> None:
        """Abort connections whose responses make no progress, the largest first, until half of the memory is free."""
        stuck = [each for each in self._connections if each.responses.outbox.stands_still]
        stuck.sort(key=lambda each: -each.responses.outbox.waiting_bytes)
        for connection in stuck:
            if self._answers.used <= self._answers.limit // 2:
                return
            waiting = connection.responses.outbox.waiting_bytes
            connection.run_guarded(partial(connection.close_now, "memory_reclaimed", waiting_bytes=waiting))
