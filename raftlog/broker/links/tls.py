"""The certificates of a node, from the stores that settings name to contexts of TLS; and TLS towards other brokers.

Files are checked by their times and sizes, never on the event loop. Unusable files have no effect.

Private keys reach OpenSSL through memory (memfd), so that none is written to a disk.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple

from raftlog.base.config.tls import ListenerTls
from raftlog.base.env import Offload
from raftlog.base.log import get_logger

HANDSHAKE_S: Final = 5.0
SHUTDOWN_S: Final = 2.0
"""The timeout of the TLS handshake, and of its end."""

MAX_STORE_BYTES: Final = 4 << 20
"""The largest file that is read. Hundreds of certificate authorities need less."""

PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64

log = get_logger(__name__)


class TlsUnusable(ValueError):
    """Raised for files or texts that do not make a context. The message names the setting and never shows a secret."""


class Material(NamedTuple):
    """The content of a listener's stores, as PEM."""

    chain: bytes
    """Empty if the settings name none, since this node only connects to that listener."""
    key_password: str
    believed: str
    """Empty if the settings name none."""

    def __repr__(self) -> str:
        return "Material()"


class ListenerContexts:
    """The contexts of one listener, as of its files' last good state. `load` first; may run in any thread."""

    def __init__(self, tls: ListenerTls, make: Callable[[ListenerTls, Material], ssl.SSLContext]) -> None:
        self._tls = tls
        self._make = make
        self._stamps: tuple[Any, ...] = ()
        self._reported: tuple[Any, ...] = ()
        """The last failure to renew."""
        self.newest: ssl.SSLContext | None = None

    def load(self) -> ssl.SSLContext:
        """Read the files and make a context. Raises TlsUnusable."""
        stamps = self._file_stamps()
        try:
            self.newest = self._make(self._tls, read_material(self._tls))
        except TlsUnusable:
            raise
        except Exception as error:  # from libraries: nodes go on whatever these raise
            why = f"listener {self._tls.listener}: the certificates cannot be used"
            raise TlsUnusable(f"{why} ({type(error).__name__}: {error})") from error
        self._stamps = stamps
        return self.newest

    def renew(self) -> ssl.SSLContext | None:
        """Return a new context if the files have changed.

        Unusable files are retried, since the reason may be a lack of descriptors. Raises TlsUnusable, once for each
        state of the files and reason.
        """
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return None
        try:
            return self.load()
        except TlsUnusable as error:
            failure = (stamps, str(error))
            if failure == self._reported:
                return None
            self._reported = failure
            raise

    def _file_stamps(self) -> tuple[Any, ...]:
        return tuple(
            _stamp(each)
            for each in (
                self._tls.ssl_keystore_location,
                self._tls.key_file,
                self._tls.ssl_truststore_location,
            )
        )


class PeerTls:
    """TLS towards other nodes, by the settings of the listener that they have for each other."""

    def __init__(self, tls: ListenerTls) -> None:
        self._contexts = ListenerContexts(tls, make_client_context)
        self._listener = tls.listener
        self._turn = asyncio.Lock()

    async def open(self, offload: Offload) -> None:
        """Read the files before the first connection. Raises TlsUnusable."""
        await offload(self._contexts.load)

    async def options(self, offload: Offload) -> dict[str, Any]:
        """Return the options of `create_connection`. Raises ConnectionError if there were never usable files."""
        async with self._turn:
            try:
                await offload(self._contexts.renew)
            except TlsUnusable as error:
                log.error("tls_renewal_failed", listener=self._listener, reason=str(error))
        context = self._contexts.newest
        if context is None:
            raise ConnectionError(f"there is no certificate for listener {self._listener}")
        return {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}


def make_client_context(tls: ListenerTls, material: Material) -> ssl.SSLContext:
    """Return the context of connections to other brokers. Raises TlsUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verifies_hosts
    load_context(context, tls, material)
    if not material.believed:
        context.load_default_certs()
    return context


def load_context(context: ssl.SSLContext, tls: ListenerTls, material: Material) -> None:
    """Give a context its certificate and the certificate authorities that it trusts. Raises TlsUnusable."""
    versions = sorted(ssl.TLSVersion[each.replace(".", "_")] for each in tls.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.verify_flags |= (
        ssl.VERIFY_X509_PARTIAL_CHAIN
    )  # as in Java, all certificates in the truststore are trusted
    if material.chain:
        _load_chain(context, tls, material)
    if material.believed:
        try:
            context.load_verify_locations(cadata=material.believed)
        except (ssl.SSLError, ValueError) as error:
            raise TlsUnusable(f"{_truststore(tls)}: has no readable certificates ({error})") from None


def _load_chain(context: ssl.SSLContext, tls: ListenerTls, material: Material) -> None:
    try:
        with _in_memory(material.chain) as path:
            context.load_cert_chain(path, password=lambda: material.key_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsUnusable(f"{keystore_of(tls)}: {_why_unusable(error, material)}") from None


def _why_unusable(error: Exception, material: Material) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not the certificate's"
    if b"ENCRYPTED" in material.chain:
        return "the key cannot be read with the password (ssl.key.password)"
    if b"PRIVATE KEY-----" not in material.chain:
        return "has no private key"
    if b"BEGIN CERTIFICATE" not in material.chain:
        return "has no certificate"
    return f"cannot be used ({reason or error})"


# --- stores


def read_material(tls: ListenerTls) -> Material:
    """Read the stores of a listener. Raises TlsUnusable."""
    believed = ""
    if tls.ssl_keystore_location:
        raw = _read(tls.names["ssl_keystore_location"], tls.ssl_keystore_location)
        if tls.ssl_keystore_type == "PKCS12":
            chain = _unpack(tls.names["ssl_keystore_location"], raw, tls.ssl_keystore_password, with_key=True)
        else:
            chain = raw
            if tls.key_file:
                chain += b"\n" + _read("raftlog.admin.ssl.key", tls.key_file)
    else:
        chain = _pem(tls.ssl_keystore_certificate_chain + tls.ssl_keystore_key).encode()
    if tls.ssl_truststore_location:
        name = tls.names["ssl_truststore_location"]
        raw = _read(name, tls.ssl_truststore_location)
        if tls.ssl_truststore_type == "PKCS12":
            raw = _unpack(name, raw, tls.ssl_truststore_password, with_key=False)
        believed = _pem(raw.decode(errors="replace"))
    elif tls.ssl_truststore_certificates:
        believed = _pem(tls.ssl_truststore_certificates)
    if tls.names_authorities and not believed:
        raise TlsUnusable(f"{_truststore(tls)}: has no certificate in PEM")
    return Material(chain, tls.ssl_key_password, believed)


def _pem(text: str) -> str:
    """Return the blocks of PEM in a text, with the line breaks that a .properties file has removed."""
    found = []
    for kind, body in PEM_BLOCK.findall(text):
        lines = [body.strip()]
        if ":" not in body:  # else it has headers, which keep their lines
            joined = "".join(body.split())
            lines = [joined[start : start + _LINE] for start in range(0, len(joined), _LINE)]
        found += [f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]
    return "\n".join(found)


def _unpack(setting: str, raw: bytes, password: str, *, with_key: bool) -> bytes:
    """Return the contents of a PKCS12 store as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise TlsUnusable(
            f"{setting}: PKCS12 needs the package cryptography (the extra tls); PEM does not"
        ) from None
    try:
        store = pkcs12.load_pkcs12(raw, password.encode() if password else None)
    except ValueError:
        raise TlsUnusable(f"{setting}: is not a PKCS12 store, or its password is wrong") from None
    pem = serialization.Encoding.PEM
    parts = [each.certificate.public_bytes(pem) for each in (store.cert, *store.additional_certs) if each]
    if with_key:
        if store.key is None:
            raise TlsUnusable(f"{setting}: has no private key")
        unlocked = serialization.NoEncryption()
        parts.append(store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unlocked))
    return b"".join(parts)


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise TlsUnusable(f"{setting}: {path}: {error.strerror or error}") from None
    if len(raw) > MAX_STORE_BYTES:
        raise TlsUnusable(f"{setting}: {path}: has more than {MAX_STORE_BYTES >> 20} MiB")
    return raw


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def keystore_of(tls: ListenerTls) -> str:
    """Return the setting of a listener's own certificate, and its file, for a message."""
    location = tls.ssl_keystore_location
    return f"{tls.names['ssl_keystore_location']}: {location}" if location else tls.names["ssl_keystore_key"]


def _truststore(tls: ListenerTls) -> str:
    location = tls.ssl_truststore_location
    name = "ssl_truststore_location" if location else "ssl_truststore_certificates"
    return f"{tls.names[name]}: {location}" if location else tls.names[name]


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path where OpenSSL can read bytes that are on no disk."""
    if not hasattr(os, "memfd_create"):  # not on Linux: a temporary file that only this user can read
        with NamedTemporaryFile() as temporary:
            temporary.write(content)
            temporary.flush()
            yield temporary.name
        return
    descriptor = os.memfd_create("raftlog-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
