"""The server's side of SCRAM: the RFCs' own examples, another implementation as the client, and what must fail."""

from __future__ import annotations

import pytest
import scramp

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.security.scram import HASHES, ScramServer, credential, made_up

SECRET = b"s" * 32


def server(mechanism="SCRAM-SHA-256", password="pencil", *, nonce="srv", iterations=4_096, user="user"):
    kept = credential(mechanism, password, b"salt" * 6, iterations)

    def find(asked, _extensions):
        return kept if asked == user else made_up(mechanism, asked, SECRET)

    return ScramServer(mechanism, find, lambda: nonce)


def log_in(mechanism, password, *, user="user", against=None):
    """Log in with an independent client; return the user as the server sees it."""
    client = scramp.ScramClient([mechanism], user, password)
    ours = against or server(mechanism)
    client.set_server_first(ours.first(client.get_client_first().encode()).decode())
    verifier, login = ours.final(client.get_client_final().encode())
    client.set_server_final(verifier.decode())
    return login.user


def test_messages_are_those_of_rfc_7677():
    """All messages are the RFC's, byte for byte. Source: RFC 7677, section 3."""
    from base64 import b64decode

    kept = credential("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4_096)
    ours = ScramServer("SCRAM-SHA-256", lambda *_: kept, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert ours.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    verifier, login = ours.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert verifier == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login == ("user", {})


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_a_foreign_client_logs_in_with_the_right_password_only(mechanism):
    """The other side is `scramp`, written by others. Source: RFC 5802."""
    assert log_in(mechanism, "pencil") == "user"
    with pytest.raises(SaslAuthenticationFailed):
        log_in(mechanism, "pen")


def test_an_unknown_user_is_answered_alike_and_refused():
    """Salt and iterations are the same each time, so that a repeated request reveals no more."""
    first = [server().first(b"n,,n=nobody,r=abc") for _ in range(2)]
    assert first[0] == first[1]
    assert first[0].endswith(b",i=4096")
    assert server().first(b"n,,n=another,r=abc") != first[0]
    with pytest.raises(SaslAuthenticationFailed):
        log_in("SCRAM-SHA-256", "pencil", user="nobody")


def test_the_final_message_must_bring_the_whole_nonce():
    """CVE-2024-56128: with another nonce the proof is not of this exchange, even if it fits its own text."""
    import base64
    import hashlib
    import hmac

    ours = server()
    answer = ours.first(b"n,,n=user,r=abc").decode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt" * 6, 4_096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    unproven = "c=biws,r=abcanother"
    said = f"n=user,r=abc,{answer},{unproven}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(SaslAuthenticationFailed):
        ours.final(f"{unproven},p={proof}".encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us\x00er,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"\xff\xfe",
    ],
)
def test_a_first_message_that_is_none_is_refused(message):
    """Malformed names, channel binding and foreign authorization ids end the login. Source: RFC 5802, section 7."""
    with pytest.raises(SaslAuthenticationFailed):
        server().first(message)


def test_names_are_unescaped_and_extensions_read():
    """`=2C` is a comma and `=3D` an equals sign, once. Source: RFC 5802, section 5.1."""
    asked = []

    def find(user, extensions):
        asked.append((user, extensions))
        return made_up("SCRAM-SHA-256", user, SECRET)

    ScramServer("SCRAM-SHA-256", find, lambda: "x").first(b"n,,n=a=2Cb=3D2C,r=abc,tokenauth=true")
    assert asked == [("a,b=2C", {"tokenauth": "true"})]


def test_an_exchange_goes_once():
    """A final message neither comes first nor twice."""
    ours = server()
    with pytest.raises(SaslAuthenticationFailed):
        ours.final(b"c=biws,r=abc,p=AAAA")
    client = scramp.ScramClient(["SCRAM-SHA-256"], "user", "pencil")
    client.set_server_first(ours.first(client.get_client_first().encode()).decode())
    final = client.get_client_final().encode()
    ours.final(final)
    with pytest.raises(SaslAuthenticationFailed):
        ours.final(final)


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_a_made_up_credential_looks_like_one_that_there_is(mechanism):
    """Java's admin client sends salts of letters and digits; iterations are what administrators choose."""
    kept = credential(mechanism, "pencil", b"1a2b3c4d5e6f7g8h9i0j1k2l3m", 8_192)
    fake = made_up(mechanism, "nobody", SECRET, like=[kept])
    assert (len(fake.salt), fake.salt.isalnum(), fake.iterations) == (26, True, 8_192)
    assert (len(fake.stored_key), len(fake.server_key)) == (len(kept.stored_key), len(kept.server_key))
    assert fake == made_up(mechanism, "nobody", SECRET, like=[kept])
