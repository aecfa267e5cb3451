"""The connections of the admin API: how many there may be, and which is cut. No request is looked at here.

A failure over one of them costs that one only.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

from aiohttp import web

from raftlog.admin.limits import Limits
from raftlog.admin.listener import Cut, Refused


class Connections:
    """All connections of one server. `accept` is a protocol factory; `sweep` runs as long as the server does."""

    def __init__(self, server: web.Server, limits: Limits, *, secure: bool) -> None:
        self._server = server
        self._limits = limits
        self._secure = secure
        self._busy: set[Any] = set()
        self._quiet_since: dict[Any, float] = {}
        self._arriving: WeakSet[_Arriving] = WeakSet()

    def begin(self, connection: Any) -> None:
        """A request of this connection is being handled."""
        self._busy.add(connection)

    def end(self, connection: Any) -> None:
        """It has been answered."""
        self._busy.discard(connection)
        self._quiet_since[connection] = _now()

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection, for which the quietest goes where there is no room."""
        arriving = self._handshakes()
        if arriving >= self._limits.handshakes:
            return Refused()
        connections = list(self._server.connections)
        if len(connections) + arriving >= self._limits.connections:
            quiet = [each for each in connections if each not in self._busy and each.transport is not None]
            if not quiet:
                return Refused()
            now = _now()
            min(quiet, key=lambda each: self._quiet_since.get(each, now)).force_close()
        newcomer = _Arriving(self)
        if self._secure:
            self._arriving.add(newcomer)
        return newcomer

    def arrived(self, newcomer: _Arriving) -> web.RequestHandler:
        """Return the protocol of a connection whose handshake is over."""
        self._arriving.discard(newcomer)
        return self._server()

    def _handshakes(self) -> int:
        # one that failed is told to nobody: it goes with its last reference, or by its age
        oldest = _now() - self._limits.handshake_s
        return sum(each.since > oldest for each in self._arriving)

    def sweep(self) -> None:
        """Cut each connection that has been quiet for too long. Call it every `Limits.sweep_s`."""
        now = _now()
        connections = list(self._server.connections)
        self._quiet_since = {each: self._quiet_since.get(each, now) for each in connections}
        for connection in connections:
            quiet_s = now - self._quiet_since[connection]
            if connection not in self._busy and quiet_s > self._limits.idle_s:
                Cut(connection.transport).run_guarded(connection.force_close)


class _Arriving(asyncio.Protocol):
    """A new connection; of TLS, during its handshake. aiohttp hears of it when that is over."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.since = _now()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Cut(transport).run_guarded(self._hand_over, transport)

    def _hand_over(self, transport: asyncio.BaseTransport) -> None:
        handler = self._connections.arrived(self)
        transport.set_protocol(handler)
        handler.connection_made(transport)


def _now() -> float:
    return asyncio.get_running_loop().time()
