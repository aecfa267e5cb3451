"""Admission of connections: places for clients, places for brokers, and a hall where brokers can authenticate.

Every new connection is a stranger. Strangers have at most max.connections places, fewer where the process may open
fewer files or has less memory. An address and a listener may have fewer places. A broker that proves the cluster
secret leaves the strangers and counts nowhere, so clients never take a broker's place. `connection_rates` says how
fast strangers may come.

A stranger without a place waits in the hall, which handles only the handshake of brokers, in short frames. It is
refused at its first other frame, after HALL_CHECKS seconds, or if a newer stranger needs its place among HALL_PLACES
(`base.places`). Kafka has no hall: it exempts the inter-broker listener from max.connections.

A SASL listener has a gate: before its login, a client may only get API versions, log in, or authenticate as a broker.
Any other request ends its connection, and so does a login that takes too long. Its frames are short until then, so
that strangers cannot fill a broker's memory (CVE-2022-34917).
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from raftlog.base.memory import Account
from raftlog.base.places import NodeMachines, Places
from raftlog.broker.links import peer_auth
from raftlog.broker.network.peer_handshake import dispatch_in_hall
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import ANONYMOUS
from raftlog.security.quotas import CONNECTION

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.broker.network.connection import Connection
    from raftlog.broker.network.connection_rates import ConnectionRates

CONNECTION_BYTES: Final = 4 * 1024
"""The maximum cost of an idle connection, in our memory and the transport's; half of it was measured."""

TLS_CONNECTION_BYTES: Final = 64 * 1024
"""The same over TLS. Its session and buffers take 50 KiB."""

HALL_PLACES: Final = 256
HALL_CHECKS: Final = 3
"""Seconds that a connection may stay in the hall, in checks of `idle_connections`."""

LOGIN_CHECKS: Final = 30
"""Seconds that a connection may stay without a login, in checks of `idle_connections`."""

_OPEN_APIS: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, peer_auth.API_KEY}
)


class ConnectionStanding(Enum):
    """The kind of client that a connection counts as."""

    STRANGER = "a client, or a broker that has yet to prove it"
    IN_HALL = "beyond the places of strangers"
    BROKER = "proved the cluster secret"
    GONE = "closed"


def dispatch_before_login(connection: Connection, frame: memoryview) -> None:
    """Handle a request that belongs to a login; end the connection for any other. Never raises."""
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    if api_key in _OPEN_APIS:
        connection.server.dispatch(connection, frame)
    else:
        connection.close("request_before_login", api_key=api_key)


class Gate:
    """The gate of one connection.

    It does not refer to the connection, or only the garbage collector could free both.
    """

    __slots__ = ("_checks", "_timer")

    def __init__(self) -> None:
        self._checks = 0
        """Checks since the connection came without a login."""
        self._timer: TimerHandle | None = None
        """Closes the gate at the end of a login."""

    def open(self, connection: Connection) -> None:
        """Let the connection handle all requests."""
        connection.dispatch = connection.server.dispatch
        self._checks = 0
        connection.limit_frames(connection.server.request_max_bytes)

    def open_for(self, connection: Connection, lifetime_ms: int) -> None:
        """Open it for the lifetime of a login; 0 means for ever."""
        self.open(connection)
        self.cancel()
        if lifetime_ms and connection.is_open:
            self._timer = connection.server.loop.call_later(
                lifetime_ms / 1000, connection.guarded(self.close, connection)
            )

    def close(self, connection: Connection) -> None:
        """Restrict the connection to requests that belong to a login."""
        server = connection.server
        connection.dispatch = dispatch_before_login
        connection.limit_frames(min(server.request_max_bytes, server.config.sasl_server_max_receive_size))
        server.watch.add(connection)

    def enter_hall(self, connection: Connection) -> None:
        """Restrict the connection to the handshake of brokers."""
        connection.dispatch = dispatch_in_hall
        connection.limit_frames(peer_auth.FRAME_BYTES)
        connection.server.watch.add(connection)

    def check_login(self, connection: Connection) -> None:
        """End the connection if its login takes too long."""
        if connection.inbox.is_muted:
            return  # a rate of new connections makes it wait, longer than a login may take
        if connection.dispatch is dispatch_before_login and connection.principal == ANONYMOUS:
            self._checks += 1
            if self._checks > LOGIN_CHECKS:
                connection.close_now("login_too_slow")

    def cancel(self) -> None:
        """Cancel the expiry of a login."""
        if self._timer is not None:
            self._timer.cancel()


class Admission:
    """The places of one broker's listeners, all together."""

    __slots__ = (
        "_checks",
        "_config_in_force",
        "_hall",
        "_memory",
        "_of_strangers",
        "_per_host",
        "_per_listener",
        "_possible",
        "_rates",
        "brokers",
        "strangers",
    )

    def __init__(
        self,
        config_in_force: Callable[[], NodeConfig],
        *,
        sockets: int,
        memory: Account,
        rates: ConnectionRates,
        nodes: NodeMachines,
    ) -> None:
        """`sockets`: how many clients the process has file descriptors for.

        `nodes` are the addresses that nodes connected from before.
        """
        self._config_in_force = config_in_force
        self._possible = min(sockets, memory.limit // CONNECTION_BYTES)
        self._memory = memory
        self._rates = rates
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._hall: Places[Connection] = Places(HALL_PLACES, self.refuse, nodes=nodes)
        self._checks: dict[Connection, int] = {}
        """How often each in the hall was looked at."""
        self._of_strangers = 0
        """Bytes of memory."""
        self.strangers = 0
        self.brokers = 0

    @property
    def most_strangers(self) -> int:
        """Return the maximum number of strangers. Lowering the limit closes no connection that is open."""
        return min(self._config_in_force().max_connections, self._possible)

    @property
    def in_hall(self) -> int:
        return len(self._hall)

    def enter(self, connection: Connection) -> None:
        """Give a new connection its place."""
        self._memory.acquire(_cost(connection))
        delay = None
        if self._limit_for(connection) is None:
            delay = self._rates.delay_of_address(connection.peer_host)
            if delay is None:
                self._let_in(connection)
                return
        self._hall.enter(connection, connection.peer_host)
        self._checks[connection] = 0
        connection.standing = ConnectionStanding.IN_HALL
        connection.gate.enter_hall(connection)
        if delay is not None:
            connection.server.quotas.mute(connection, delay.limit, delay.seconds)

    def _let_in(self, connection: Connection) -> None:
        connection.standing = ConnectionStanding.STRANGER
        self.strangers += 1
        self._of_strangers += _cost(connection)
        self._per_host[connection.peer_host] += 1
        self._per_listener[connection.listener] += 1
        delay = self._rates.delay_of_listener(connection.listener)
        if delay is not None:
            connection.server.quotas.mute(connection, delay.limit, delay.seconds)

    def admit_broker(self, connection: Connection) -> None:
        """Release the place of a connection that authenticated as a broker."""
        connection.gate.open(connection)
        self._discount(connection)
        connection.standing = ConnectionStanding.BROKER
        self.brokers += 1

    def remove(self, connection: Connection) -> None:
        """Release the place of a closed connection."""
        if connection.standing is not ConnectionStanding.GONE:
            self._discount(connection)
            connection.standing = ConnectionStanding.GONE
            self._memory.release(_cost(connection))

    def check_hall(self, connection: Connection) -> None:
        """Refuse connections that have been in the hall for too long; called once a second."""
        checks = self._checks.get(connection)
        if checks is None:
            return
        self._checks[connection] = checks + 1
        if checks >= HALL_CHECKS:
            self.refuse(connection)

    def refuse(self, connection: Connection) -> None:
        """Close a connection that is in the hall and is not a broker's."""
        self._leave_hall(connection)
        connection.server.counters.refused += 1
        connection.close("connection_refused", limit=self._limit_for(connection) or CONNECTION)

    def _limit_for(self, connection: Connection) -> str | None:
        """Return the setting that leaves no place for another stranger."""
        if self.strangers >= self.most_strangers or self._has_no_memory(connection):
            return "max.connections"
        config, host = self._config_in_force(), connection.peer_host
        of_listener = config.listener_limits.get(connection.listener)
        if of_listener is not None and self._per_listener[connection.listener] >= of_listener.max_connections:
            return f"listener.name.{connection.listener.lower()}.max.connections"
        if self._per_host[host] >= config.max_connections_per_ip_overrides.get(
            host, config.max_connections_per_ip
        ):
            return "max.connections.per.ip"
        return None

    def _has_no_memory(self, connection: Connection) -> bool:
        return self._of_strangers + _cost(connection) > self._memory.limit

    def _discount(self, connection: Connection) -> None:
        if connection.standing is ConnectionStanding.STRANGER:
            self.strangers -= 1
            self._of_strangers -= _cost(connection)
            host = connection.peer_host
            self._per_listener[connection.listener] -= 1
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
        elif connection.standing is ConnectionStanding.IN_HALL:
            self._leave_hall(connection)
        elif connection.standing is ConnectionStanding.BROKER:
            self.brokers -= 1

    def _leave_hall(self, connection: Connection) -> None:
        self._hall.leave(connection)
        self._checks.pop(connection, None)


def _cost(connection: Connection) -> int:
    return CONNECTION_BYTES if connection.tls_session is None else TLS_CONNECTION_BYTES
