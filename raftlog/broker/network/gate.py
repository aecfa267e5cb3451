"""The gate of a SASL listener: before its login, a client may ask for versions, log in, or prove to be a broker.

Any other request ends its connection, and so does a login that takes too long. Its frames are short until then, so
that strangers cannot make a broker keep much (CVE-2022-34917).
"""

from __future__ import annotations

from typing import Final

from raftlog.broker.links import peer_auth
from raftlog.protocol.apis import ApiKey

LOGIN_LOOKS: Final = 30
"""Seconds that a connection may stay without a login: looks of `idle_connections`."""

_OPEN_APIS: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, peer_auth.API_KEY}
)


def passes_before_login(api_key: int) -> bool:
    """Whether a request belongs to a login."""
    return api_key in _OPEN_APIS
