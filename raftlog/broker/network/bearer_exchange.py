"""OAUTHBEARER on one connection (RFC 7628, KIP-255): a token, and if it is refused, the two messages that end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.base.principals import USER
from raftlog.broker.network.login import LoginStep
from raftlog.security.bearer_tokens import TokenRefused
from raftlog.security.sasl_messages import parse_oauth

if TYPE_CHECKING:
    from raftlog.broker.network.token_keys import TokenKeys

REFUSED: Final = '{"status":"invalid_token"}'
"""The response to every rejected token, whatever the reason, in Kafka's format."""


class BearerExchange:
    """One login: the client's token and, if that is refused, its byte 0x01."""

    def __init__(self, keys: TokenKeys) -> None:
        self._keys = keys
        self._refused = False

    async def answer(self, message: bytes) -> LoginStep:
        """Take a message. Raises SaslAuthenticationFailed if it is malformed, or follows a refused token."""
        if self._refused:
            raise SaslAuthenticationFailed(REFUSED)
        said = parse_oauth(message)
        try:
            token, left_ms = await self._keys.verify(said.token)
            if said.authorization_id not in ("", token.subject):
                raise TokenRefused(
                    "wrong_credentials", "the client names another user (authzid) than its token"
                )
        except TokenRefused as error:
            self._refused = True
            refused = SaslAuthenticationFailed(REFUSED, reason=error.reason, advice=error.advice)
            return LoginStep(REFUSED.encode(), refused=refused)
        return LoginStep(b"", f"{USER}:{token.subject}", lifetime_ms=left_ms)
