"""The logins of a connection (SASL): mechanism, authenticated principal, and lifetime.

One `Login` belongs to one connection of a SASL listener. It handles the messages of SaslHandshake and
SaslAuthenticate; the handlers of these APIs only pass them on. A failed login always gets the same error message,
delayed, and ends the connection. A second login (KIP-368) may not change the principal.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from raftlog.base.config.oauth import OAUTHBEARER
from raftlog.base.config.security import ListenerLogins
from raftlog.base.errors import (
    MALFORMED,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from raftlog.base.principals import USER
from raftlog.metadata.image import MetadataImage
from raftlog.security import scram
from raftlog.security.sasl_messages import parse_plain
from raftlog.security.scram import CredentialLookup, ScramCredential, ScramServer
from raftlog.security.tokens import EXTENSION, DelegationToken, TokenKey

PLAIN: Final = "PLAIN"

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""The maximum size of a message of a mechanism; tokens are the longest."""


class LoginStep(NamedTuple):
    """The bytes for the client, and its `principal` once it is authenticated."""

    answer: bytes
    principal: str | None = None
    lifetime_ms: int = 0
    """The maximum lifetime of the login; 0 leaves it to the listener."""
    refused: SaslAuthenticationFailed | None = None
    """Set if the response reports the rejection to the client. The client then sends one more message, and gets the
    failure."""


class TokenExchange(Protocol):
    """A login by OAUTHBEARER."""

    async def answer(self, message: bytes) -> LoginStep:
        """Take a message. Raises SaslAuthenticationFailed."""


class LoginFailure(NamedTuple):
    """A failed login, for the operator: `reason` is a short fixed phrase, `advice` says how to fix it."""

    mechanism: str
    reason: str
    advice: str


class Credentials(NamedTuple):
    """The sources of credentials and random bytes."""

    image: Callable[[], MetadataImage]
    """Has the credentials of users, and the delegation tokens."""
    token_key: TokenKey
    wall_clock_ms: Callable[[], int]
    secret: bytes
    """The key for made-up credentials of unknown users."""
    lookup: CredentialLookup
    nonce: Callable[[], str]


class Login:
    """The logins of a connection, one by one."""

    __slots__ = (
        "_bearer",
        "_credentials",
        "_exchange",
        "_exchange_tokens",
        "_failure",
        "_has_failed",
        "_kept",
        "_logins",
        "_mechanism",
        "_token",
        "failed",
        "lifetime_ms",
        "mechanism",
        "principal",
        "token_id",
    )

    def __init__(
        self,
        logins: ListenerLogins,
        credentials: Credentials,
        exchange_tokens: Callable[[], TokenExchange] | None = None,
    ) -> None:
        """`exchange_tokens` begins a login by OAUTHBEARER, where the listener offers it."""
        self._logins = logins
        self._credentials = credentials
        self._exchange_tokens = exchange_tokens
        self._mechanism = ""
        self._exchange: ScramServer | None = None
        self._bearer: TokenExchange | None = None
        self._failure: LoginFailure | None = None
        self._has_failed = False
        self._kept: ScramCredential | None = None
        """The credential of the exchange's user, or None for an unknown user."""
        self._token: DelegationToken | None = None
        """The delegation token of the exchange."""
        self.principal: str | None = None
        """The principal of the last successful login."""
        self.token_id: str | None = None
        """The delegation token of that login, if it used a token."""
        self.lifetime_ms = 0
        """The lifetime of that login; 0 means as long as the connection."""
        self.mechanism = ""
        """The mechanism of the last successful login."""
        self.failed = ""
        """The mechanism of the failed login; the connection is about to close."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the listener offers."""
        return self._logins.mechanisms

    def take_failure(self) -> LoginFailure | None:
        """Return why the login failed, once, for the operator's log."""
        failure, self._failure = self._failure, None
        return failure

    def begin(self, mechanism: str) -> None:
        """Choose a mechanism. Raises UnsupportedSaslMechanism, and IllegalSaslState within a login."""
        if self._mechanism or self.failed:
            raise IllegalSaslState("a login is already in progress")
        if mechanism not in self._logins.mechanisms:
            offered = f"this listener offers {', '.join(self._logins.mechanisms)}"
            self.failed = "unknown"
            self._fail("unknown_mechanism", f"the client wants {mechanism[:40]!r}; {offered}")
            raise UnsupportedSaslMechanism(offered)
        self._mechanism = mechanism
        self._exchange = self._bearer = self._token = None

    def refuse_version_0(self) -> None:
        """Fail the login, since its messages would come outside of Kafka's frames. Raises IllegalSaslState."""
        self.failed = "unknown"
        advice = "the client sent SaslHandshake 0; logins need version 1 (Kafka 1.0 or newer)"
        self._fail("unsupported_handshake", advice)
        raise IllegalSaslState(advice)

    async def authenticate(self, message: bytes) -> LoginStep:
        """Handle the next message of the mechanism. Waits only if a token's key must be fetched.

        Raises IllegalSaslState without a mechanism, and SaslAuthenticationFailed if authentication fails.
        """
        if not self._mechanism or self.failed:
            raise IllegalSaslState("SaslHandshake must come first")
        try:
            if len(message) > MAX_MESSAGE_BYTES:
                why = f"a message of a login has at most {MAX_MESSAGE_BYTES} bytes"
                raise SaslAuthenticationFailed(why, reason=MALFORMED)
            step = await self._step(message)
            if step.principal is not None:
                self._succeed(step.principal, step.lifetime_ms)
            if step.refused is not None:
                self._fail(step.refused.reason, step.refused.advice)
        except SaslAuthenticationFailed as error:
            self.failed = self._mechanism
            self._fail(error.reason, error.advice or error.message or "")
            raise
        return step

    async def _step(self, message: bytes) -> LoginStep:
        if self._mechanism == PLAIN:
            return self._plain(message)
        if self._mechanism != OAUTHBEARER:
            return self._scram(message)
        if self._bearer is None:
            assert self._exchange_tokens is not None, "a listener that offers OAUTHBEARER has keys"
            self._bearer = self._exchange_tokens()
        return await self._bearer.answer(message)

    def _succeed(self, principal: str, lifetime_ms: int) -> None:
        if self.principal not in (None, principal):
            why = "another login on a connection is by the same user"
            raise SaslAuthenticationFailed(why, reason="another_user")
        self.token_id = None if self._token is None else self._token.token_id
        self.principal = principal
        self.lifetime_ms = min(filter(None, (self._logins.max_reauth_ms, lifetime_ms)), default=0)
        self._mechanism, self.mechanism = "", self._mechanism

    def _fail(self, reason: str, advice: str) -> None:
        """Note the first failure; later failures follow from it."""
        if not self._has_failed:
            self._has_failed = True
            self._failure = LoginFailure(self.failed or self._mechanism, reason, advice)

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
            return self._by_token(verifier, self._token.token_id)
        kept = self._credentials.image().scram.get((login.user, self._mechanism))
        if self._kept is None or self._kept != kept:
            raise SaslAuthenticationFailed(scram.REFUSED)  # also where it was changed or removed meanwhile
        return LoginStep(verifier, f"{USER}:{login.user}")

    def _by_token(self, verifier: bytes, token_id: str) -> LoginStep:
        token = self._token = self._valid_token(token_id)
        if token is None:
            raise SaslAuthenticationFailed(scram.REFUSED)
        left_ms = token.expires_ms - self._credentials.wall_clock_ms()
        return LoginStep(verifier, token.owner, max(1, left_ms))  # 0 is for ever

    def _find(self, user: str, extensions: Mapping[str, str]) -> ScramCredential:
        if extensions.get(EXTENSION, "").lower() == "true":
            return self._find_token(user)
        known = self._credentials.image().scram
        self._kept = known.get((user, self._mechanism))
        return self._credentials.lookup.find(known, user, self._mechanism)

    def _find_token(self, token_id: str) -> ScramCredential:
        mechanism, credentials = self._mechanism, self._credentials
        self._token = self._valid_token(token_id)
        self._kept = None
        if self._token is None:
            return scram.made_up(mechanism, token_id, credentials.secret)
        return credentials.token_key.credential(mechanism, token_id, credentials.image().tokens)

    def _valid_token(self, token_id: str) -> DelegationToken | None:
        """Return a token that is valid for a login now."""
        credentials = self._credentials
        token = credentials.image().tokens.get(token_id)
        if token is None or not credentials.token_key.is_set:
            return None
        return None if token.is_expired(credentials.wall_clock_ms()) else token
