"""raftlog.security.bearer_tokens: which tokens log their bearer in (RFC 7519, RFC 8725, KIP-768)."""

from __future__ import annotations

import hmac
import json
import warnings
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import serialize_compact

from raftlog.security.bearer_tokens import (
    ALGORITHMS,
    MAX_EXPIRES_S,
    MAX_JWKS_BYTES,
    MAX_KEYS,
    TokenRefused,
    TokenRules,
    UnknownKey,
    UnusableKeys,
    VerifiedToken,
    read_jwks,
    verify_token,
)
from tests.kit.identity_provider import AUDIENCE, ISSUER, make_key, sign

NOW_S = 1_700_000_000
SKEW_S = 30
RULES = TokenRules(ISSUER, ("other", AUDIENCE), SKEW_S)
KEYS = {algorithm: make_key(algorithm) for algorithm in ("RS256", "ES256", "ES384", "ES512", "EdDSA")}
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


JWKS = read_jwks(jwks(*KEYS.values()))


def verify(token: str, rules: TokenRules = RULES, now_s: float = NOW_S) -> VerifiedToken:
    return verify_token(token, JWKS, rules, now_ms=int(now_s * 1000))


def signed(**claims: Any) -> str:
    """A token with these claims; None leaves a claim out."""
    merged = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return sign(KEYS["ES256"], "ES256", merged)


def refusal(token: str, rules: TokenRules = RULES, now_s: float = NOW_S) -> TokenRefused:
    with pytest.raises(TokenRefused) as refused:
        verify(token, rules, now_s)
    return refused.value


def encoded(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


# --- what is taken


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_that_is_allowed_is_verified(algorithm: str) -> None:
    """And its library emits no warning, not even for the name EdDSA."""
    key = make_key("RS256" if ALGORITHMS[algorithm] == "RSA" else algorithm, "own")
    token = sign(key, algorithm, CLAIMS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = verify_token(token, read_jwks(jwks(key)), RULES, now_ms=NOW_S * 1000)
    assert found == VerifiedToken("alice", (NOW_S + 60) * 1000, ())


def test_the_claims_of_user_and_scopes_may_have_other_names() -> None:
    """sasl.oauthbearer.sub.claim.name, sasl.oauthbearer.scope.claim.name; scopes are a text or a list."""
    rules = RULES._replace(subject_claim="azp", scope_claim="scp")
    assert verify(signed(azp="billing", scp="read write"), rules).subject == "billing"
    assert verify(signed(azp="billing", scp="read  write"), rules).scopes == ("read", "write")
    assert verify(signed(azp="billing", scp=["read", "write"]), rules).scopes == ("read", "write")


def test_without_an_expected_issuer_and_audience_any_is_taken() -> None:
    """As in Kafka, which makes its settings optional: the keys alone decide then."""
    for claims in ({"iss": "https://elsewhere", "aud": ["x"]}, {"iss": None, "aud": None}):
        assert verify(signed(**claims), TokenRules()).subject == "alice"


def test_one_of_several_audiences_is_enough() -> None:
    """Of the token's as well as of the setting's."""
    assert verify(signed(aud=["web", "other"])).subject == "alice"


def test_clocks_may_differ_by_the_skew() -> None:
    """sasl.oauthbearer.clock.skew.seconds, in both directions."""
    early, late = signed(iat=NOW_S + SKEW_S, nbf=NOW_S + SKEW_S), signed(exp=NOW_S - SKEW_S + 1)
    assert verify(early).subject == verify(late).subject == "alice"
    assert refusal(early, now_s=NOW_S - 1).reason == "not_yet_valid"
    assert refusal(late, now_s=NOW_S + 1).reason == "expired"


def test_a_token_without_kid_is_of_the_only_key_that_fits() -> None:
    """A JWKS of one key needs no ids; if several fit, there is no guess."""
    token = jwt.encode({"alg": "ES256"}, dict(CLAIMS), KEYS["ES256"])
    assert verify(token).subject == "alice"
    two = read_jwks(jwks(KEYS["ES256"], make_key("ES256", "another")))
    with pytest.raises(TokenRefused) as refused:
        verify_token(token, two, RULES, now_ms=NOW_S * 1000)
    assert refused.value.reason == "malformed"


# --- what is not


def test_an_unsigned_token_is_refused() -> None:
    """Kafka's default validator accepts them (KIP-255); raftlog does not."""
    for algorithm in ("none", "None", "NONE", "nOnE", ""):
        token = f"{encoded({'alg': algorithm, 'kid': 'es256'})}.{encoded(CLAIMS)}."
        assert refusal(token).reason == "algorithm"
    header, claims, _ = signed().split(".")
    assert refusal(f"{header}.{claims}.").reason == "bad_signature"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_what_everybody_knows_is_refused(algorithm: str) -> None:
    """The public key as the secret of an HMAC (CVE-2015-9235 and its successors), in each form it may have."""
    public = KEYS["RS256"]
    pem, der = public.as_pem(private=False), public.as_der(private=False)
    for secret in (pem, pem.strip(), der, jwks(public), str(public.as_dict()["n"]).encode(), b""):
        signing_input = f"{encoded({'alg': algorithm, 'kid': 'rs256'})}.{encoded(CLAIMS)}"
        signature = hmac.digest(secret, signing_input.encode(), f"sha{algorithm[2:]}")
        assert refusal(f"{signing_input}.{encoded(signature)}").reason == "algorithm"


def test_an_algorithm_of_another_type_of_key_is_refused() -> None:
    """A header that names a key and an algorithm it is not for."""
    token = sign(make_key("ES256", "rs256"), "ES256", CLAIMS)
    assert isinstance(refusal(token), UnknownKey)


def test_an_unknown_key_is_distinguished_from_a_wrong_signature() -> None:
    """Newer keys may have it, so the caller may look again."""
    assert isinstance(refusal(sign(make_key("ES256", "new"), "ES256", CLAIMS)), UnknownKey)
    wrong = refusal(sign(make_key("ES256", "es256"), "ES256", CLAIMS))
    assert (wrong.reason, isinstance(wrong, UnknownKey)) == ("bad_signature", False)


def test_a_key_that_the_token_brings_along_is_not_looked_at() -> None:
    """Headers jwk, jku and x5c name keys of the sender's own choice (RFC 8725, 3.10)."""
    own = make_key("ES256", "es256")
    header = {"jwk": own.as_dict(private=False), "jku": "http://127.0.0.1/keys"}
    assert refusal(sign(own, "ES256", CLAIMS, **header)).reason == "bad_signature"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - SKEW_S}, "expired"),
        ({"exp": -(10**300)}, "expired"),
        ({"exp": None}, "malformed"),
        ({"exp": "soon"}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"iat": None}, "malformed"),
        ({"iat": NOW_S + SKEW_S + 1}, "not_yet_valid"),
        ({"nbf": NOW_S + SKEW_S + 1}, "not_yet_valid"),
        ({"nbf": []}, "malformed"),
        ({"iss": None}, "wrong_issuer"),
        ({"iss": ISSUER + "/"}, "wrong_issuer"),
        ({"iss": [ISSUER, 5]}, "wrong_issuer"),
        ({"aud": None}, "wrong_audience"),
        ({"aud": "kafk"}, "wrong_audience"),
        ({"aud": []}, "wrong_audience"),
        ({"aud": {AUDIENCE: 1}}, "wrong_audience"),
        ({"sub": None}, "no_subject"),
        ({"sub": " "}, "no_subject"),
        ({"sub": ["alice"]}, "no_subject"),
        ({"sub": "x" * 1025}, "no_subject"),
        ({"scope": 5}, "malformed"),
        ({"scope": ["read", 5]}, "malformed"),
    ],
)
def test_a_token_for_another_time_or_place_is_refused(claims: dict[str, Any], reason: str) -> None:
    """With a word that metrics count, and a sentence for the operator."""
    refused = refusal(signed(**claims))
    assert refused.reason == reason
    assert 10 < len(refused.advice) < 500


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "1" + "0" * 5000])
def test_a_time_that_is_no_number_is_none(value: str) -> None:
    """Every comparison with NaN is false, so such a token would never expire."""
    text = json.dumps(CLAIMS).replace(str(NOW_S + 60), value)
    token = serialize_compact({"alg": "ES256", "kid": "es256"}, text, KEYS["ES256"])
    assert refusal(token).reason == "malformed"


def test_a_token_never_outlives_the_calendar() -> None:
    """A time beyond the year 9999 is its end."""
    assert verify(signed(exp=10**300)).expires_ms == MAX_EXPIRES_S * 1000


@pytest.mark.parametrize(
    "header",
    [
        [],
        "alg",
        5,
        None,
        {},
        {"alg": []},
        {"alg": "ES256", "kid": 5},
        {"alg": "ES256", "kid": "es256", "crit": ["exp"], "exp": 1},
        {"alg": "ES256", "kid": "es256", "crit": ["b64"], "b64": False},
        b"\xff\xfe",
        b'{"alg": "ES256"',
        b'{"alg": "ES256", "x": ' + b"[" * 4000 + b"]" * 4000 + b"}",
        b'{"alg": "ES256", "x": "' + b"x" * 9000 + b'"}',
    ],
    ids=lambda header: repr(header)[:30],
)
def test_a_header_that_is_none_is_refused(header: object) -> None:
    """It is not verified, so a stranger may write it."""
    _, claims, signature = signed().split(".")
    assert refusal(f"{encoded(header)}.{claims}.{signature}").reason == "malformed"


def test_claims_that_are_no_object_are_refused() -> None:
    """Though they are signed: the provider signs other things too."""
    for text in ("[]", "5", "{", '{"exp": ' + "[" * 2000):
        token = serialize_compact({"alg": "ES256", "kid": "es256"}, text, KEYS["ES256"])
        assert refusal(token).reason == "malformed"


@given(st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9_\-=.]{0,300}", fullmatch=True))
def test_nothing_that_a_stranger_writes_is_more_than_refused(text: str) -> None:
    """Neither an exception of another kind, nor a user."""
    refusal(text)


@given(st.data())
def test_a_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    """One character of it."""
    token = TOKEN
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABab01-_.=+é\0").filter(lambda letter: letter != token[place]))
    refusal(token[:place] + other + token[place + 1 :])


TOKEN = signed()


def test_a_token_for_encryption_is_refused() -> None:
    """A JWE has five parts."""
    assert refusal("a.b.c.d.e").reason == "malformed"


def test_the_advice_never_repeats_the_token() -> None:
    """Tokens are passwords: the log must not contain them."""
    for token in (
        signed(exp=NOW_S - 100),
        signed(aud="x"),
        sign(make_key("ES256", "es256"), "ES256", CLAIMS),
    ):
        told = str(refusal(token))
        assert not any(part in told for part in token.split("."))


# --- keys


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is not a JWKS"),
        (b"[]", "is not a JWKS"),
        (b"{}", "is not a JWKS"),
        (b'{"keys": {}}', "is not a JWKS"),
        (b"<html>", "is not a JWKS"),
        (b"\xff", "is not a JWKS"),
        (b'{"keys": ' + b"[" * 100_000, "is not a JWKS"),
        (b'{"keys": []}', "has no key"),
        (b'{"keys": [5, {}, {"kty": []}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256"}]}', "has no key"),
        (json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode(), "at most 100 keys"),
        (b" " * (MAX_JWKS_BYTES + 1), "at most 1 MiB"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_jwks_that_is_none_is_refused(raw: bytes, says: str) -> None:
    """An error page, say; the keys that were there before stay in force."""
    with pytest.raises(UnusableKeys, match=says):
        read_jwks(raw)


def test_keys_that_cannot_verify_a_token_are_passed_over() -> None:
    """Secret keys, weak keys, private keys, encryption keys, and keys of curves without an algorithm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak = RSAKey.generate_key(1024, {"kid": "weak"}).as_dict(private=False)
    others: list[Any] = [
        OctKey.generate_key(256, {"kid": "secret"}).as_dict(private=True),
        weak,
        KEYS["ES256"].as_dict(private=True),
        RSAKey.generate_key(2048, {"use": "enc"}).as_dict(private=False),
        RSAKey.generate_key(2048, {"key_ops": ["encrypt"]}).as_dict(private=False),
        ECKey.generate_key("secp256k1").as_dict(private=False),
        OKPKey.generate_key("X25519").as_dict(private=False),
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
        KEYS["ES256"].as_dict(private=False) | {"crv": "BP-256"},
        KEYS["EdDSA"].as_dict(private=False) | {"crv": "Ed25520"},
        KEYS["RS256"].as_dict(private=False) | {"e": "AQ"},
        KEYS["RS256"].as_dict(private=False) | {"n": 5},
    ]
    for each in others:
        with pytest.raises(UnusableKeys):
            read_jwks(json.dumps({"keys": [each]}).encode())
    assert len(read_jwks(json.dumps({"keys": [*others, KEYS["RS256"].as_dict(private=False)]}).encode())) == 1


def test_a_key_for_one_algorithm_verifies_no_other() -> None:
    """RFC 7517, 4.4: `alg` of a key."""
    key = RSAKey.generate_key(2048, {"kid": "own", "alg": "RS512"})
    keys = read_jwks(jwks(key))
    assert verify_token(sign(key, "RS512", CLAIMS), keys, RULES, now_ms=NOW_S * 1000).subject == "alice"
    plain = RSAKey.import_key({**key.as_dict(private=True), "alg": "RS256"})
    with pytest.raises(UnknownKey):
        verify_token(sign(plain, "RS256", CLAIMS), keys, RULES, now_ms=NOW_S * 1000)
