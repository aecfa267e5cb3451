"""What a connection of a SASL listener may do before its login: ask for versions, log in, or prove to be a broker.

Anything else ends it, and so does a login that takes too long. Its frames are short until then, so that strangers
cannot make a broker keep much (CVE-2022-34917).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.broker.links import peer_auth
from raftlog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

LOGIN_LOOKS: Final = 30
"""Seconds that a connection may stay without a login: looks of `idle_connections`."""

_OPEN_APIS: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, peer_auth.API_KEY}
)


def dispatch_before_login(connection: Connection, frame: memoryview) -> None:
    """Handle a request that belongs to a login; end the connection for any other. Never raises."""
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    if api_key in _OPEN_APIS:
        connection.server.dispatch(connection, frame)
    else:
        connection.close("request_before_login", api_key=api_key)
