"""Claims about `raftlog certs`: a CA and what it issues, as TLS of Python and nodes take it."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.testing.certificates import Certificates, CertificatesUnusable
from tests.cli.live import invoke


def _handshake(certificates: Certificates, host: str, name: str, user: str) -> dict[str, object]:
    """Connect to `name` at a server with the certificate of `host`; return the principal that the server sees."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    server.load_cert_chain(certificates.node(host))
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificates.ca)
    client.load_cert_chain(certificates.user(user))
    ours, theirs = socket.socketpair()
    found: list[dict[str, object]] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as connection:
                found.append(dict(connection.getpeercert() or {}))
                connection.sendall(b"!")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            connection.recv(1)
    finally:
        ours.close()
        thread.join()
    return found[0]


def test_one_command_makes_what_nodes_and_clients_need(tmp_path: Path) -> None:
    """Every name of a host is in its certificate, a user's name is its principal's, and keys are private."""
    code, out, _ = invoke("certs", str(tmp_path), "--host", "node1,localhost,127.0.0.1", "--user", "alice")
    assert code == 0
    made = Certificates(tmp_path)
    assert f"ssl.keystore.location={made.node('node1')}" in out and f"ssl.ca.location={made.ca}" in out
    for name in ("node1", "localhost", "127.0.0.1"):
        assert _handshake(made, "node1", name, "alice")["subject"] == ((("commonName", "alice"),),)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(made, "node1", "node2", "alice")
    for path in (made.ca_key, made.node("node1"), made.user("alice")):
        assert path.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE KEY" not in made.ca.read_text() + out


def test_nothing_is_overwritten_but_by_renew_which_keeps_the_ca(tmp_path: Path) -> None:
    """Clients that trust the CA trust the new certificates; further certificates are from the same CA, too."""
    made = Certificates(tmp_path)
    host = ("certs", str(tmp_path), "--host", "node1")
    assert invoke(*host)[0] == 0
    before = {path: path.read_bytes() for path in (made.ca, made.ca_key, made.node("node1"))}
    code, _, err = invoke(*host, "--user", "alice")
    assert code == exits.EXISTS and "--renew" in err
    assert before == {path: path.read_bytes() for path in before} and not made.user("alice").exists()
    assert invoke("certs", str(tmp_path), "--user", "alice")[0] == 0
    assert invoke(*host, "--renew", "--days", "30")[0] == 0
    assert (
        made.ca.read_bytes() == before[made.ca]
        and made.node("node1").read_bytes() != before[made.node("node1")]
    )
    _handshake(made, "node1", "node1", "alice")
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--host NAME or --user NAME"),
        (("--host", "../x"), "no host name"),
        (("--host", "a" * 65), "no host name of 64"),
        (("--host", "node1,"), "no host name"),
        (("--user", "../x"), "user '../x'"),
        (("--user", "a", "--user", "a"), "a is named twice"),
        (("--host", "node1", "--days", "0"), "days must be from 1"),
        (("--host", "node1", "--renew"), "no certificate can be renewed"),
    ],
)
def test_names_that_cannot_be_are_refused_and_nothing_is_made(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """No name leads out of the folder."""
    code, _, err = invoke("certs", str(tmp_path / "new"), *arguments)
    assert code != 0 and said in err
    assert not (tmp_path / "new").exists()


def test_a_folder_without_its_key_or_with_another_one_issues_nothing(tmp_path: Path) -> None:
    """No client would trust a new CA in its place."""
    made, other = Certificates(tmp_path / "a"), Certificates(tmp_path / "b")
    made.make([["node1"]])
    other.make([["node1"]])
    made.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(CertificatesUnusable, match=f"{made.ca_key} .* {made.ca}"):
        made.make([["node2"]])
    made.ca_key.write_text("nonsense")
    with pytest.raises(CertificatesUnusable, match=f"{made.ca} and {made.ca_key}"):
        made.make([["node2"]])
    made.ca_key.unlink()
    with pytest.raises(CertificatesUnusable, match=f"{made.ca_key} .*: {made.ca.parent} "):
        made.make([["node2"]])
