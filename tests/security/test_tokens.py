"""raftlog.security.tokens: what proves a token is computed from its id, the same everywhere, and found in no time."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
import scramp

from raftlog.security.scram import HASHES, ScramServer
from raftlog.security.tokens import DelegationToken, TokenKey

KEY = "the key of tokens"


def token(token_id: str = "id", **changes: object) -> DelegationToken:
    fields: dict[str, object] = {
        "owner": "User:al",
        "requester": "User:bob",
        "renewers": ("User:cy",),
        "issued_ms": 1_000,
        "expires_ms": 2_000,
        "max_ms": 3_000,
    }
    return DelegationToken(token_id, **(fields | changes))  # type: ignore[arg-type]


def test_the_proof_is_the_hmac_that_kafka_computes() -> None:
    """HMAC-SHA-512 of the id under the secret key. Source: KIP-48, DelegationTokenManager."""
    expected = hmac.new(KEY.encode(), b"id", hashlib.sha512).digest()
    assert TokenKey(KEY).hmac_of("id") == expected
    assert TokenKey("another").hmac_of("id") != expected


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_the_proof_in_base64_is_the_password_of_scram(mechanism: str) -> None:
    """A client of another implementation logs in with it, and nodes with the same key give the same salt."""
    tokens = {"id": token()}
    key = TokenKey(KEY)
    kept = key.credential(mechanism, "id", tokens)
    assert kept == TokenKey(KEY).credential(mechanism, "id", tokens)
    assert key.credential(mechanism, "id", tokens) is kept
    password = base64.b64encode(key.hmac_of("id")).decode()
    client = scramp.ScramClient([mechanism], "id", password)
    server = ScramServer(mechanism, lambda user, extensions: kept, lambda: "nonce")
    client.set_server_first(server.first(client.get_client_first().encode()).decode())
    verifier, login = server.final(client.get_client_final().encode())
    client.set_server_final(verifier.decode())
    assert login.user == "id"


def test_a_token_is_found_by_its_proof_while_it_is_there() -> None:
    """By no other bytes, also after tokens have come and gone."""
    key = TokenKey(KEY)
    first, second = {"a": token("a")}, {"b": token("b"), "a": token("a", expires_ms=2_500)}
    assert key.find(first, key.hmac_of("a")) is first["a"]
    assert key.find(second, key.hmac_of("a")) is second["a"]
    assert key.find(second, key.hmac_of("b")) is second["b"]
    assert key.find({}, key.hmac_of("a")) is None
    for wrong in (b"", b"a", key.hmac_of("c"), key.hmac_of("a")[:-1]):
        assert key.find(second, wrong) is None


def test_credentials_of_removed_tokens_are_removed() -> None:
    """Credentials of tokens that are gone go as well."""
    key = TokenKey(KEY)
    for number in range(20):
        key.credential("SCRAM-SHA-256", str(number), {str(number): token(str(number))})
    assert len(key._credentials) <= 2 * len(HASHES) + 1


def test_a_token_concerns_its_owner_its_requester_and_its_renewers() -> None:
    """The requester sees it and does not renew it. Source: KIP-373."""
    found = {
        user: (token().may_be_renewed_by(user), token().concerns(user))
        for user in map("User:{}".format, ("al", "bob", "cy", "dan"))
    }
    assert found == {
        "User:al": (True, True),
        "User:bob": (False, True),
        "User:cy": (True, True),
        "User:dan": (False, False),
    }


def test_a_token_holds_until_the_end_of_its_last_millisecond() -> None:
    """As Kafka compares: it expired when its time is less than now."""
    assert not token().is_expired(2_000)
    assert token().is_expired(2_001)


def test_the_key_is_in_no_text() -> None:
    """Neither of the object nor of what it gives to others."""
    key = TokenKey(KEY)
    assert KEY not in repr(key) + repr(vars(key)["_tokens"])
    assert TokenKey("").is_set is False and key.is_set
