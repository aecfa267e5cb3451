"""Tokens of an identity provider (JWTs) over HTTP: what a Kafka listener of this node takes, logs in here as well.

Each listener that offers OAUTHBEARER has its own keys and rules, and whom one of them lets in is let in here as the
same user. The identity provider is asked for newer keys only if no listener knows the token's key. Knows no HTTP.
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

MOST_REMEMBERED: Final = 1_000
"""Tokens that were seen before; beyond them the oldest goes."""

_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")


class TokenLogin(NamedTuple):
    """The user of a token. `lasts_ms`: how long the token holds still; `is_new`: it was not seen before."""

    principal: str
    lasts_ms: int
    is_new: bool


class IdentityTokens:
    """Says whose token it is."""

    def __init__(self, verifiers: Mapping[str, TokenVerifier]) -> None:
        """`verifiers` by Kafka listener; more may come."""
        self._verifiers = verifiers
        self._key = secrets.token_bytes(32)
        self._seen: dict[bytes, None] = {}

    def concern(self, token: str) -> bool:
        """Whether a token looks like one of an identity provider, and this node believes any."""
        return bool(self._verifiers) and _JWT.fullmatch(token) is not None

    async def log_in(self, token: str) -> TokenLogin:
        """Return whose token it is; may wait for newer keys. Raises TokenRefused."""
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
        """Note a token, of which only a keyed hash is kept; return whether it was not known."""
        mark = hmac.digest(self._key, token.encode(), "sha256")
        if mark in self._seen:
            return False
        if len(self._seen) >= MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[mark] = None
        return True
