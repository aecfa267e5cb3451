"""Addresses in the config: listeners, advertised listeners, voters, HTTP ports. Text ⇄ values; resolves no name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from raftlog.base.config.setting import Kind, setting, words

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERY_INTERFACE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never bound to
"""Hosts that mean all interfaces: valid to bind to, not to connect to."""

MAX_PORT = 65_535
MAX_HOST_CHARS = 253
_LABEL = "[0-9A-Za-z_]([0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
"""RFC 1123, and underscores, which names of containers have."""


class Listener(NamedTuple):
    """An address on which a node listens, or that it advertises to clients. Host "" is every interface, port 0 any free
    port.
    """

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def find_listener(listeners: Iterable[Listener], names: Sequence[str]) -> Listener | None:
    """Return the listener of the first of some names, or None if there is none of that name."""
    return next((each for each in listeners if each.name == names[0]), None)


def format_address(host: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(text: str) -> bool:
    """Return whether a text can be a host name or an IP address, IPv6 without brackets. It is not looked up."""
    if ":" in text:
        import ipaddress  # takes 440 KB

        try:
            return bool(ipaddress.IPv6Address(text))
        except ValueError:
            return False
    if text.replace(".", "").isdecimal():
        parts = text.split(".")
        return len(parts) == 4 and all(part.isdecimal() and int(part) <= 255 for part in parts)
    return len(text) <= MAX_HOST_CHARS and _HOST_NAME.fullmatch(text) is not None


def parse_address(text: str) -> tuple[str, int]:
    """Read host:port. Raise ValueError that names the text."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ValueError(f"{text!r} must be host:port with a port of at most {MAX_PORT}")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if is_bracketed != (":" in host):
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, as in [::1]:9092")
    if host and not is_host(host):
        raise ValueError(f"{text!r}: {host!r} is neither a host name nor an IP address")
    return host, int(port)


def parse_servers(text: str) -> tuple[str, ...]:
    """Read host:port,... and keep the texts. Raise ValueError that names the text at fault."""
    servers = words(text)
    for each in servers:
        parse_address(each)
    return servers


def parse_optional_address(text: str) -> tuple[str, int] | None:
    """Read host:port, or an empty text as None. Raise ValueError that names the text."""
    return parse_address(text) if text else None


def format_optional_address(address: tuple[str, int] | None) -> str:
    return "" if address is None else format_address(*address)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own, unreachable from other machines."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    if not (host.startswith("127.") or ":" in host):
        return False
    import ipaddress  # takes 440 KB

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


ADMIN_ADDRESSES: Final = ("raftlog.admin.advertised.listener", "raftlog.admin.listener")
"""The settings with the address of a node's admin API, the first that is set."""


def http_url(
    settings: Mapping[str, str], host: str, *, nearby: bool, names: Sequence[str] = ADMIN_ADDRESSES
) -> str | None:
    """Return the URL of a broker's HTTP API by its settings; None without an API, or if it is local to its machine.

    `host` is the advertised host; `nearby`: it is on this machine. `names`: the settings with its address.
    """
    scheme = "https" if settings.get("raftlog.admin.security.protocol") == "SSL" else "http"
    for name in names:
        try:
            bound, port = parse_address(settings.get(name, ""))
        except ValueError:
            continue
        if port and (nearby or not is_loopback(bound)):
            return f"{scheme}://{format_address(host if bound in EVERY_INTERFACE else bound, port)}"
    return None


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Read NAME://host:port,... Names are upper-cased as in Kafka, and must differ."""
    listeners = []
    for item in words(text):
        name, separator, address = item.partition("://")
        if not separator or not name:
            raise ValueError(f"{item!r} must be NAME://host:port")
        host, port = parse_address(address)
        name = name.upper()
        listeners.append(Listener(name, host, port, name if name in SECURITY_PROTOCOLS else "PLAINTEXT"))
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ValueError(f"listener names must be unique, but are {', '.join(names)}")
    return tuple(listeners)


def format_listeners(listeners: Iterable[Listener]) -> str:
    return ",".join(map(str, listeners))


def parse_protocol_map(text: str) -> Mapping[str, str]:
    """Read NAME:PROTOCOL,..."""
    protocols = {}
    for item in words(text):
        name, separator, protocol = item.partition(":")
        protocol = protocol.strip().upper()
        if not separator or protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"{item!r} must be NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol
    return MappingProxyType(protocols)


def format_protocol_map(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


def parse_voters(text: str) -> Mapping[int, tuple[str, int]]:
    """Read id@host:port,... as {id: (host, port)}, ordered by id."""
    voters: dict[int, tuple[str, int]] = {}
    for item in words(text):
        node_id, separator, address = item.partition("@")
        if not separator or not node_id.strip().isdecimal():
            raise ValueError(f"{item!r} must be id@host:port")
        if int(node_id) in voters:
            raise ValueError(f"node {int(node_id)} is named twice")
        host, port = parse_address(address)
        if host in EVERY_INTERFACE or port == 0:
            raise ValueError(f"{item!r}: other nodes cannot connect to this address")
        voters[int(node_id)] = (host, port)
    return MappingProxyType(dict(sorted(voters.items())))


def format_voters(voters: Mapping[int, tuple[str, int]]) -> str:
    return ",".join(f"{node_id}@{format_address(host, port)}" for node_id, (host, port) in voters.items())


def _node(name: str, kind: Kind, default: Any, doc: str, **columns: Any) -> Any:
    return setting(name, kind, default, doc, scope="node", **columns)


def _address(name: str, default: tuple[str, int] | None, doc: str) -> Any:
    columns = {"read": parse_optional_address, "show": format_optional_address}
    return _node(name, "string", default, doc, **columns)


@dataclass(frozen=True, eq=False)
class HttpSettings:
    """The addresses of a node's ports that speak HTTP, with their TLS and tokens. All are raftlog's own."""

    # The admin API
    admin_listener: tuple[str, int] | None = _address(
        "raftlog.admin.listener",
        ("127.0.0.1", 9644),
        "Where the HTTP admin API listens, as host:port; or nowhere. Beyond loopback it needs TLS, and rules or tokens",
    )
    admin_advertised_listener: tuple[str, int] | None = _address(
        "raftlog.admin.advertised.listener",
        None,
        "Where others reach the HTTP admin API, as host:port; unset: at the advertised host, and the listener's port",
    )
    admin_tokens_file: str = _node(
        "raftlog.admin.tokens.file",
        "string",
        "",
        "File of lines `role name token` (role: reader or operator). Without it, processes on this machine have the "
        "rights of User:ANONYMOUS; all rights if authorizer.class.name is unset",
    )
    admin_tokens_without_tls: bool = _node(
        "raftlog.admin.tokens.without.tls",
        "boolean",
        False,
        "Take tokens and passwords over plain HTTP beyond loopback, though whoever is on the way can read and use them",
    )
    admin_security_protocol: str = _node(
        "raftlog.admin.security.protocol",
        "string",
        "PLAINTEXT",
        "SSL: the admin API speaks HTTPS by the settings ssl.*, of which each raftlog.admin.ssl.* overrides one",
        choices=("PLAINTEXT", "SSL"),
    )
    admin_ssl_certificate: str = _node(
        "raftlog.admin.ssl.certificate",
        "string",
        "",
        "Short for HTTPS with the certificate chain in this PEM file, and without certificates of clients",
    )
    admin_ssl_key: str = _node(
        "raftlog.admin.ssl.key",
        "string",
        "",
        "PEM file of the certificate's key; unset, it is in the certificate's file",
    )

    # The schema registry
    schema_registry_listener: tuple[str, int] | None = _address(
        "raftlog.schema.registry.listener",
        None,
        "Where the schema registry listens, as host:port; unset, nowhere. Its TLS, logins and tokens are those of the "
        "admin API, and beyond loopback it needs them likewise",
    )
