"""Authentication by an identity provider's tokens (JWTs) over HTTP, as on this node's Kafka listeners.

Each listener that offers OAUTHBEARER has its own keys and rules. A token that any of them accepts authenticates the
same user here. Newer keys are fetched only if no listener knows the token's key. It does not know HTTP.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.principals import USER

if TYPE_CHECKING:
    from raftlog.admin.view import TokenVerifier

MAX_REMEMBERED: Final = 1_000
"""Remembered tokens; the oldest is evicted."""

_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")


class TokenLogin(NamedTuple):
    """The user of a token. `lasts_ms`: its remaining lifetime; `is_new`: it was not seen before."""

    principal: str
    lasts_ms: int
    is_new: bool


class IdentityTokens:
    """Finds the user of a token."""

    def __init__(self, verifiers: Mapping[str, TokenVerifier]) -> None:
        """`verifiers` by Kafka listener; more may come."""
        self._verifiers = verifiers
        self._key = secrets.token_bytes(32)
        self._seen: dict[bytes, None] = {}

    def concern(self, token: str) -> bool:
        """Return whether a token looks like an identity provider's, and this node accepts any."""
        return bool(self._verifiers) and _JWT.fullmatch(token) is not None

    async def log_in(self, token: str) -> TokenLogin:
        """Return the user of a token; may wait for newer keys. Raise TokenRefused."""
        from raftlog.security.bearer_tokens import (
            TokenRefused,
            UnknownKey,
        )  # of a package that few nodes need

        refused: list[TokenRefused] = []
        for may_fetch in (False, True):
            refused = []
            for each in self._verifiers.values():
                try:
                    verified, lasts_ms = await each.verify(token, may_fetch=may_fetch)
                except TokenRefused as error:
                    refused.append(error)
                else:
                    return TokenLogin(f"{USER}:{verified.subject}", lasts_ms, self._is_new(token))
            with_key = [each for each in refused if not isinstance(each, UnknownKey)]
            if with_key:
                raise with_key[0]
        raise refused[0]

    def _is_new(self, token: str) -> bool:
        """Remember a keyed hash of a token; return whether it was new."""
        mark = hmac.digest(self._key, token.encode(), "sha256")
        if mark in self._seen:
            return False
        if len(self._seen) >= MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[mark] = None
        return True
