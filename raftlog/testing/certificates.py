"""Certificates for development: an authority, and the certificates that it issues for nodes and users, as PEM files.

    FOLDER/ca.pem             the authority's certificate, which everyone believes
    FOLDER/ca.key             its key, for `renew` only
    FOLDER/nodes/HOST.pem     a node's certificate and key, for that host and its other names
    FOLDER/users/NAME.pem     a client's certificate and key, for CN=NAME

Keys have mode 0600. A certificate is replaced in one step, so that a node that looks at it never sees half of it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.config.network import is_host
from raftlog.base.disk import make_folders, write_file

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

DAYS: Final = 365
LONGEST_DAYS: Final = 3650
AUTHORITY_DAYS: Final = 3650
MAX_NAME_CHARS: Final = 64
"""The maximum length of a common name (X.520's ub-common-name)."""
_SKEW: Final = timedelta(minutes=5)
"""Other machines' clocks may be so far behind."""
_USER: Final = re.compile(r"[A-Za-z0-9_@+](?:[A-Za-z0-9_@+. -]*[A-Za-z0-9_@+])?")


class CertificatesUnusable(Exception):
    """The certificates cannot be made; the message says why and never shows a key."""


class CertificateExists(CertificatesUnusable):
    """A file would be overwritten."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The folder of an authority and of what it has issued."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """The authority's key."""
        return self.folder / "ca.key"

    def node(self, host: str) -> Path:
        """Return the file of a node's certificate and key."""
        return self.folder / "nodes" / f"{host.replace('*', '_').replace(':', '_')}.pem"

    def user(self, name: str) -> Path:
        """Return the file of a user's certificate and key."""
        return self.folder / "users" / f"{name}.pem"

    def node_settings(self, host: str) -> dict[str, str]:
        """Return the settings of a node that shows its certificate and believes this authority."""
        return store_settings(self.node(host), self.ca)

    def make(
        self,
        hosts: Sequence[Sequence[str]],
        users: Sequence[str] = (),
        *,
        days: int = DAYS,
        renew: bool = False,
    ) -> list[Path]:
        """Issue a certificate for each host, which is a list of its names, and for each user; returns their files.

        The authority is made by the first call. Without `renew` no file is overwritten. Raise CertificatesUnusable.
        """
        if not 1 <= days <= LONGEST_DAYS:
            raise CertificatesUnusable(f"days must be from 1 to {LONGEST_DAYS}, not {days}")
        wanted = [(self.node(names[0]), names[0], names) for names in hosts]
        wanted += [(self.user(name), name, ()) for name in users]
        _check(hosts, users, [path for path, _, _ in wanted])
        there = [path for path, _, _ in wanted if path.exists()]
        if there and not renew:
            raise CertificateExists(
                f"{there[0]} already exists; --renew issues a new certificate of the same CA"
            )
        try:
            authority = self._authority(renew)
            for path, name, names in wanted:
                _write(path, authority.issue(name, names, days), secret=True)
        except OSError as error:
            raise CertificatesUnusable(f"{error.filename}: {error.strerror}") from None
        return [path for path, _, _ in wanted]

    def _authority(self, renew: bool) -> Authority:
        if self.ca.exists() != self.ca_key.exists():
            missing = self.ca_key if self.ca.exists() else self.ca
            raise CertificatesUnusable(f"{missing} is missing: {self.folder} has no authority that can issue")
        if self.ca.exists():
            return Authority.read(self.ca, self.ca_key)
        if renew:
            raise CertificatesUnusable(f"{self.folder} has no authority: no certificate can be renewed")
        authority = Authority.make()
        _write(self.ca_key, authority.key_pem(), secret=True)
        _write(self.ca, authority.certificate_pem(), secret=False)
        return authority


def store_settings(keystore: Path, ca: Path) -> dict[str, str]:
    """Return the settings of a node that shows the certificate of one PEM file and believes that of another."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }


def _check(hosts: Sequence[Sequence[str]], users: Sequence[str], paths: Sequence[Path]) -> None:
    for name in (each for names in hosts for each in names):
        if not is_host(name.removeprefix("*.")) or len(name) > MAX_NAME_CHARS:
            raise CertificatesUnusable(
                f"{name!r} is no host name of {MAX_NAME_CHARS} characters, and no address"
            )
    for name in users:
        if not _USER.fullmatch(name) or len(name) > MAX_NAME_CHARS:
            raise CertificatesUnusable(
                f"user {name!r}: 1 to {MAX_NAME_CHARS} letters, digits, spaces and _ @ + . - inside"
            )
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise CertificatesUnusable(f"{twice.stem} is named twice")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Authority:
    """A certificate that may sign others, with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, *, path_length: int = 0, issuer: Authority | None = None) -> Authority:
        """Make a new authority, signed by itself or by an issuer, with a limit for authorities below it."""
        x509, ec = _cryptography()
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"raftlog development CA {os.urandom(4).hex()}")
        signed_by = name if issuer is None else issuer._certificate.subject
        builder = _begin(name, signed_by, key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=path_length), critical=True
        )
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(key, _sign(builder, key if issuer is None else issuer._key))

    @classmethod
    def read(cls, ca: Path, ca_key: Path) -> Authority:
        """Read the files. Raises CertificatesUnusable, OSError."""
        x509, ec = _cryptography()
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(ca_key.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(ca.read_bytes())
        except (ValueError, TypeError):
            raise CertificatesUnusable(f"{ca} and {ca_key} are not what raftlog certs wrote") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise CertificatesUnusable(f"{ca_key} is not the key of {ca}")
        return cls(key, certificate)

    def issue(self, name: str, hosts: Sequence[str], days: int) -> bytes:
        """Return a certificate, this authority's, and the key, as PEM; with `hosts` it is a node's."""
        x509, ec = _cryptography()
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begin(_name(name), self._certificate.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        # a node is also a client of other nodes
        usages = [Usage.SERVER_AUTH, Usage.CLIENT_AUTH] if hosts else [Usage.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = [
                x509.IPAddress(ipaddress.ip_address(each)) if _is_address(each) else x509.DNSName(each)
                for each in hosts
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pem(_sign(builder, self._key)) + self.certificate_pem() + _key_pem(key)

    def certificate_pem(self) -> bytes:
        """Return the certificate as PEM."""
        return _pem(self._certificate)

    def key_pem(self) -> bytes:
        """Return the key as PEM."""
        return _key_pem(self._key)


def _begin(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    x509, _ = _cryptography()
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _SKEW).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _sign(builder: Any, key: Any) -> x509.Certificate:
    from cryptography.hazmat.primitives.hashes import SHA256

    certificate: x509.Certificate = builder.sign(key, SHA256())
    return certificate


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    library, _ = _cryptography()
    usage: x509.KeyUsage = library.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
    return usage


def _name(common_name: str) -> x509.Name:
    library, _ = _cryptography()
    from cryptography.x509.oid import NameOID

    name: x509.Name = library.Name([library.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return name


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a file atomically; a secret file is never readable for others."""
    make_folders(path.parent)
    write_file(path, content, secret=secret, beside=f".{os.getpid()}.new")


def _cryptography() -> tuple[Any, Any]:
    """Return cryptography's x509 and its elliptic curves. Raises CertificatesUnusable."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise CertificatesUnusable(
            "this needs another package: pip install cryptography (the extra tls)"
        ) from None
    return x509, ec
