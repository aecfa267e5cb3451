"""The logins of a connection (SASL): which mechanism, what has been proved, and until when it holds.

One `Login` belongs to one connection of a SASL listener. It answers what clients of SaslHandshake and SaslAuthenticate
say; the handlers of these APIs only pass it on. A failed login says one thing whatever was wrong, late, and ends the
connection. A second login (KIP-368) may not change the principal.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from raftlog.base.config_security import ListenerLogins
from raftlog.base.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from raftlog.base.principals import USER
from raftlog.metadata.image import MetadataImage
from raftlog.security import scram
from raftlog.security.sasl_messages import parse_plain
from raftlog.security.scram import ScramCredential, ScramServer
from raftlog.security.tokens import EXTENSION, DelegationToken, TokenKey

PLAIN: Final = "PLAIN"

LOOKED_LIKE: Final = 100
"""Credentials like one of which that of an unknown user looks."""

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Of one message of a mechanism; tokens are the longest."""


class LoginStep(NamedTuple):
    """The bytes for the client, and its `principal` once it has proved who it is."""

    answer: bytes
    principal: str | None = None


class Credentials(NamedTuple):
    """The sources of credentials, and of chance."""

    image: Callable[[], MetadataImage]
    """Has the credentials of users, and the delegation tokens."""
    token_key: TokenKey
    wall_clock_ms: Callable[[], int]
    secret: bytes
    """Keys what is made up for unknown users."""
    nonce: Callable[[], str]


class Login:
    """The logins of one connection, one after the other."""

    __slots__ = (
        "_credentials",
        "_exchange",
        "_is_known",
        "_logins",
        "_mechanism",
        "_token",
        "failed",
        "lifetime_ms",
        "principal",
        "token_id",
    )

    def __init__(self, logins: ListenerLogins, credentials: Credentials) -> None:
        self._logins = logins
        self._credentials = credentials
        self._mechanism = ""
        self._exchange: ScramServer | None = None
        self._is_known = False
        """Whether there is such a user as the one of the exchange, or such a token."""
        self._token: DelegationToken | None = None
        """The token of the exchange."""
        self.principal: str | None = None
        """Of the last login that succeeded."""
        self.token_id: str | None = None
        """The delegation token of that login, if it was with one."""
        self.lifetime_ms = 0
        """For how long that login holds; 0: as long as the connection."""
        self.failed = ""
        """The mechanism of the login that failed; the connection is about to close."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the listener offers."""
        return self._logins.mechanisms

    def begin(self, mechanism: str) -> None:
        """Choose a mechanism. Raises UnsupportedSaslMechanism, and IllegalSaslState within a login."""
        if self._mechanism or self.failed:
            raise IllegalSaslState("a login is under way already")
        if mechanism not in self._logins.mechanisms:
            self.failed = "unknown"
            raise UnsupportedSaslMechanism(f"this listener offers {', '.join(self._logins.mechanisms)}")
        self._mechanism = mechanism
        self._exchange = self._token = None

    def go_on(self, message: bytes) -> LoginStep:
        """Take the next message of the mechanism.

        Raises IllegalSaslState without a mechanism, SaslAuthenticationFailed if it proves nothing.
        """
        if not self._mechanism or self.failed:
            raise IllegalSaslState("SaslHandshake comes first, and names a mechanism")
        try:
            if len(message) > MAX_MESSAGE_BYTES:
                raise SaslAuthenticationFailed(f"a message of a login has at most {MAX_MESSAGE_BYTES} bytes")
            step = self._plain(message) if self._mechanism == PLAIN else self._scram(message)
            if step.principal is not None:
                self._succeed(step.principal)
        except SaslAuthenticationFailed:
            self.failed = self._mechanism
            raise
        return step

    def _succeed(self, principal: str) -> None:
        if self.principal not in (None, principal):
            raise SaslAuthenticationFailed("another login on a connection is by the same user")
        self.lifetime_ms = self._logins.max_reauth_ms
        self.token_id = None
        if self._token is not None:
            self.token_id = self._token.token_id
            left_ms = max(1, self._token.expires_ms - self._credentials.wall_clock_ms())  # 0 is for ever
            self.lifetime_ms = min(left_ms, self.lifetime_ms) if self.lifetime_ms else left_ms
        self.principal = principal
        self._mechanism = ""

    def _plain(self, message: bytes) -> LoginStep:
        said = parse_plain(message)
        kept = self._logins.plain_users.get(said.user)
        expected = kept if kept is not None else self._credentials.secret.hex()
        right = hmac.compare_digest(expected.encode(), said.password.encode())
        if not right or kept is None:
            raise SaslAuthenticationFailed(scram.REFUSED)
        return LoginStep(b"", f"{USER}:{said.user}")

    def _scram(self, message: bytes) -> LoginStep:
        if self._exchange is None:
            self._exchange = ScramServer(self._mechanism, self._find, self._credentials.nonce)
            return LoginStep(self._exchange.first(message))
        verifier, login = self._exchange.final(message)
        if self._token is not None:
            self._token = self._valid_token(self._token.token_id)
            self._is_known = self._token is not None
        if not self._is_known:
            raise SaslAuthenticationFailed(scram.REFUSED)
        return LoginStep(verifier, f"{USER}:{login.user}" if self._token is None else self._token.owner)

    def _find(self, user: str, extensions: Mapping[str, str]) -> ScramCredential:
        if extensions.get(EXTENSION, "").lower() == "true":
            return self._find_token(user)
        mechanism, known = self._mechanism, self._credentials.image().scram
        kept = known.get((user, mechanism))
        self._is_known = kept is not None
        if kept is not None:
            return kept
        some = [each for (_, other), each in islice(known.items(), LOOKED_LIKE) if other == mechanism]
        return scram.made_up(mechanism, user, self._credentials.secret, like=some)

    def _find_token(self, token_id: str) -> ScramCredential:
        mechanism, credentials = self._mechanism, self._credentials
        self._token = self._valid_token(token_id)
        self._is_known = self._token is not None
        if self._token is None:
            return scram.made_up(mechanism, token_id, credentials.secret)
        return credentials.token_key.credential(mechanism, token_id, credentials.image().tokens)

    def _valid_token(self, token_id: str) -> DelegationToken | None:
        """Return a token that one can log in with now."""
        credentials = self._credentials
        token = credentials.image().tokens.get(token_id)
        if token is None or not credentials.token_key.is_set:
            return None
        return None if token.is_expired(credentials.wall_clock_ms()) else token
