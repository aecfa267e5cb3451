"""raftlog.base.distinguished_names: names as X500Principal.getName() writes them, of which Kafka makes principals."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.distinguished_names import UnreadableName, subject_of

KEY = ec.generate_private_key(ec.SECP256R1())
Part = tuple[x509.ObjectIdentifier, str]


def certificate(*parts: tuple[Part, ...]) -> bytes:
    """Return a certificate in DER with a subject of these parts, each with a value or several."""
    names = [
        x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in each])
        for each in parts
    ]
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
ORGANIZATION, COUNTRY = NameOID.ORGANIZATION_NAME, NameOID.COUNTRY_NAME


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            (((COUNTRY, "DE"),), ((ORGANIZATION, "There"),), ((OU, "Here"),), ((CN, "alice"),)),
            "CN=alice,OU=Here,O=There,C=DE",
        ),
        ((((CN, 'a,b+c"d\\e<f>g;h#i=j'),),), r"CN=a\,b\+c\"d\\e\<f\>g\;h\#i\=j"),
        ((((CN, "  two blanks "),),), r"CN=\ \ two blanks\ "),
        ((((CN, "Zoë 東"),),), "CN=Zoë 東"),
        (
            (((NameOID.DOMAIN_COMPONENT, "org"),), ((NameOID.DOMAIN_COMPONENT, "example"),)),
            "DC=example,DC=org",
        ),
        ((((NameOID.USER_ID, "u1"),), ((NameOID.STREET_ADDRESS, "s"),)), "STREET=s,UID=u1"),
        ((((NameOID.STATE_OR_PROVINCE_NAME, "B"),), ((NameOID.LOCALITY_NAME, "L"),)), "L=L,ST=B"),
        ((((NameOID.EMAIL_ADDRESS, "a@b"),), ((CN, "x"),)), "CN=x,1.2.840.113549.1.9.1=#1603614062"),
        ((((NameOID.SERIAL_NUMBER, "12"),),), "2.5.4.5=#13023132"),
        ((), ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(parts: tuple[tuple[Part, ...], ...], text: str) -> None:
    """RFC 2253, with the nine short names that Java's form of it has; other parts by number and bytes."""
    assert subject_of(certificate(*parts)) == text


def test_values_that_belong_together_stay_together() -> None:
    """A part of several values, which DER sorts."""
    assert subject_of(certificate(((CN, "a"), (OU, "b")), ((ORGANIZATION, "c"),))) == "O=c,CN=a+OU=b"


@pytest.mark.parametrize(
    "value",
    [
        b"\x0c\x04Zo\xc3\xab",
        b"\x14\x03Zo\xeb",
        b"\x1e\x06\0Z\0o\0\xeb",
        b"\x1c\x0c\0\0\0Z\0\0\0o\0\0\0\xeb",
    ],
)
def test_every_encoding_of_a_text_is_read(value: bytes) -> None:
    """UTF-8, and what old authorities wrote: T61 as latin-1, UTF-16, UTF-32."""
    assert subject_of(_with_value(value)) == "CN=Zoë"


def _with_value(value: bytes) -> bytes:
    """Return the shape of a certificate around one encoded value of a common name."""

    def wrap(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    part = wrap(0x31, wrap(0x30, b"\x06\x03\x55\x04\x03" + value))
    empty = wrap(0x30, b"")
    return wrap(0x30, wrap(0x30, b"\x02\x01\x01" + empty * 3 + wrap(0x30, part) + empty))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_certificate_are_refused_and_nothing_else_happens(encoded: bytes) -> None:
    """OpenSSL has looked at them before; still, only one error leaves."""
    try:
        subject_of(encoded)
    except UnreadableName:
        pass


def test_a_certificate_that_is_cut_anywhere_is_refused_or_named() -> None:
    """No other exception, wherever the cut is."""
    whole = certificate(((CN, "alice"),))
    for end in range(len(whole)):
        with pytest.raises(UnreadableName):
            subject_of(whole[:end])
