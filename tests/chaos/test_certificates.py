"""raftlog_chaos.certificates: what a run's authority issues, TLS believes; and a renewed certificate is another one."""

from __future__ import annotations

import ssl
from pathlib import Path

from raftlog_chaos.certificates import Authority, first_certificate

HOST = "127.0.0.1"


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Make the handshake of both in memory. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=HOST),
        server.wrap_bio(up, down, server_side=True),
    )
    for _ in range(4):
        for each in ends:
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_a_keystore_is_believed_by_who_has_the_authority(tmp_path: Path) -> None:
    """With its host's address in it, before and after it was renewed."""
    authority = Authority(tmp_path)
    before = ""
    for _ in range(2):
        keystore = authority.keystore("node", HOST)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(keystore)
        shake_hands(server, ssl.create_default_context(cafile=str(authority.path)))
        shown = first_certificate(keystore)
        assert shown.startswith("-----BEGIN CERTIFICATE-----") and shown != before
        before = shown


def test_a_long_chain_has_as_many_certificates_as_asked_for(tmp_path: Path) -> None:
    """Beside the client's own; they hang together."""
    path = Authority(tmp_path).long_chain("client", 5)
    assert path.read_text().count("BEGIN CERTIFICATE") == 6
    ssl.create_default_context().load_cert_chain(path)
