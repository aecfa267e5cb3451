"""An authority for one run, and the certificates that it issues, as PEM files; nobody else believes it."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

LASTS: Final = timedelta(days=2)
"""For longer than any run, shorter than anybody could want to keep one."""


class NoCertificates(OSError):
    """Certificates cannot be made here; the message says what to install."""


class Issuer(NamedTuple):
    """A certificate that may sign others, and its key."""

    certificate: Certificate
    key: EllipticCurvePrivateKey


class Authority:
    """Issues certificates for hosts. `path` is its own certificate."""

    def __init__(self, folder: Path) -> None:
        """Raise NoCertificates without the package for them."""
        if find_spec("cryptography") is None:
            raise NoCertificates("to make certificates, install raftlog[tls]")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / "authority.pem"
        self._issuer = _issue("raftlog chaos", None, authority=True)
        self.path.write_bytes(_pem(self._issuer.certificate))

    def keystore(self, name: str, host: str) -> Path:
        """Put a new key and certificate for a host in the place of the file that was there, at once."""
        made = _issue(name, self._issuer, hosts=(host, "localhost"))
        path = self.folder / f"{name}.pem"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(_pem_key(made.key) + _pem(made.certificate))
        fresh.replace(path)
        return path

    def long_chain(self, name: str, length: int) -> Path:
        """Write a client's key and a certificate below so many others, each of which may sign the next."""
        issuer, chain = self._issuer, []
        for number in range(length):
            issuer = _issue(f"{name} {number}", issuer, authority=True)
            chain.append(_pem(issuer.certificate))
        made = _issue(name, issuer)
        path = self.folder / f"{name}.pem"
        path.write_bytes(_pem_key(made.key) + _pem(made.certificate) + b"".join(reversed(chain)))
        return path


def shown_certificate(host: str, port: int, *, timeout_s: float) -> str:
    """Return the certificate that a listener shows, as PEM, whoever signed it. Raises OSError."""
    return ssl.get_server_certificate((host, port), timeout=timeout_s)


def first_certificate(path: Path) -> str:
    """Return the first certificate of a PEM file."""
    begin = "-----BEGIN CERTIFICATE-----"
    return begin + path.read_text().partition(begin)[2].partition("-----END")[0]


def _issue(name: str, issuer: Issuer | None, *, hosts: Iterable[str] = (), authority: bool = False) -> Issuer:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    draft = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LASTS)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    names = [_general_name(each) for each in hosts]
    if names:
        draft = draft.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issuer(draft.sign(key if issuer is None else issuer.key, hashes.SHA256()), key)


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
