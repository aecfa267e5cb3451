"""TLS of a broker's listeners: a new connection gets the newest context, an open connection keeps its own.

`links.tls` creates contexts from files. This module has what clients see of them, and the principals of client
certificates.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable, Iterable
from typing import Final

from raftlog.base.config.tls import ListenerTls
from raftlog.base.distinguished_names import UnreadableName, subject_of
from raftlog.base.env import Offload
from raftlog.base.errors import InvalidRegularExpression
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.principals import USER, NoPrincipal, name_of, parse_rules
from raftlog.base.regex import check_regex, compiled
from raftlog.broker.links.tls import (
    PEM_BLOCK,
    ListenerContexts,
    Material,
    TlsUnusable,
    keystore_of,
    load_context,
)
from raftlog.broker.network.tls_handshake import Accept, HandshakePlaces, TlsHandshake
from raftlog.security.acls import ANONYMOUS

CHECK_INTERVAL_S: Final = 3.0
"""The maximum time until new files are found, in seconds."""

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_NO_TLS: Final = "WRONG_VERSION_NUMBER"

_REASONS: Final = {
    "HTTP_REQUEST": "an HTTP request arrived on a listener that speaks TLS",
    _NO_TLS: "the client does not speak TLS: set security.protocol to SSL or SASL_SSL in it",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, but ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this node's certificate: give it the authority's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "the client refused this node's certificate: is it for the host in advertised.listeners?"
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refused this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this node's certificate has expired: replace it",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS that ssl.enabled.protocols has",
}

_UNKNOWN_AUTHORITY: Final = (
    "add its authority to ssl.truststore.location, or give the client a certificate from such an authority"
)
_MENDING: Final = {
    9: "it is not valid yet: is it the right time here?",
    10: "give the client a new one",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    22: "its chain is too long",
}
"""Advice by OpenSSL's error numbers for certificates (X509_V_ERR_...)."""

log = get_logger(__name__)


class ServerContext(ssl.SSLContext):
    """The context of connections that clients open."""

    certificate: bytes
    """The certificate that it presents, in DER."""


class ServerTls:
    """TLS of one listener of a broker."""

    def __init__(
        self,
        tls: ListenerTls,
        limited: LimitedLog,
        count: Callable[[str], None],
        handshakes: HandshakePlaces,
        *,
        is_for_nodes: bool = False,
    ) -> None:
        """`is_for_nodes` means the controllers' listener, for connections of nodes rather than clients."""
        self._tls = tls
        self._handshakes = handshakes
        self._newest: ServerContext | None = None
        self._is_for_nodes = is_for_nodes
        self._log = limited
        self._count = count
        self._contexts = ListenerContexts(tls, make_server_context)
        self._rules = parse_rules(tls.ssl_principal_mapping_rules)

    async def open(self, offload: Offload) -> None:
        """Read the files. Raises TlsUnusable."""
        for rule in self._rules:
            if rule.pattern is not None:
                try:
                    check_regex(rule.pattern)
                except InvalidRegularExpression as error:
                    raise TlsUnusable(
                        f"{self._tls.names['ssl_principal_mapping_rules']}: {error.message}"
                    ) from error
        self._use(await offload(self._contexts.load))

    def accepting(self, accept: Accept) -> Accept:
        """Return a protocol factory that makes the protocols of `accept` for connections after their handshake.

        Each connection gets the newest context. Changing it later (`sni_callback`) would let a client resume a TLS 1.2
        session of an authority that is no longer trusted.
        """

        def begin() -> TlsHandshake:
            assert self._newest is not None, "it is open"
            return TlsHandshake(
                self._tls.listener,
                self._newest,
                self._handshakes,
                accept=accept,
                failed=self._handshake_failed,
            )

        return begin

    def close(self) -> None:
        """Close every connection in its handshake."""
        self._handshakes.close()

    async def reload_if_changed(self, offload: Offload) -> None:
        """Load new files, if there are any."""
        try:
            context = await offload(self._contexts.renew)
        except TlsUnusable as error:
            log.error(
                "tls_renewal_failed",
                listener=self._tls.listener,
                reason=str(error),
                consequence="new connections get the certificate that was there before",
            )
            return
        if context is not None:
            self._use(context)
            log.info("tls_renewed", listener=self._tls.listener)

    def principal_of(self, connection: ssl.SSLObject) -> str:
        """Return the principal at the other end, as `User:name`. Raises NoPrincipal."""
        certificate = connection.getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except UnreadableName as error:
            raise NoPrincipal(str(error)) from error
        name = name_of(subject, self._rules, lambda pattern, text: compiled(pattern).fullmatch(text))
        if not name:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules matches {subject}")
        return f"{USER}:{name}"

    @staticmethod
    def shown_certificate(session: ssl.SSLObject) -> bytes:
        """Return the certificate that was presented to the client of a connection, in DER."""
        assert isinstance(session.context, ServerContext)
        return session.context.certificate

    def _use(self, context: ssl.SSLContext) -> None:
        assert isinstance(context, ServerContext)
        self._newest = context

    def _handshake_failed(self, error: ssl.SSLError, address: str) -> None:
        reason, listener = reason_of(error), self._tls.listener
        if self._is_for_nodes and error.reason == _NO_TLS:
            reason += f", or, in a node, {listener}:SSL in listener.security.protocol.map"
        self._count("tls_handshake_failed")
        self._log.warning("tls_handshake_failed", listener=listener, address=address, reason=reason)


async def keep_fresh(servers: Iterable[ServerTls], offload: Offload) -> None:
    """Load new files for as long as this runs."""
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        for each in servers:
            await each.reload_if_changed(offload)


def reason_of(error: ssl.SSLError) -> str:
    """Return a failed handshake's reason, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _MENDING.get(error.verify_code)
        reason = f"the client's certificate is not trusted: {error.verify_message}"
        return f"{reason} ({advice})" if advice else reason
    return _REASONS.get(error.reason or "", (error.reason or str(error)).lower().replace("_", " "))


# --- contexts


def make_server_context(tls: ListenerTls, material: Material) -> ssl.SSLContext:
    """Return the context of connections that clients open. Raises TlsUnusable."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[tls.ssl_client_auth]
    # A resumed session keeps the verdict of its beginning, whichever authorities are trusted today.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load_context(context, tls, material)
    context.certificate = _first_certificate(tls, material)
    return context


def _first_certificate(tls: ListenerTls, material: Material) -> bytes:
    """Return the node's own certificate, which comes before the authorities' certificates, in DER."""
    for kind, body in PEM_BLOCK.findall(material.chain.decode(errors="replace")):
        if kind == "CERTIFICATE":
            return base64.b64decode(body)
    raise TlsUnusable(f"{keystore_of(tls)}: has no certificate")
