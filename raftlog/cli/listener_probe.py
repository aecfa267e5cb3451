"""Finds out why a listener does not answer a client without security settings: it may need TLS or a login first."""

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
