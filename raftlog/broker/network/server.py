"""A broker's listeners: accepts connections, and owns what they share. It does not know how topics are created.

Ordering law of a stop: listeners close, then connections finish their open produce requests, then the rest closes.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from socket import (
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SO_RCVBUF,
    SO_SNDBUF,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPINTVL,
)
from typing import TYPE_CHECKING, Final

from raftlog.base.config.network import find_listener
from raftlog.base.config.setting import INT_MAX
from raftlog.base.listening import check_listening
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.memory import MemoryBudget, max_bytes
from raftlog.base.places import NodeMachines, host_of
from raftlog.base.principals import NoPrincipal
from raftlog.broker.controller_requests import ask
from raftlog.broker.links.peer_auth import ADMIN_HELLO, peer_secret
from raftlog.broker.links.peer_auth import API_KEY as HANDSHAKE_KEY
from raftlog.broker.long_work.arrivals import Arrivals
from raftlog.broker.long_work.long_turns import LongTurns
from raftlog.broker.long_work.object_memory import ObjectMemory
from raftlog.broker.network.admission import Admission
from raftlog.broker.network.client_quotas import ClientQuotas
from raftlog.broker.network.connection import Connection
from raftlog.broker.network.connection_rates import ConnectionRates
from raftlog.broker.network.counters import ConnectionCounters
from raftlog.broker.network.deadlines import Deadlines
from raftlog.broker.network.fetch_sessions import FetchSessions
from raftlog.broker.network.idle_connections import IdleConnectionWatch
from raftlog.broker.network.request_memory import RequestMemory
from raftlog.broker.producer_ids import ProducerIds
from raftlog.metadata.broker_requests import AllocateProducerIds, ProducerIdBlock
from raftlog.metadata.effective_config import effective_broker_config
from raftlog.metadata.image import Endpoint, MetadataImage
from raftlog.security.acls import ANONYMOUS
from raftlog.security.quotas import Windows

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.base.config.network import Listener
    from raftlog.broker.context import BrokerContext
    from raftlog.broker.network.login import Credentials, Login, LoginFailure
    from raftlog.broker.network.tls import ServerTls
    from raftlog.broker.network.tls_handshake import Accept
    from raftlog.broker.network.token_keys import TokenKeys
    from raftlog.replication.replica_host import ReplicaId

TCP_KEEPIDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0)
"""The latter is the name on macOS."""

KEEPALIVE: Final = (
    (SOL_SOCKET, SO_KEEPALIVE, 1),
    (IPPROTO_TCP, TCP_KEEPIDLE, 20),
    (IPPROTO_TCP, TCP_KEEPINTVL, 5),
    (IPPROTO_TCP, TCP_KEEPCNT, 3),
)
"""A client that vanished silently, or a close lost in a flood of connections, is noticed within a minute."""

SWEEPS_PER_IDLE_TIME: Final = 8
"""An idle connection is closed up to an eighth of connections.max.idle.ms late."""

MAX_SWEEP_S: Final = 30.0
MIN_SWEEP_S: Final = 0.05

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what an operator asks for with an empty host
"""With port 0, IPv4 and IPv6 would get a port each."""

HANDSHAKES_SHARE: Final = 4
"""TLS handshakes under way take a quarter of the files that clients may have open, at most."""

CONTROLLER_CLIENT_REFUSED: Final = "controller_client_refused"
"""The event of a Kafka client that may not use the controllers' listener."""

CERTIFICATE: Final = "certificate"
"""The mechanism of a login by a client's certificate, in the audit log."""

BUFFER_OPTIONS: Final = {
    "socket.send.buffer.bytes": SO_SNDBUF,
    "socket.receive.buffer.bytes": SO_RCVBUF,
}

log = get_logger(__name__)


Dispatch = Callable[[Connection, memoryview], None]
"""Handle the frame of one request, see `broker.dispatch`, which builds on this package."""


class ListenerUnavailable(Exception):
    """Raised if a listener's address cannot be bound; the message has the address and the reason."""


class BrokerServer:
    """All client listeners of one broker. Call `start` before anything else, and `stop` once."""

    def __init__(
        self, broker: BrokerContext, dispatch: Dispatch, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.broker = broker
        self.dispatch = dispatch
        self.config = broker.config
        self.loop = loop or asyncio.get_running_loop()
        self.stopwatch = time.perf_counter if broker.env.threads else self.loop.time
        """Measures the duration of requests; a simulation has only its loop's time."""
        self.nonce = broker.env.unguessable.randbytes
        """Source of the peer handshake's nonces."""
        self.log = LimitedLog(log, self.loop.time)
        """For log lines that clients can trigger at will."""
        self.request_max_bytes = self.config.socket_request_max_bytes
        self.fetch_max_bytes = self.config.fetch_max_bytes
        self.schemas_loaded: set[tuple[int, int]] = set()
        """(API key, version) of requests that were decoded before."""
        self.counters = ConnectionCounters()
        self.nodes = NodeMachines()
        """Addresses of nodes that have authenticated by the cluster secret, at this server or the controller's
        listener."""
        self.tls = self._tls()
        """Keyed by listener, for TLS listeners."""
        self.token_keys: dict[str, TokenKeys] = {}
        """Keyed by listener, for bound listeners with OAUTHBEARER."""
        self.memory = self._budget()
        self.requests = RequestMemory(self.memory.requests)
        self.objects = ObjectMemory(self.memory.objects)
        span = Windows(self.config.quota_window_num, self.config.quota_window_size_seconds)
        self.quotas = ClientQuotas(self.counters, self.loop, span)
        self.admission = Admission(
            self._config_in_force,
            sockets=broker.env.sockets,
            memory=self.memory.connections,
            rates=ConnectionRates(
                self._config_in_force,
                quotas=lambda: self.quotas.in_force,
                clock=self.quotas.clock,
                span=span,
            ),
            nodes=self.nodes,
        )
        self.watch = IdleConnectionWatch(self.loop, self.memory.answers)
        self.deadlines = Deadlines(self.loop)
        self.sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots,
            broker.env.unguessable,
            self.memory.sessions,
        )
        self.arrivals = Arrivals(self.loop, self.stopwatch, handshake_api_key=HANDSHAKE_KEY)
        self.long_turns = LongTurns(self.stopwatch, self.counters.long_turns)
        self.tasks: set[asyncio.Task[None]] = set()
        self.walk_lock = asyncio.Lock()
        """One batch at a time is decompressed to walk its records."""
        self.connections: dict[Connection, None] = {}
        self.endpoints: tuple[Endpoint, ...] = ()
        """The addresses on which the listeners listen, once started; port 0 is resolved."""
        self.refuses_nodes = False
        """Whether a fault cuts this broker off from the other nodes."""
        self._peers: dict[tuple[int, int], Connection] = {}
        """Keyed by broker and by the purpose of the connection."""
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._idle: asyncio.Event = asyncio.Event()
        broker.producer_ids = ProducerIds(self._allocate_producer_ids)

    async def start(
        self, listeners: Iterable[Listener] | None = None, *, serve: bool = True
    ) -> tuple[Endpoint, ...]:
        """Bind and accept; by default all listeners that are not the controller's. Raises ListenerUnavailable.

        Without `serve` clients are refused until `serve()`, as if the port were closed.
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
        self._log_lowered_limit()
        self._schedule_sweep()
        return self.endpoints

    async def serve(self) -> None:
        """Accept clients on the bound addresses. Raises ListenerUnavailable."""
        for server, endpoint in zip(self._servers, self.endpoints, strict=True):
            name, host, port = endpoint.listener, endpoint.host, endpoint.port
            try:
                await server.start_serving()
                check_listening(server)
            except OSError as error:
                reason = error.strerror or str(error)
                raise ListenerUnavailable(f"cannot listen on {name}://{host}:{port}: {reason}") from error
            log.info("listener_started", listener=name, host=host or "*", port=port)

    async def stop(self, *, grace_s: float = 1.0) -> None:
        """Stop accepting, let open produce requests finish for `grace_s` at most, close everything."""
        self._stopped = True
        for server in self._servers:
            server.close()
        for tls in self.tls.values():
            tls.close()
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
        self.watch.close()
        self.deadlines.close()
        self.log.flush()

    def adopt(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a client of the controller's listener (KIP-919), with the limits of all clients."""
        from raftlog.broker.network.controller_clients import why_refused

        reason = "this node stops" if self._stopped else why_refused(self.broker)
        if reason is not None:
            self._refuse_controller_client(transport, reason)
            return
        connection = Connection(self, self.config.controller_listener_names[0])
        transport.pause_reading()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if connection.is_open:
            transport.resume_reading()  # into the connection's own buffer
            _feed(connection, memoryview(received))

    def _refuse_controller_client(self, transport: asyncio.Transport, reason: str) -> None:
        transport.abort()
        self.count_closed(CONTROLLER_CLIENT_REFUSED)
        listener, address = self.config.controller_listener_names[0], transport.get_extra_info("peername")
        self.log.warning(
            CONTROLLER_CLIENT_REFUSED, listener=listener, address=host_of(address), reason=reason
        )

    async def _bind(self, listener: Listener) -> Endpoint:
        def accept() -> Connection:
            return Connection(self, listener.name)

        begin = (await self.secure(listener))(accept)
        await self._open_keys(listener)
        try:
            server = await self.loop.create_server(
                begin,
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

    async def secure(self, listener: Listener) -> Callable[[Accept], Accept]:
        """Return the wrapper that puts a listener's TLS, if it has it, before its protocols.

        Raises ListenerUnavailable.
        """
        tls = self.tls.get(listener.name)
        if tls is None:
            return _accept_plain
        from raftlog.broker.links.tls import TlsUnusable

        try:
            await tls.open(self.broker.env.offload)
        except TlsUnusable as error:
            raise ListenerUnavailable(f"cannot secure {listener}: {error}") from error
        return tls.accepting

    async def _open_keys(self, listener: Listener) -> None:
        """Read the keys for logins by OAUTHBEARER. Raises ListenerUnavailable."""
        oauth = self.config.oauth.get(listener.name)
        if oauth is None:
            return
        try:
            from raftlog.broker.network.token_keys import KeysUnavailable, TokenKeys
        except ImportError as error:
            package = str(error.name).partition(".")[0]
            why = f"OAUTHBEARER needs the package {package}: pip install {package} (the extra oauth)"
            raise ListenerUnavailable(f"cannot secure {listener}: {why}") from None
        keys = TokenKeys(oauth, self.broker.env, self.loop.time)
        try:
            await keys.open()
        except KeysUnavailable as error:
            setting = oauth.names["oauth_jwks_url"]
            raise ListenerUnavailable(f"cannot secure {listener}: {setting}: {error}") from error
        self.token_keys[listener.name] = keys

    async def keep_certificates(self) -> None:
        """Load new certificates from changed files for as long as this runs."""
        if self.tls:
            from raftlog.broker.network.tls import keep_fresh

            await keep_fresh(self.tls.values(), self.broker.env.offload)

    # -- logins ---------------------------------------------------------------------------------------------------

    def login_for(self, listener: str) -> Login | None:
        """Return the login of a new connection, or None if clients need no login."""
        logins = self.config.logins.get(listener)
        if logins is None:
            return None
        from raftlog.broker.network.login import Login

        keys = self.token_keys.get(listener)
        if keys is None:
            return Login(logins, self._credentials)
        from raftlog.broker.network.bearer_exchange import BearerExchange

        return Login(logins, self._credentials, partial(BearerExchange, keys))

    @cached_property
    def _credentials(self) -> Credentials:
        from raftlog.broker.network.login import Credentials
        from raftlog.security.scram import CredentialLookup

        broker = self.broker
        secret = hashlib.sha256(b"made-up credentials " + self.config.cluster_secret).digest()
        return Credentials(
            image=broker.image,
            token_key=broker.token_key,
            wall_clock_ms=broker.env.ages.latest_ms,
            secret=secret,
            lookup=CredentialLookup(secret),
            nonce=lambda: self.nonce(24).hex(),
        )

    def take_certificate(self, connection: Connection) -> None:
        """Set the client's principal from its certificate, if there is no other login."""
        if connection.tls_session is None or connection.login is not None:
            return
        try:
            connection.principal = self.tls[connection.listener].principal_of(connection.tls_session)
            if connection.principal != ANONYMOUS:
                self.broker.audit.login_succeeded(CERTIFICATE, **connection.describe())
        except NoPrincipal as error:
            from raftlog.broker.network.login import LoginFailure

            self.login_failed(connection, LoginFailure(CERTIFICATE, "no_principal", str(error)))
            connection.abort()

    def login_failed(self, connection: Connection, failure: LoginFailure) -> None:
        """Count a failed login and log the reason; the caller closes the connection."""
        mechanism, reason, advice = failure
        self.count_closed("login_failed")
        self.counters.failed_logins[mechanism, reason] += 1
        self.broker.audit.login_failed(mechanism, reason, advice=advice, **connection.describe())

    def end_logins(self, old: MetadataImage, new: MetadataImage) -> None:
        """Close the connections that logged in with a delegation token that no longer exists."""
        if old.tokens is new.tokens:
            return
        for connection in tuple(self.connections):
            token_id = None if connection.login is None else connection.login.token_id
            if token_id is not None and token_id not in new.tokens:
                connection.close_now("delegation_token_gone", token_id=token_id)

    # -- connections ----------------------------------------------------------------------------------------------

    def connection_opened(self, connection: Connection) -> None:
        """Register a connection, and give it a place."""
        counters = self.counters
        counters.connections += 1
        connection.number = counters.connections
        counters.open_connections += 1
        self.connections[connection] = None
        self._idle.clear()
        self.admission.enter(connection)

    def connection_closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.counters.open_connections -= 1
        self.admission.remove(connection)
        self._end_sessions(connection)
        if connection.peer is not None:
            key = connection.peer.broker_id, connection.purpose
            if self._peers.get(key) is connection:
                del self._peers[key]
        if not self.connections:
            self._idle.set()

    def count_closed(self, event: str) -> None:
        """Count a closed connection, by the log event of the reason."""
        self.counters.closed_by_broker[event] += 1

    def tune(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket's options. Buffer sizes are set only if configured: the kernel's own tuning is better."""
        socket = transport.get_extra_info("socket")
        if socket is None:
            return
        for level, option, value in KEEPALIVE:
            socket.setsockopt(level, option, value)
        for name, option in BUFFER_OPTIONS.items():
            size = int(self.config.given.get(name, -1))
            if size > 0:
                socket.setsockopt(SOL_SOCKET, option, size)

    def send_clients_elsewhere(self) -> None:
        """Close the connections of clients, so that they look for brokers with newer metadata than this broker's.

        Their fetch sessions end, too: an incremental response leaves out unchanged partitions, so it would not show
        the change.
        """
        for connection in tuple(self.connections):
            if connection.peer is None:
                connection.run_guarded(connection.close, "controller_session_lost")
        for session in tuple(self.sessions):
            if not session.replica:
                self.sessions.end(session.session_id)

    def _end_sessions(self, connection: Connection) -> None:
        for session_id in connection.session_ids:
            self.sessions.end(session_id)
        if self.broker.made_share_partitions is not None:
            self.broker.made_share_partitions.connection_closed(connection)

    # -- other nodes ----------------------------------------------------------------------------------------------

    def peer_secret(self, connection: Connection) -> bytes:
        """Return the secret that another broker proves on a connection."""
        session = connection.tls_session
        shown = None if session is None else self.tls[connection.listener].shown_certificate(session)
        return peer_secret(self.config.cluster_secret, self.broker.image(), shown)

    def take_peer(self, connection: Connection, peer: ReplicaId, purpose: int) -> bool:
        """Keep only another broker's newest connection for each purpose. Return False if this connection is older.

        Bytes of an abandoned connection may still arrive after those of the next: the kernel sends what it has taken.
        A fetch offset that comes so late could undo newer progress, or cover records truncated since. A late marker
        could end a newer transaction.
        """
        if purpose == ADMIN_HELLO:
            self._take_node(connection)
            return True
        before = self._peers.get((peer.broker_id, purpose))
        if before is not None and before.number > connection.number:
            return False
        self._peers[peer.broker_id, purpose] = connection
        if before is not None:
            self._end_sessions(before)  # now: a fetch that waits must not read again
            before.abort()
        self._take_node(connection)
        return True

    def refuse_nodes(self, refused: bool) -> None:
        """Close the connections of other nodes, and refuse new ones, or accept them again: a fault."""
        self.refuses_nodes = refused
        for connection in tuple(self.connections):
            if connection.peer is not None and not self.takes_node(connection.purpose):
                connection.abort()

    def takes_node(self, purpose: int) -> bool:
        """Return whether other nodes may connect for a purpose. Admin APIs ask for people, so that they may always."""
        return purpose == ADMIN_HELLO or not self.refuses_nodes

    def _take_node(self, connection: Connection) -> None:
        """Release a connection's place among the strangers, since its other end has authenticated as a node."""
        self.nodes.add(connection.peer_host)
        self.admission.admit_broker(connection)

    # -- limits and sweeps ----------------------------------------------------------------------------------------

    def _budget(self) -> MemoryBudget:
        config = self.config
        return MemoryBudget(
            max_bytes(config.raftlog_memory_max_bytes, self.broker.env.memory_bytes),
            requests=config.queued_max_request_bytes,
            answers=config.raftlog_answers_max_bytes,
        )

    def _tls(self) -> dict[str, ServerTls]:
        config, controllers = self.config, set(self.config.controller_listener_names)
        has_own = find_listener(config.listeners, config.controller_listener_names) is not None
        served = config.tls.keys() - (set() if has_own else controllers)
        if not served:
            return {}
        from raftlog.broker.network.tls import ServerTls
        from raftlog.broker.network.tls_handshake import HandshakePlaces

        most = min(config.raftlog_tls_handshakes_max, max(1, self.broker.env.sockets // HANDSHAKES_SHARE))
        of_clients = HandshakePlaces(most, self.log, self.count_closed)
        of_nodes = HandshakePlaces(most, self.log, self.count_closed, self.nodes)
        return {
            name: ServerTls(
                config.tls[name],
                self.log,
                self.count_closed,
                of_nodes if name in controllers else of_clients,
                is_for_nodes=name in controllers,
            )
            for name in sorted(served)
        }

    def _config_in_force(self) -> NodeConfig:
        return effective_broker_config(self.config, self.broker.image())

    def _log_lowered_limit(self) -> None:
        most, wanted = self.admission.most_strangers, self._config_in_force().max_connections
        if most < wanted < INT_MAX:
            log.warning(
                "max_connections_lowered",
                configured=wanted,
                in_force=most,
                reason="the process may not open more files, or raftlog.memory.max.bytes has no room for more",
            )

    def _schedule_sweep(self) -> None:
        idle_s = self.config.connections_max_idle_ms / 1000
        interval = min(idle_s / SWEEPS_PER_IDLE_TIME, MAX_SWEEP_S) if idle_s >= 0 else MAX_SWEEP_S
        interval = max(interval, MIN_SWEEP_S)
        quiet = int(idle_s / interval) if idle_s >= 0 else 0
        self._sweep_timer = self.loop.call_later(interval, self._sweep, max(1, quiet) if idle_s >= 0 else 0)

    def _sweep(self, max_quiet_sweeps: int) -> None:
        for connection in tuple(self.connections):
            connection.run_guarded(partial(connection.sweep, max_quiet_sweeps=max_quiet_sweeps))
        self.log.flush()
        self.broker.audit.flush()
        env = self.broker.env
        if env.threads:
            env.collect_garbage()  # here, since the loop may own what it frees
            env.offload(env.trim_memory)  # after a burst it takes tens of milliseconds
        self._schedule_sweep()

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIds(self.config.node_id, self.broker.broker_epoch())
        return await ask(self.broker, request, ProducerIdBlock)


def _accept_plain(accept: Accept) -> Accept:
    return accept


def _feed(connection: Connection, received: memoryview) -> None:
    """Pass bytes that another protocol has read to a connection."""
    while received and connection.is_open:
        window = connection.get_buffer(len(received))
        size = min(len(received), len(window))
        window[:size] = received[:size]
        connection.buffer_updated(size)
        received = received[size:]


def _bound_port(server: asyncio.Server) -> int | None:
    return next((socket.getsockname()[1] for socket in server.sockets), None)
