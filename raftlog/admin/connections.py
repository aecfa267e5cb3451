"""The connections of the admin API: their limit, and which to close. Requests are handled elsewhere.

The newest is always accepted. Beyond the limit the address with the most connections loses the longest idle, else the
oldest. A connection with a probe in progress is closed last, so that neighbours cannot lock out orchestrators. A
failure of a connection costs only that connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from logging import Logger
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import _ErrInfo

from raftlog.admin.errors import INVALID, Error
from raftlog.admin.limits import Limits
from raftlog.admin.listener import Cut
from raftlog.base.places import Places, host_of

FRESH_S: Final = 1.0
"""A younger connection does not count as idle: its client may be about to send a request."""


REASON_CHARACTERS: Final = 200
"""The maximum length of aiohttp's reason in an error message."""


class _Connection(web.RequestHandler):
    """aiohttp's connection, which answers what is no HTTP request as the API answers any other failure."""

    __slots__ = ("_left",)

    def __init__(self, server: web.Server, left: Callable[[_Connection], None], **settings: Any) -> None:
        """`left` is called once the connection has ended."""
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._left = left

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free what the client sent. Each error in the queue holds up to a quarter of a megabyte of it."""
        super().connection_lost(exc)
        for message, _ in self._messages:
            if isinstance(message, _ErrInfo):
                _free_frames(message.exc)
        self._messages.clear()
        self._left(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that could not be read. The connection ends with it."""
        response = super().handle_error(request, status, exc, message)
        _free_frames(exc)
        if status == HTTPStatus.BAD_REQUEST:
            assert isinstance(response, web.Response)
            response.content_type = "application/json"
            response.body = msgspec.json.encode(Error(INVALID, _fault(exc, message)))
        return response


def _free_frames(exc: BaseException | None) -> None:
    """Break the cycle from an error to the frames that it went through, which refer to it and to what was received."""
    if exc is not None:
        exc.__traceback__ = None


def _fault(exc: BaseException | None, message: str | None) -> str:
    """Return what is wrong, without the long line itself."""
    if isinstance(exc, LineTooLong):
        return "the first line or a header of the request is too long"
    reason = (message or "").strip().partition("\n")[0][:REASON_CHARACTERS]
    return f"this is no valid HTTP request: {reason}"


class Connections:
    """All connections of one server. `accept` is a protocol factory; `sweep` runs as long as the server does."""

    def __init__(self, server: web.Server, limits: Limits, *, logger: Logger) -> None:
        self._server = server
        self._logger = logger
        self._limits = limits
        self._busy: set[Any] = set()
        self._probing: set[Any] = set()
        self._quiet_since: dict[Any, float] = {}
        self._places: Places[Any] = Places(limits.connections, _cut, choose=self._choose)

    def begin(self, connection: Any, *, is_probe: bool = False) -> None:
        """Note that a request of this connection is being handled. A probe is short, and shows whether the
        node lives.
        """
        self._busy.add(connection)
        if is_probe:
            self._probing.add(connection)

    def end(self, connection: Any) -> None:
        """Note that the request has been answered."""
        self._busy.discard(connection)
        self._probing.discard(connection)
        self._quiet_since[connection] = _now()

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        return _Arriving(self)

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        """Have aiohttp go on with a new connection, closing another if there is no room."""
        handler = _Connection(
            self._server,
            self._remove,
            access_log=None,
            auto_decompress=False,  # aiohttp would unpack 32 MiB at a time on the loop
            logger=self._logger,
            keepalive_timeout=self._limits.idle_s,
            max_line_size=self._limits.line_bytes,
            max_field_size=self._limits.line_bytes,
            max_headers=self._limits.headers,
        )
        transport.set_protocol(handler)
        handler.connection_made(transport)
        self._quiet_since[handler] = _now()
        self._places.enter(handler, host_of(transport.get_extra_info("peername")))

    def _remove(self, connection: Any) -> None:
        self._places.leave(connection)
        self._busy.discard(connection)
        self._probing.discard(connection)
        self._quiet_since.pop(connection, None)

    def sweep(self) -> None:
        """Cut each connection that has been quiet for too long. Call it every `Limits.sweep_s`."""
        now = _now()
        connections = list(self._server.connections)
        self._quiet_since = {each: self._quiet_since.get(each, now) for each in connections}
        for connection in connections:
            quiet_s = now - self._quiet_since[connection]
            if connection not in self._busy and quiet_s > self._limits.idle_s:
                Cut(connection.transport).run_guarded(connection.force_close)

    def _choose(self, oldest_first: Sequence[Any]) -> Any:
        """Return the connection of an address to close.

        Idle connections first, except for new or just answered connections: their next request may be in flight.
        """
        now = _now()
        since = {each: self._quiet_since.get(each, now) for each in oldest_first if each not in self._busy}
        quietest = min(since, key=since.__getitem__, default=None)
        if quietest is not None and since[quietest] < now - FRESH_S:
            return quietest
        busy = (each for each in oldest_first if each in self._busy and each not in self._probing)
        return next(busy, oldest_first[0])


class _Arriving(asyncio.Protocol):
    """A new connection. Its address is not known before it is made."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Cut(transport).run_guarded(self._connections.arrived, transport)


def _cut(connection: Any) -> None:
    """Close at once: with a reader that does not read, a graceful close would keep the transport."""
    transport = connection.transport
    connection.force_close()
    Cut(transport).abort()


def _now() -> float:
    return asyncio.get_running_loop().time()
