"""Finds out why a listener does not answer a client without security settings: it may need TLS, a login, or HTTP."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from typing import Final

PROBE_S: Final = 1.0
"""For each of two short conversations with a listener."""
SAY: Final = "name your client's settings (security.protocol and so on) with -F FILE"
NOT_KAFKA: Final = "HTTP answers there, not Kafka: name a Kafka port"


def why_closed(servers: str) -> str:
    """Return the requirement of the first reachable server; "" without a requirement or a reachable server."""
    for each in servers.split(","):
        host, _, port = each.strip().rpartition(":")
        try:
            address = host.strip("[]"), int(port)
            over_tls = _speaks_tls(address)
            if _speaks_http(address, over_tls=over_tls):
                return NOT_KAFKA
            if over_tls:
                return f"its listener uses TLS: {SAY}"
            return f"its listener requires a login: {SAY}" if _wants_login(address) else ""
        except (OSError, ValueError):
            continue
    return ""


def _unverified() -> ssl.SSLContext:
    """Return a client's side of TLS that checks no certificate: no secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a TLS handshake gets an answer in TLS."""
    with socket.create_connection(address, PROBE_S) as connected:
        try:
            with _unverified().wrap_socket(connected):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # as from a server that demands a certificate
        except OSError:
            return False


def _speaks_http(address: tuple[str, int], *, over_tls: bool) -> bool:
    """Return whether a request in HTTP gets an answer in HTTP."""
    with ExitStack() as stack:
        connected = stack.enter_context(socket.create_connection(address, PROBE_S))
        try:
            if over_tls:
                connected = stack.enter_context(_unverified().wrap_socket(connected))
            connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connected.makefile("rb").read(5) == b"HTTP/"
        except OSError:
            return False


def speaks_kafka(address: tuple[str, int]) -> bool:
    """Return whether a broker returns its versions."""
    from raftlog.base.errors import KafkaError
    from raftlog.client.connection import Connection
    from raftlog.protocol.apis import ApiKey
    from raftlog.protocol.message_builders import request_builders

    request = request_builders(ApiKey.API_VERSIONS, 0).ApiVersionsRequest()
    try:
        with Connection(socket.create_connection(address, PROBE_S)) as connection:
            connection.ask(ApiKey.API_VERSIONS, 0, request)
    except (OSError, KafkaError, ValueError):
        return False
    return True


def _wants_login(address: tuple[str, int]) -> bool:
    """Return whether a broker returns its versions, and closes the connection at the next request."""
    from raftlog.base.errors import KafkaError
    from raftlog.client.connection import Connection
    from raftlog.protocol.apis import ApiKey
    from raftlog.protocol.message_builders import request_builders

    versions = request_builders(ApiKey.API_VERSIONS, 0).ApiVersionsRequest()
    metadata = request_builders(ApiKey.METADATA, 1).MetadataRequest(topics=())
    with Connection(socket.create_connection(address, PROBE_S)) as connection:
        try:
            connection.ask(ApiKey.API_VERSIONS, 0, versions)
        except KafkaError:
            return False
        try:
            connection.ask(ApiKey.METADATA, 1, metadata)
        except (OSError, KafkaError):
            return True
    return False
