"""TLS below channels: what this room needs from certificates, and messages for operators about TLS mismatches.

Must not know certificates and files: `broker.links.tls` and `broker.network.tls` do, and `control.py` passes them in.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

_ALERT, _HANDSHAKE = 0x15, 0x16
"""The first bytes of TLS. As the first byte of a length, each exceeds any limit."""

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""OpenSSL's reasons where the other end does not answer with TLS."""


@dataclass(frozen=True, slots=True)
class ChannelTls:
    """TLS of the controllers' listeners, if enabled; this room knows no certificates."""

    dial_options: Callable[[], Awaitable[dict[str, Any]]]
    """Return options of `create_connection`. Raises ConnectionError."""
    own_certificate: Callable[[ssl.SSLObject], bytes]
    """Return the certificate that our listener showed on a connection, in DER."""


def tls_mismatch(first: int, opened: bool) -> str | None:
    """Return the error if a frame begins as TLS does: the other end speaks TLS and this end does not."""
    if opened or first not in (_ALERT, _HANDSHAKE):
        return None
    return (
        "it uses TLS, but this node's settings say PLAINTEXT for controllers' listeners: set the same protocol in "
        "listener.security.protocol.map of all nodes (in a Kafka client, security.protocol=PLAINTEXT)"
    )


def why_hung_up(tls: ChannelTls | None) -> str:
    """Return for an operator the likely reason why a listener closed at the first message."""
    if tls is None:
        return (
            " at the first message; if that lasts, its listener uses TLS, and this node's settings say otherwise "
            "(listener.security.protocol.map)"
        )
    return " at the first message; if that lasts, its log says why (tls_handshake_failed)"


def why_insecure(error: ssl.SSLError) -> str:
    """Return for an operator why TLS did not begin."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return (
            "it does not use TLS, but this node's settings say SSL for controllers' listeners: set the same protocol "
            "in listener.security.protocol.map of all nodes"
        )
    return f"TLS failed: {reason.lower().replace('_', ' ')}"
