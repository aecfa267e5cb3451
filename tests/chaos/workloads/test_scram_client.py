"""raftlog_chaos.workloads.scram_client against raftlog's server and RFC 7677's example."""

from __future__ import annotations

from base64 import b64decode

import pytest

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.security.scram import MIN_ITERATIONS, ScramServer, credential
from raftlog_chaos.workloads.scram_client import HASHES, ScramClient


def test_the_example_of_rfc_7677() -> None:
    """Byte by byte, the server's proof included."""
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    given = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.final(given).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert client.is_server(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert not client.is_server(b"v=" + b64decode(b"AAAA"))


@pytest.mark.parametrize("mechanism", HASHES)
def test_the_right_password_gets_in_and_lies_do_not(mechanism: str) -> None:
    """Names with a comma and an equals sign too; another nonce is refused."""
    kept = credential(mechanism, "secret", b"salt" * 4, MIN_ITERATIONS)
    for password, nonce, gets_in in (("secret", "", True), ("guess", "", False), ("secret", "abc", False)):
        server = ScramServer(mechanism, lambda *_: kept, lambda: "server's")
        client = ScramClient(mechanism, "a,b=c", password, "abc")
        final = client.final(server.first(client.first()), nonce=nonce)
        if gets_in:
            proof, login = server.final(final)
            assert client.is_server(proof) and login.user == "a,b=c"
        else:
            with pytest.raises(SaslAuthenticationFailed):
                server.final(final)
