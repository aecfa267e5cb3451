"""TLS of a broker's listeners: a new connection gets the newest context, one that is open keeps its own.

`links.tls` makes contexts of files. Here is what clients see of them, and who clients are by their certificates.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from raftlog.base.config_tls import ListenerTls
from raftlog.base.distinguished_names import UnreadableName, subject_of
from raftlog.base.env import Offload
from raftlog.base.errors import InvalidRegularExpression
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.principals import USER, NoPrincipal, name_of, parse_rules
from raftlog.base.regex import check_regex, compiled
from raftlog.broker.links.tls import (
    HANDSHAKE_S,
    PEM_BLOCK,
    SHUTDOWN_S,
    ListenerContexts,
    Material,
    TlsUnusable,
    keystore_of,
    load_context,
)
from raftlog.security.acls import ANONYMOUS

LOOK_EVERY_S: Final = 3.0
"""New files are found after so long at most."""

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_REASONS: Final = {
    "HTTP_REQUEST": "an HTTP request arrived on a listener that speaks TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: set security.protocol to SSL or SASL_SSL in it",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, but ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not believe this node's certificate: give it the authority's",
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "the client refused this node's certificate: is it for the host in advertised.listeners?"
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refused this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this node's certificate has expired: put a new one in its place",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS that ssl.enabled.protocols has",
}

_UNKNOWN_AUTHORITY: Final = (
    "add its authority to ssl.truststore.location, or give the client one of those in it"
)
_MENDING: Final = {
    9: "it is not valid yet: is it the right time here?",
    10: "give the client a new one",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    22: "it comes with too many others",
}
"""Advice by OpenSSL's numbers for what is wrong with a certificate (X509_V_ERR_...)."""

log = get_logger(__name__)


class ServerContext(ssl.SSLContext):
    """The context that a listener is opened with: each new connection is made under the newest one.

    Not by changing the context in the hello (`sni_callback`): a TLS 1.2 session of the context before could then be
    resumed though its authority is no longer believed.
    """

    newest: ServerContext
    failed: Callable[[ssl.SSLError], None]
    certificate: bytes
    """The one that it shows, in DER."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection under the newest context."""
        return ssl.SSLContext.wrap_bio(self.newest, *args, **options)


class _ToldHandshake(ssl.SSLObject):
    """Tells the listener why a handshake failed: event loops keep that to themselves."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            context = self.context
            if isinstance(context, ServerContext):
                context.failed(error)
            raise


class ServerTls:
    """TLS of one listener of a broker."""

    def __init__(self, tls: ListenerTls, limited: LimitedLog, count: Callable[[str], None]) -> None:
        self._tls = tls
        self._log = limited
        self._count = count
        self._contexts = ListenerContexts(tls, make_server_context)
        self._rules = parse_rules(tls.ssl_principal_mapping_rules)

    async def open(self, offload: Offload) -> dict[str, Any]:
        """Return the options of `create_server`. Raises TlsUnusable."""
        for rule in self._rules:
            if rule.pattern is not None:
                try:
                    check_regex(rule.pattern)
                except InvalidRegularExpression as error:
                    raise TlsUnusable(
                        f"{self._tls.names['ssl_principal_mapping_rules']}: {error.message}"
                    ) from error
        self._door = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        self._take(await offload(self._contexts.load))
        return {"ssl": self._door, "ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}

    async def look(self, offload: Offload) -> None:
        """Take new files, if there are."""
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
            self._take(context)
            log.info("tls_renewed", listener=self._tls.listener)

    def principal_of(self, connection: ssl.SSLObject) -> str:
        """Return who is at the other end, as `User:name`. Raises NoPrincipal."""
        certificate = connection.getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except UnreadableName as error:
            raise NoPrincipal(str(error)) from error
        name = name_of(subject, self._rules, lambda pattern, text: compiled(pattern).fullmatch(text))
        if not name:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules fits {subject}")
        return f"{USER}:{name}"

    @staticmethod
    def shown_certificate(session: ssl.SSLObject) -> bytes:
        """Return the certificate that the client of a connection was shown, in DER."""
        assert isinstance(session.context, ServerContext)
        return session.context.certificate

    def _take(self, context: ssl.SSLContext) -> None:
        assert isinstance(context, ServerContext)
        context.failed = self._handshake_failed
        self._door.newest = context

    def _handshake_failed(self, error: ssl.SSLError) -> None:
        self._count("tls_handshake_failed")
        self._log.warning("tls_handshake_failed", listener=self._tls.listener, reason=reason_of(error))


async def keep_fresh(servers: Iterable[ServerTls], offload: Offload) -> None:
    """Take new files as long as this runs."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for each in servers:
            await each.look(offload)


def reason_of(error: ssl.SSLError) -> str:
    """Return a failed handshake's reason, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _MENDING.get(error.verify_code)
        reason = f"the client's certificate is not believed: {error.verify_message}"
        return f"{reason} ({advice})" if advice else reason
    return _REASONS.get(error.reason or "", (error.reason or str(error)).lower().replace("_", " "))


# --- contexts


def make_server_context(tls: ListenerTls, material: Material) -> ssl.SSLContext:
    """Return the context of connections that clients open. Raises TlsUnusable."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _ToldHandshake
    context.verify_mode = _VERIFY[tls.ssl_client_auth]
    # A session that is resumed brings the verdict of its beginning with it, whoever is believed today.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load_context(context, tls, material)
    context.certificate = _first_certificate(tls, material)
    return context


def _first_certificate(tls: ListenerTls, material: Material) -> bytes:
    """Return the node's own certificate, which comes before those of authorities, in DER."""
    for kind, body in PEM_BLOCK.findall(material.chain.decode(errors="replace")):
        if kind == "CERTIFICATE":
            return base64.b64decode(body)
    raise TlsUnusable(f"{keystore_of(tls)}: has no certificate")
