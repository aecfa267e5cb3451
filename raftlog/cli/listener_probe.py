"""Finds out why a listener does not answer a client without security settings: it may need TLS, a login, or HTTP."""

from __future__ import annotations

import socket
import ssl
from typing import Final

PROBE_S: Final = 1.0
"""For each of two short conversations with a listener."""
SAY: Final = "name your client's settings (security.protocol and so on) with -F FILE"


def why_closed(servers: str) -> str:
    """Return the requirement of the first reachable server; "" without a requirement or a reachable server."""
    for each in servers.split(","):
        host, _, port = each.strip().rpartition(":")
        try:
            address = host.strip("[]"), int(port)
            if _speaks_tls(address):
                return f"its listener uses TLS: {SAY}"
            if _speaks_http(address):
                return "HTTP answers there, not Kafka: name a Kafka port, such as 9092"
            return f"its listener requires a login: {SAY}" if _wants_login(address) else ""
        except (OSError, ValueError):
            continue
    return ""


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a TLS handshake gets an answer in TLS. No data is sent on it, so no certificate is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, PROBE_S) as connected:
        try:
            with context.wrap_socket(connected):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # as from a server that demands a certificate
        except OSError:
            return False


def _speaks_http(address: tuple[str, int]) -> bool:
    """Return whether a request in HTTP gets an answer in HTTP."""
    with socket.create_connection(address, PROBE_S) as connected:
        try:
            connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connected.recv(5, socket.MSG_WAITALL) == b"HTTP/"
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
