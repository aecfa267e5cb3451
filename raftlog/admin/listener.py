"""The admin API's port. The API itself, and aiohttp with it, is imported when the first client sends data.

Importing takes a few tenths of a second and a quarter of a node's memory, and most nodes never serve it. A thread does
it, so that the loop stays free; clients wait meanwhile. With TLS or tokens the API is imported at once, since these can
be faulty, and are set up to be used. It must not know aiohttp.
"""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from raftlog.admin.limits import Limits
from raftlog.admin.view import Accept, NodeView
from raftlog.base.guard import Guard
from raftlog.base.listening import check_listening
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.places import Places, host_of

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig

BACKLOG: Final = 64
SETTLED_S: Final = 1.0
"""Seconds after the start in which samples begin: a start waits for no import that others do not wait for."""

log = get_logger("admin")
limited = LimitedLog(log, time.monotonic)
"""For events that any client can cause."""


class AdminUnavailable(Exception):
    """The admin listener cannot be opened; the message says which and why."""


class TokensUnusable(ValueError):
    """A tokens file that cannot be used; the message names the file, the line and the rule."""


class Door(NamedTuple):
    """A port that speaks HTTP: the admin API's, or the schema registry's."""

    setting: str
    key: str
    """The field of the setting in a node's config."""
    module: str
    """It has the function `make_api(node, limits)`, and imports aiohttp."""
    event: str
    """Of the line in the log when it listens."""

    def address(self, config: NodeConfig) -> tuple[str, int] | None:
        """Return where it listens; None: nowhere."""
        found: tuple[str, int] | None = getattr(config, self.key)
        return found


ADMIN_DOOR: Final = Door(
    "raftlog.admin.listener", "admin_listener", "raftlog.admin.server", "admin_listener_started"
)
SCHEMA_DOOR: Final = Door(
    "raftlog.schema.registry.listener",
    "schema_registry_listener",
    "raftlog.admin.schema_registry.server",
    "schema_registry_listener_started",
)


class Api(Protocol):
    """The API behind the port; see `raftlog.admin.server.AdminServer`."""

    address: tuple[str, int]

    async def start(self, listening: asyncio.Server | None = None, /) -> None:
        """Open the port, or serve what has opened it. Raises AdminUnavailable, TokensUnusable."""

    async def stop(self) -> None:
        """End all requests."""

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""


async def listen(accept: Accept, address: tuple[str, int], *, setting: str) -> asyncio.Server:
    """Open the port. Raises AdminUnavailable."""
    host, port = address
    try:
        server = await asyncio.get_running_loop().create_server(accept, host, port, backlog=BACKLOG)
        check_listening(server)
        return server
    except OSError as error:
        reason = error.strerror or str(error)
        raise AdminUnavailable(f"cannot listen on {host}:{port} ({setting}): {reason}") from error


class Cut(Guard):
    """A connection's transport, if any, to be closed after a failure of the connection."""

    def __init__(self, transport: asyncio.BaseTransport | None) -> None:
        self._transport = transport

    def crash(self, what: str) -> None:
        self.abort()
        log.exception("admin_connection_crashed", what=what)

    def abort(self) -> None:
        if self._transport is not None:
            cast(asyncio.Transport, self._transport).abort()


class AdminListener(Guard):
    """`start` once, `stop` once. `server` is the API, once it is imported."""

    def __init__(self, node: NodeView, limits: Limits | None = None, *, door: Door = ADMIN_DOOR) -> None:
        self._node = node
        self._door = door
        self._limits = limits or Limits()
        self._listening: asyncio.Server | None = None
        self._importing: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None
        self.server: Api | None = None
        self.early: Places[Early] = Places(self._limits.connections, lambda each: Cut(each.transport).abort())
        """Connections that the API does not have yet."""
        self.address = ("", 0)

    async def start(self) -> None:
        """Listen. Raises AdminUnavailable, TokensUnusable."""
        config = self._node.config
        address = self._door.address(config)
        assert address is not None, "whoever starts this has looked"
        if config.admin_tokens_file or config.admin_tls is not None:
            await self._import(None)
            assert self.server is not None
            self.address = self.server.address
        else:
            self._listening = await listen(self._accept, address, setting=self._door.setting)
            self.address = self._listening.sockets[0].getsockname()[:2]
        if self._door is ADMIN_DOOR:
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(SETTLED_S, self.guarded(self.keep_samples))
        log.info(
            self._door.event,
            host=self.address[0],
            port=self.address[1],
            tokens=bool(config.admin_tokens_file),
            tls=config.admin_tls is not None,
        )

    async def stop(self) -> None:
        for work in (self._importing, self._looking, self._settling, self._node.samples):
            if work is not None:
                work.cancel()
        if self._listening is not None:
            self._listening.close()
        self.abort()
        if self.server is not None:
            await self.server.stop()

    def crash(self, what: str) -> None:
        """Handle a failed import: close its clients, keep the node running, and retry with the next client."""
        self._importing = None
        self.abort()
        limited.exception("admin_api_failed", what=what)

    def abort(self) -> None:
        for each in self.early:
            Cut(each.transport).abort()

    def keep_samples(self) -> None:
        """Have the node keep samples from now on, used or not."""
        from raftlog.admin.samples import Samples

        if self._node.samples is None:
            self._node.samples = Samples(self._node)
            self._node.samples.start()

    def open_api(self) -> None:
        """Have the API imported, unless that is under way or done."""
        if self._importing is None:
            work = self._import(self._listening)
            self._importing = asyncio.get_running_loop().create_task(self.guarded_task(work))

    async def open_registry(self) -> Any:
        """Return the schema registry behind this port, None if it cannot be imported. The first use imports it."""
        if self.server is None:
            self.open_api()
            assert self._importing is not None, "it is under way"
            await asyncio.shield(self._importing)
        return self._node.registry

    async def _import(self, listening: asyncio.Server | None) -> None:
        module = await asyncio.to_thread(import_module, self._door.module)
        server: Api = module.make_api(self._node, self._limits)
        await server.start(listening)
        if self._door is ADMIN_DOOR:
            self.keep_samples()
        self.server = server
        for each in self.early:
            self.early.leave(each)
            Cut(each.transport).run_guarded(each.hand_over, server.accept())

    def _accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        if self.server is not None:
            return self.server.accept()
        if self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(self._limits.sweep_s, self.guarded(self._open_for_the_silent))
        return Early(self)

    def _open_for_the_silent(self) -> None:
        """Import the API for silent connections, so that it closes them in time."""
        self._looking = None
        if self.early:
            self.open_api()


class Early(asyncio.Protocol):
    """A connection from before the import of the API. Only its first piece is read."""

    def __init__(self, listener: AdminListener) -> None:
        self._listener = listener
        self._received = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Cut(transport).run_guarded(self._begin, transport)

    def _begin(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._listener.early.enter(self, host_of(transport.get_extra_info("peername")))

    def data_received(self, data: bytes) -> None:
        Cut(self.transport).run_guarded(self._hold, data)

    def _hold(self, data: bytes) -> None:
        assert self.transport is not None, "it has been made"
        self._received += data
        self.transport.pause_reading()
        self._listener.open_api()

    def connection_lost(self, exc: Exception | None) -> None:
        Cut(self.transport).run_guarded(self._listener.early.leave, self)

    def hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Let the API's protocol go on with this connection."""
        transport = self.transport
        assert transport is not None, "it has been made"
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received and not transport.is_closing():
            transport.resume_reading()  # before the protocol may pause it again, which has to stand
            cast(asyncio.Protocol, transport.get_protocol()).data_received(self._received)
