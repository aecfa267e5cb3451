"""Attacks on TLS show to a node exactly what they claim to show."""

from __future__ import annotations

import ssl
from itertools import pairwise
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

from raftlog_chaos.attacks.tls import long_chain


def test_a_long_chain_has_as_many_authorities_as_asked_for(tmp_path: Path) -> None:
    """Each has signed its predecessor, and OpenSSL accepts them and the key as a client's."""
    path = tmp_path / "mallory.pem"
    path.write_bytes(long_chain("mallory", 5))
    chain = load_pem_x509_certificates(path.read_bytes())
    assert len(chain) == 6
    for one, signer in pairwise(chain):
        one.verify_directly_issued_by(signer)
    ssl.create_default_context().load_cert_chain(path)
