"""The connections of clients: their sockets, their limits, and the windows of quotas. Only the table.

`ListenerLimits` are the limits of one listener (`listener.name.NAME.max.connections`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from raftlog.base.config.setting import INT_MAX, setting, words

LISTENER_PREFIX: Final = "listener.name."
_MAX_CONNECTIONS: Final = "max.connections"
_CREATION_RATE: Final = "max.connection.creation.rate"
LIMITS_OF_LISTENERS: Final = (_MAX_CONNECTIONS, _CREATION_RATE)
"""The limits that a listener may have of its own."""


class ListenerLimits(NamedTuple):
    """The limits of one listener, beside those of the broker."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


def _read_per_ip_overrides(text: str) -> Mapping[str, int]:
    """Read ADDRESS:COUNT,... Raise ValueError."""
    if not text:
        return MappingProxyType({})
    import ipaddress  # takes 440 KB

    limits = {}
    for item in words(text):
        host, _, count = item.rpartition(":")
        if not count.isdecimal() or int(count) > INT_MAX:
            raise ValueError(f"{item!r} must be ADDRESS:COUNT")
        try:
            limits[str(ipaddress.ip_address(host.strip("[]")))] = int(count)
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address; host names are not resolved") from None
    return MappingProxyType(limits)


def _show_per_ip_overrides(limits: Mapping[str, int]) -> str:
    return ",".join(f"{host}:{count}" for host, count in limits.items())


@dataclass(frozen=True, eq=False)
class ConnectionSettings:
    """Connections of clients, and windows of quotas."""

    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        "int",
        102_400,
        "SO_SNDBUF of client connections; -1 the system's",
        at_least=-1,
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        "int",
        102_400,
        "SO_RCVBUF of client connections; -1 the system's",
        at_least=-1,
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", "int", 104_857_600, "A longer request closes its connection", at_least=1
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", "int", 50, "Connections that may wait to be accepted", at_least=1
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", "long", 600_000, "An idle connection is closed after this; negative never"
    )
    max_connections: int = setting(
        _MAX_CONNECTIONS,
        "int",
        INT_MAX,
        "Most client connections at once; never more than files and memory allow. Brokers come on top",
        at_least=1,
        update="cluster-wide",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        "int",
        INT_MAX,
        "Most client connections from one address; brokers come on top",
        at_least=0,
        update="cluster-wide",
    )
    max_connections_per_ip_overrides: Mapping[str, int] = setting(
        "max.connections.per.ip.overrides",
        "string",
        MappingProxyType({}),
        "Other limits for some addresses, as ADDRESS:COUNT with commas between",
        update="cluster-wide",
        read=_read_per_ip_overrides,
        show=_show_per_ip_overrides,
    )
    max_connection_creation_rate: int = setting(
        _CREATION_RATE,
        "int",
        INT_MAX,
        "Most new client connections a second; further ones wait. Not on the brokers' own listener",
        at_least=1,
        update="cluster-wide",
    )
    raftlog_tls_handshakes_max: int = setting(
        "raftlog.tls.handshakes.max",
        "int",
        1_000,
        "Most TLS handshakes under way at once; a newer one takes the place of the oldest of the address with most",
        at_least=1,
    )
    quota_window_num: int = setting(
        "quota.window.num", "int", 11, "Windows over which what clients use is counted for quotas", at_least=1
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", "int", 1, "Length of each of these windows", at_least=1, unit="seconds"
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        "int",
        11,
        "Windows for which a controller_mutation_rate that is not used saves up",
        at_least=1,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        "int",
        1,
        "Length of each of these windows",
        at_least=1,
        unit="seconds",
    )


def split_limit_override(name: str) -> tuple[str, str] | None:
    """Return the listener and the limit of a setting of one listener; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    return (listener.upper(), rest) if rest in LIMITS_OF_LISTENERS else None


def limits_of_listeners(
    overrides: Mapping[str, str], fault: Callable[[str, str], None]
) -> Mapping[str, ListenerLimits]:
    """Return the limits of listeners that have their own. Mistakes go to `fault`, with the setting's name."""
    limits: dict[str, ListenerLimits] = {}
    for name, text in overrides.items():
        override = split_limit_override(name)
        if override is None:
            continue
        listener, rest = override
        least = 0 if rest == _MAX_CONNECTIONS else 1
        if not text.strip().isdecimal() or not least <= int(text) <= INT_MAX:
            fault(name, f"must be a number of at least {least}")
            continue
        before = limits.get(listener, ListenerLimits())
        limits[listener] = before._replace(**{rest.replace(".", "_"): int(text)})
    return MappingProxyType(limits)
