"""A broker's listeners: accepts connections, and owns what they share. Knows nothing of how topics come to be.

Ordering law of the end: listeners close, then connections finish their open produce requests, then the rest goes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from socket import SO_KEEPALIVE, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import TYPE_CHECKING, Final

from raftlog.base.log import get_logger
from raftlog.broker.asking import ask
from raftlog.broker.connection import Connection
from raftlog.broker.counters import ConnectionCounters
from raftlog.broker.deadlines import Deadlines
from raftlog.broker.long_turns import LongTurns
from raftlog.broker.producer_ids import ProducerIds
from raftlog.broker.sessions import FetchSessions
from raftlog.metadata.image import Endpoint
from raftlog.metadata.requests import AllocateProducerIds, ProducerIdBlock

if TYPE_CHECKING:
    from raftlog.base.config_network import Listener
    from raftlog.broker.context import BrokerContext
    from raftlog.replication.host import ReplicaId

SWEEPS_PER_IDLE_TIME: Final = 8
"""An idle connection is closed up to an eighth of connections.max.idle.ms late."""

SWEEP_AT_MOST_S: Final = 30.0
SWEEP_AT_LEAST_S: Final = 0.05

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what an operator asks for with an empty host
"""With port 0, IPv4 and IPv6 would get a port each."""

BUFFER_OPTIONS: Final = {
    "socket.send.buffer.bytes": SO_SNDBUF,
    "socket.receive.buffer.bytes": SO_RCVBUF,
}

log = get_logger(__name__)


class ListenerUnavailable(Exception):
    """A listener's address cannot be bound; the message says which and why."""


class BrokerServer:
    """All client listeners of one broker. `start` before anything else, `stop` once."""

    def __init__(self, broker: BrokerContext, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.broker = broker
        self.config = broker.config
        self.loop = loop or asyncio.get_running_loop()
        self.stopwatch = time.perf_counter if broker.env.threads else self.loop.time
        """Seconds that requests take; a simulation has no other time than its loop's."""
        self.nonce = broker.env.unguessable.randbytes
        """Source of the peer handshake's nonces."""
        self.request_max_bytes = self.config.socket_request_max_bytes
        self.fetch_max_bytes = self.config.fetch_max_bytes
        self.deadlines = Deadlines(self.loop)
        self.sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots, broker.env.unguessable
        )
        self.counters = ConnectionCounters()
        self.long_turns = LongTurns(self.stopwatch, self.counters.long_turns)
        self.tasks: set[asyncio.Task[None]] = set()
        self.key_looks = asyncio.Lock()
        """One batch at a time is decompressed to walk its records."""
        self.connections: dict[Connection, None] = {}
        self.endpoints: tuple[Endpoint, ...] = ()
        """Where the listeners really listen, once started; port 0 is resolved."""
        self._per_host: Counter[str] = Counter()
        self._peers: dict[tuple[int, int], Connection] = {}
        """By broker and by what the connection is for."""
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._idle: asyncio.Event = asyncio.Event()
        broker.producer_ids = ProducerIds(self._allocate_producer_ids)

    async def start(
        self, listeners: Iterable[Listener] | None = None, *, serve: bool = True
    ) -> tuple[Endpoint, ...]:
        """Bind and accept; by default all listeners that are not the controller's. Raises ListenerUnavailable.

        Without `serve` clients are refused until `serve()`, as if nobody listened.
        """
        if listeners is None:
            controllers = self.config.controller_listener_names
            listeners = [each for each in self.config.listeners if each.name not in controllers]
        try:
            self.endpoints = tuple([await self._bind(listener) for listener in listeners])
            if serve:
                await self.serve()
        except ListenerUnavailable:
            await self.stop(grace_s=0)
            raise
        self._schedule_sweep()
        return self.endpoints

    async def serve(self) -> None:
        """Accept clients on what was bound. Raises ListenerUnavailable."""
        for server, endpoint in zip(self._servers, self.endpoints, strict=True):
            name, host, port = endpoint.listener, endpoint.host, endpoint.port
            try:
                await server.start_serving()
            except OSError as error:
                reason = error.strerror or str(error)
                raise ListenerUnavailable(f"cannot listen on {name}://{host}:{port}: {reason}") from error
            log.info("listener_started", listener=name, host=host or "*", port=port)

    async def stop(self, *, grace_s: float = 1.0) -> None:
        """Stop accepting, let open produce requests finish for `grace_s` at most, close everything."""
        self._stopped = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections and grace_s > 0:
            try:
                await asyncio.wait_for(self._idle.wait(), grace_s)
            except TimeoutError:
                pass
        for connection in tuple(self.connections):
            connection.abort()
        for task in tuple(self.tasks):
            task.cancel()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.deadlines.close()

    def adopt(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a client that came to the controller's listener (KIP-919), with the limits of all clients."""
        if self._stopped:
            transport.abort()
            return
        Connection(self, self.config.controller_listener_names[0]).take_over(transport, received)

    async def _bind(self, listener: Listener) -> Endpoint:
        def accept() -> Connection:
            return Connection(self, listener.name)

        try:
            server = await self.loop.create_server(
                accept,
                listener.host or (None if listener.port else ANY_IPV4),
                listener.port,
                backlog=self.config.socket_listen_backlog_size,
                start_serving=False,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenerUnavailable(f"cannot listen on {listener}: {reason}") from error
        self._servers.append(server)
        port = _bound_port(server) or listener.port
        return Endpoint(listener.name, listener.host, port, listener.security_protocol)

    # Called by connections.

    def connection_opened(self, connection: Connection) -> None:
        """Note a connection, and close it if there are too many."""
        counters, host = self.counters, connection.peer_host
        counters.connections += 1
        connection.number = counters.connections
        counters.open_connections += 1
        self.connections[connection] = None
        self._per_host[host] += 1
        self._idle.clear()
        if self.counters.open_connections > self.config.max_connections:
            limit = "max.connections"
        elif self._per_host[host] > self.config.max_connections_per_ip:
            limit = "max.connections.per.ip"
        else:
            return
        counters.refused += 1
        connection.close("connection_refused", limit=limit)

    def take_peer(self, connection: Connection, peer: ReplicaId, lane: int) -> bool:
        """Have another broker's newest connection in a lane be its only one there; False: this one is older than that.

        Who gave a connection up may still be heard on it, later than on the next: the kernel sends what it has taken.
        A fetch offset that comes so late takes back what was proved since, or proves what was cut since; a marker
        ends a transaction that began since.
        """
        before = self._peers.get((peer.broker_id, lane))
        if before is not None and before.number > connection.number:
            return False
        self._peers[peer.broker_id, lane] = connection
        if before is not None:
            self._end_sessions(before)  # now: a fetch that waits must not read once more
            before.abort()
        return True

    def tune(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket's options. Buffer sizes only if the operator gave them: the kernel's own tuning is better."""
        socket = transport.get_extra_info("socket")
        if socket is None:
            return
        socket.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        for name, option in BUFFER_OPTIONS.items():
            size = int(self.config.given.get(name, -1))
            if size > 0:
                socket.setsockopt(SOL_SOCKET, option, size)

    def connection_closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.counters.open_connections -= 1
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]
        self._end_sessions(connection)
        if connection.peer is not None:
            place = connection.peer.broker_id, connection.lane
            if self._peers.get(place) is connection:
                del self._peers[place]
        if not self.connections:
            self._idle.set()

    def _end_sessions(self, connection: Connection) -> None:
        for session_id in connection.session_ids:
            self.sessions.end(session_id)

    # Inside.

    def _schedule_sweep(self) -> None:
        idle_s = self.config.connections_max_idle_ms / 1000
        interval = min(idle_s / SWEEPS_PER_IDLE_TIME, SWEEP_AT_MOST_S) if idle_s >= 0 else SWEEP_AT_MOST_S
        interval = max(interval, SWEEP_AT_LEAST_S)
        quiet = int(idle_s / interval) if idle_s >= 0 else 0
        self._sweep_timer = self.loop.call_later(interval, self._sweep, max(1, quiet) if idle_s >= 0 else 0)

    def _sweep(self, max_quiet_sweeps: int) -> None:
        for connection in tuple(self.connections):
            connection.sweep(max_quiet_sweeps=max_quiet_sweeps)
        self._schedule_sweep()

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIds(self.config.node_id, self.broker.broker_epoch())
        return await ask(self.broker, request, ProducerIdBlock)


def _bound_port(server: asyncio.Server) -> int | None:
    return next((socket.getsockname()[1] for socket in server.sockets), None)
