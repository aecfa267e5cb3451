"""Delegation tokens as values (KIP-48): owner, requester, expiry, and the password of a token.

The metadata holds no passwords. As in Kafka, every node that has `delegation.token.secret.key` computes the password
from the token's id: the HMAC-SHA-512 of the id under that key. A SCRAM client uses it in base64.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.security.scram import HASHES, MIN_ITERATIONS, SALT_BYTES, ScramCredential, credential

EXTENSION: Final = "tokenauth"
"""The SCRAM extension with which a client says that its user name is the id of a token."""


class DelegationToken(msgspec.Struct, frozen=True, array_like=True):
    """A token. Principals are `Type:name`, and times are wall-clock milliseconds. No renewal goes beyond `max_ms`."""

    token_id: str
    owner: str
    """The principal of a login with the token."""
    requester: str
    """The user that requested it: the owner, or a user that may create tokens for the owner (KIP-373)."""
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the token is no longer valid for a login."""
        return self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Return whether a principal may describe the token without any other right."""
        return principal == self.requester or self.may_be_renewed_by(principal)


class TokenKey:
    """The key of `delegation.token.secret.key`, with a cache of values derived from it for existing tokens."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._tokens: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """The ids of `_tokens` by the hash of their HMAC, so that the timing of a lookup reveals no HMAC."""

    @property
    def is_set(self) -> bool:
        """Whether delegation tokens are enabled."""
        return bool(self._key)

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token, its password."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, tokens: Mapping[str, DelegationToken], proof: bytes) -> DelegationToken | None:
        """Return the token with this HMAC."""
        if tokens is not self._tokens:
            known = {token_id: digest for digest, token_id in self._ids.items()}
            self._ids = {known.get(each) or self._digest(each): each for each in tokens}
            self._tokens = tokens
        token_id = self._ids.get(hashlib.sha256(proof).digest())
        return None if token_id is None else tokens[token_id]

    def credential(
        self, mechanism: str, token_id: str, tokens: Mapping[str, DelegationToken]
    ) -> ScramCredential:
        """Return the SCRAM credential for a login with a token of `tokens`. It is the same on every node.

        The first call for a token takes some milliseconds.
        """
        kept = self._credentials.get((mechanism, token_id))
        if kept is None:
            if len(self._credentials) > 2 * len(HASHES) * len(tokens):
                self._credentials = {key: each for key, each in self._credentials.items() if key[1] in tokens}
            password = b64encode(self.hmac_of(token_id)).decode()
            salt = hmac.digest(self._key, f"salt\0{mechanism}\0{token_id}".encode(), "sha512")[:SALT_BYTES]
            kept = credential(mechanism, password, salt, MIN_ITERATIONS)
            self._credentials[mechanism, token_id] = kept
        return kept

    def _digest(self, token_id: str) -> bytes:
        return hashlib.sha256(self.hmac_of(token_id)).digest()
