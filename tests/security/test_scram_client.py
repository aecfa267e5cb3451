"""raftlog.security.scram_client: logs in at our server and at another, and each has to prove itself, too."""

from __future__ import annotations

from base64 import b64encode

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.security.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, ScramServer, credential
from raftlog.security.scram_client import ScramClient, ServerUnproven
from raftlog.security.tokens import EXTENSION

MECHANISM = "SCRAM-SHA-256"


def server_of(mechanism: str, password: str = "secret") -> ScramServer:
    kept = credential(mechanism, password, b"some salt of it", MIN_ITERATIONS)
    return ScramServer(mechanism, lambda user, extensions: kept, lambda: "server")


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C"])
@pytest.mark.parametrize("with_token", [False, True])
def test_it_logs_in_with_the_right_password(mechanism: str, user: str, with_token: bool) -> None:
    """Names are escaped, and the extension of tokens is said where it is asked for."""
    server, client = (
        server_of(mechanism),
        ScramClient(mechanism, user, "secret", nonce="n", with_token=with_token),
    )
    verifier, login = server.final(client.final(server.first(client.first())))
    client.verify(verifier)
    assert login == (user, {EXTENSION: "true"} if with_token else {})
    client = ScramClient(mechanism, user, "a guess", nonce="n")
    server = server_of(mechanism)
    with pytest.raises(SaslAuthenticationFailed):
        server.final(client.final(server.first(client.first())))


def test_messages_are_those_of_rfc_7677() -> None:
    """Byte by byte, the server's proof included."""
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    given = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.final(given).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_it_logs_in_at_a_server_of_another_implementation() -> None:
    """scramp's. Source: RFC 7677."""
    mechanism = scramp.ScramMechanism(MECHANISM)
    kept = mechanism.make_auth_info("secret")
    server = mechanism.make_server(lambda user: kept)
    client = ScramClient(MECHANISM, "alice", "secret", nonce="n")
    server.set_client_first(client.first().decode())
    server.set_client_final(client.final(server.get_server_first().encode()).decode())
    client.verify(server.get_server_final().encode())


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    """It cannot show the verifier; nor can it come before the proof."""
    client = ScramClient(MECHANISM, "alice", "secret", nonce="n")
    with pytest.raises(ServerUnproven):
        client.verify(b"v=")
    server = server_of(MECHANISM, "another")
    client.final(server.first(client.first()))
    for said in (b"", b"v=", b"v=" + b64encode(bytes(32)), b"e=other-error"):
        with pytest.raises(ServerUnproven):
            client.verify(said)


@pytest.mark.parametrize(
    "said",
    [
        b"r=another,s=c2FsdA==,i=4096",
        b"r=n,s=c2FsdA==,i=0",
        b"r=n,s=c2FsdA==,i=" + str(MAX_ITERATIONS + 1).encode(),
        b"r=n,s=c2FsdA==,i=many",
        b"r=n,s=?,i=4096",
        b"r=n,i=4096",
        b"e=unknown-user",
        b"\xff",
    ],
)
def test_a_server_with_another_nonce_or_too_much_work_is_refused(said: bytes) -> None:
    """A false broker may neither replay nor keep a command busy."""
    with pytest.raises(ServerUnproven):
        ScramClient(MECHANISM, "alice", "secret", nonce="n").final(said)


@given(st.binary(max_size=60))
def test_no_message_of_a_server_is_another_failure(said: bytes) -> None:
    """A false broker may say anything."""
    client = ScramClient(MECHANISM, "alice", "secret", nonce="n")
    with pytest.raises(ServerUnproven):
        client.final(said)
    with pytest.raises(ServerUnproven):
        client.verify(said)
