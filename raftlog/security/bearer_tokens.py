"""Tokens of an identity provider: signed JWTs (RFC 7519), and the keys that verify them (JWKS, RFC 7517).

Pure: keys and time are passed in. joserfc verifies signatures and checks times, issuer and audience. Only algorithms
with a public key are allowed, so unsigned tokens, and tokens signed with a public value, are refused (RFC 8725).

A refused token has a `reason`, from a few words that metrics count. Its `advice` is for the operator and may quote a
verified token's claims, never the token.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact
from joserfc.jwt import JWTClaimsRegistry

ALGORITHMS: Final[Mapping[str, str]] = {
    **{f"{family}{bits}": "RSA" for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}
"""The accepted signature algorithms, and the kind of key of each: RSA, or a curve."""

MAX_JWKS_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""Verification takes a millisecond with such a key, and four times as long with a key of twice the size."""

MAX_HEADER_BYTES: Final = 8 * 1024
MAX_SUBJECT_CHARS: Final = 1024
MAX_EXPIRES_S: Final = 253_402_300_799
"""The end of the year 9999."""

_SHOWN_CHARS: Final = 200
_SEGMENTS: Final = 3
_BASE64_BITS: Final = 6


class TokenRefused(Exception):
    """A refused token: it does not authenticate a user of this cluster."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}: {advice}")
        self.reason = reason
        self.advice = advice


class UnknownKey(TokenRefused):
    """The token's key is not among the known keys. Newer keys may have it."""

    def __init__(self, advice: str, reason: str = "unknown_key") -> None:
        super().__init__(reason, advice)


class UnusableKeys(ValueError):
    """An unreadable JWKS, or a JWKS without a key for verification."""


class TokenRules(NamedTuple):
    """The rules for tokens of this cluster."""

    issuer: str = ""
    audiences: tuple[str, ...] = ()
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class VerifiedToken(NamedTuple):
    """The claims of a token that are used. `expires_ms` is wall time."""

    subject: str
    expires_ms: int
    scopes: tuple[str, ...]


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: Any = None


class _Registry(JWSRegistry):
    max_header_length = MAX_HEADER_BYTES

    def get_alg(self, name: str) -> Any:
        """Return an allowed algorithm.

        The library warns of the name EdDSA at each use, though many providers write it.
        """
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


_REGISTRY: Final = _Registry(strict_check_header=False)
_DECODE_HEADER: Final = msgspec.json.Decoder(_Header).decode


class VerificationKeys:
    """The public keys of a JWKS."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, algorithm: str, key_id: str | None) -> Key:
        """Return the key of a token. Without an id it is the only fitting key. Raise UnknownKey."""
        fitting = [
            key
            for key in self._keys
            if _kind(key) == ALGORITHMS[algorithm]
            and key_id in (None, key.kid)
            and key.get("alg") in (None, algorithm)
        ]
        if not fitting:
            raise UnknownKey(f"the JWKS has no key for {algorithm} with kid {_shown(key_id)}")
        if key_id is None and len(fitting) > 1:
            raise TokenRefused("malformed", "the token has no kid, and several keys of the JWKS match")
        return fitting[0]


def read_jwks(raw: bytes) -> VerificationKeys:
    """Read a JWKS; keys that cannot verify tokens are skipped. Raise UnusableKeys. Takes milliseconds."""
    if len(raw) > MAX_JWKS_BYTES:
        raise UnusableKeys(f"a JWKS has at most {MAX_JWKS_BYTES >> 20} MiB")
    try:
        found = msgspec.json.decode(raw, type=dict[str, Any]).get("keys")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise UnusableKeys('is not a JWKS, which is a JSON object with "keys"')
    if len(found) > MAX_KEYS:
        raise UnusableKeys(f"a JWKS may have at most {MAX_KEYS} keys, not {len(found)}")
    keys = [key for each in found if isinstance(each, dict) and (key := _usable_key(each)) is not None]
    if not keys:
        raise UnusableKeys("has no key that verifies tokens: one of type RSA (2048 bits or more), EC or OKP")
    return VerificationKeys(keys)


def _usable_key(values: dict[str, Any]) -> Key | None:
    """Return a key that verifies signatures; None for a secret key, a weak key, or a key for another use."""
    operations = values.get("key_ops", ["verify"])
    if values.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if values.get("kty") not in ("RSA", "EC", "OKP") or "d" in values:
        return None
    modulus = values.get("n", "")  # the library warns of weak keys, so skip them before
    if values["kty"] == "RSA" and not (
        isinstance(modulus, str) and MIN_RSA_BITS <= len(modulus) * _BASE64_BITS <= MAX_RSA_BITS + 8
    ):
        return None
    try:
        key = JWKRegistry.import_key(values)
        is_strong = not isinstance(key, RSAKey) or key.public_key.key_size >= MIN_RSA_BITS
    except (JoseError, ValueError, TypeError, LookupError, OverflowError):
        return None
    return key if is_strong and _kind(key) in ALGORITHMS.values() else None


def _kind(key: Key) -> str:
    """Return RSA, or the curve of a key."""
    return key.curve_name if isinstance(key, ECKey | OKPKey) else key.key_type


def verify_token(token: str, keys: VerificationKeys, rules: TokenRules, *, now_ms: int) -> VerifiedToken:
    """Return a token's claims, if its signature, times, issuer and audience are right. Raise TokenRefused."""
    header = _read_header(token)
    key = keys.find(header.alg, header.kid)
    try:
        payload = deserialize_compact(token, key, registry=_REGISTRY).payload
    except (JoseError, ValueError, TypeError, RecursionError):
        raise TokenRefused(
            "bad_signature", "the signature does not verify with the key that the token names"
        ) from None
    try:
        claims = msgspec.json.decode(payload or b"", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenRefused("malformed", "the token's claims are not a JSON object") from None
    _check_claims(claims, rules, now_ms // 1000)
    return VerifiedToken(_subject(claims, rules), _seconds(claims["exp"]) * 1000, _scopes(claims, rules))


def _read_header(token: str) -> _Header:
    """Return a token's unverified header. Raise TokenRefused."""
    segments = token.split(".")
    if len(segments) != _SEGMENTS:
        raise TokenRefused("malformed", "this is not a signed JWT, which has three parts separated by dots")
    if len(segments[0]) > MAX_HEADER_BYTES:
        raise TokenRefused("malformed", f"a token's header has at most {MAX_HEADER_BYTES} bytes")
    try:
        padded = segments[0] + "=" * (-len(segments[0]) % 4)
        header = _DECODE_HEADER(b64decode(padded, b"-_", validate=True))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise TokenRefused(
            "malformed", "the token's header is not a JSON object with alg, in base64url"
        ) from None
    if header.alg not in ALGORITHMS:
        raise TokenRefused("algorithm", f"tokens are signed with one of {', '.join(ALGORITHMS)}")
    if header.crit is not None:
        raise TokenRefused("malformed", "the token has a header crit with unknown extensions")
    return header


def _check_claims(claims: dict[str, Any], rules: TokenRules, now_s: int) -> None:
    """Check times, issuer and audience; Kafka too wants exp and iat. Raise TokenRefused."""
    registry = JWTClaimsRegistry(now_s, rules.skew_s, exp={"essential": True}, iat={"essential": True})
    names = ["exp", "iat", "nbf"]
    if rules.issuer:
        registry.options["iss"] = {"essential": True, "value": rules.issuer}
        names.append("iss")
    if rules.audiences:
        registry.options["aud"] = {"essential": True, "values": list(rules.audiences)}
        names.append("aud")
    try:
        registry.validate({name: claims[name] for name in names if name in claims})
    except ExpiredTokenError:
        late_s = now_s - _seconds(claims["exp"])
        raise TokenRefused(
            "expired", f"the token expired {late_s} s ago; if it did not, compare the clocks"
        ) from None
    except (MissingClaimError, InvalidClaimError) as error:
        raise _refusal_of(error.claim, claims, rules) from None


def _refusal_of(claim: str, claims: Mapping[str, Any], rules: TokenRules) -> TokenRefused:
    """Return the error for a wrong claim."""
    name = claim.partition(",")[0]
    value = claims.get(name)
    if name == "iss":
        return TokenRefused(
            "wrong_issuer",
            f"the token's iss is {_shown(value)}, sasl.oauthbearer.expected.issuer is {rules.issuer!r}",
        )
    if name == "aud":
        return TokenRefused(
            "wrong_audience",
            f"the token's aud is {_shown(value)}, sasl.oauthbearer.expected.audience is {','.join(rules.audiences)}",
        )
    if name in ("nbf", "iat") and isinstance(value, int | float) and not isinstance(value, bool):
        return TokenRefused(
            "not_yet_valid", f"the token's {name} is in the future; if it is not, compare the clocks"
        )
    return TokenRefused("malformed", f"the token has no {name}, or one that is no time")


def _seconds(time: float) -> int:
    """Return a claim's time, within the range of the calendar."""
    return int(max(0, min(time, MAX_EXPIRES_S)))


def _subject(claims: Mapping[str, Any], rules: TokenRules) -> str:
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip() or len(subject) > MAX_SUBJECT_CHARS:
        raise TokenRefused(
            "no_subject",
            f"the token's {rules.subject_claim} (sasl.oauthbearer.sub.claim.name) is not a valid user name",
        )
    return subject


def _scopes(claims: Mapping[str, Any], rules: TokenRules) -> tuple[str, ...]:
    found = claims.get(rules.scope_claim, ())
    scopes = found.split() if isinstance(found, str) else found
    if not isinstance(scopes, list | tuple) or not all(isinstance(each, str) and each for each in scopes):
        raise TokenRefused(
            "malformed",
            f"the token's {rules.scope_claim} (sasl.oauthbearer.scope.claim.name) is not a string or a list of strings",
        )
    return tuple(scopes)


def _shown(value: object) -> str:
    """Return an untrusted value, short enough for a log."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
