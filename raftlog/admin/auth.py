"""Authentication of callers: bearer tokens with a role each, users by password, identity provider's token or
certificate; and the bounds of a web page in somebody's browser.

Users are those of Kafka's listeners: a password of SCRAM or PLAIN, a token that OAUTHBEARER takes, or the name in a
client's certificate. Without a tokens file, callers on this machine need show nothing: with rules they are
User:ANONYMOUS, else operators. A name in Host that is not the machine's own is refused then, so that no page can reach
it by a DNS name of its own (rebinding).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from raftlog.admin import audit
from raftlog.admin.caller import NOBODY, Caller, Role
from raftlog.admin.errors import FORBIDDEN, UNAUTHENTICATED, ApiError
from raftlog.admin.identity_tokens import IdentityTokens
from raftlog.admin.listener import limited
from raftlog.admin.passwords import MOST_CHARS, Passwords
from raftlog.admin.tokens import by_token
from raftlog.admin.view import NodeView
from raftlog.admin.wrong_tokens import WrongTokens
from raftlog.base.config_network import is_loopback
from raftlog.base.principals import USER
from raftlog.security.acls import ANONYMOUS

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
UNKNOWN_RULES: Final = "this node has not heard from a controller yet, so it knows no users and no rules"
OWN_PAGES: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of a page from here, or of no page at all."""


_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::[0-9]*)?")


class Authenticator:
    """Says who calls, by what a request has to show: a token, a password, a certificate, or nothing."""

    def __init__(
        self,
        node: NodeView,
        tokens: Mapping[bytes, Caller] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._tokens = tokens
        self._wrong = WrongTokens(clock)
        self._passwords = Passwords(
            lambda: node.image().scram, (each.plain_users for each in node.config.logins.values())
        )
        self._identities = IdentityTokens(node.token_verifiers)
        self._met_controller = False
        self._looking: dict[tuple[str, str], asyncio.Task[Caller | None]] = {}
        """The looks under way, by the address and what it shows."""
        listener = node.config.admin_listener
        self.open_to_all = tokens is None and listener is not None and is_loopback(listener[0])
        """Whether being on this machine is enough to be somebody."""

    def knows_rules(self) -> bool:
        """Say whether this node has met a controller: users and rules are not those before its last stop."""
        self._met_controller = self._met_controller or self._node.knows_rules()
        return self._met_controller

    async def caller(self, headers: Mapping[str, str], address: str, certified: str) -> Caller | None:
        """Return who calls; None for nobody. `certified`: the principal of the client's certificate.

        Raises ApiError 429 for an address that was wrong about tokens or passwords too often.
        """
        if "Authorization" not in headers:
            if certified != ANONYMOUS:
                return Caller(certified, "operator", certified, address)
            return self._anonymous(address)
        began_at = time.monotonic()
        found = await self._found(headers["Authorization"], address)
        if found is not None:
            return found
        if self._wrong.wait_s(address):
            limited.warning("admin_address_shut_out", address=address)
        late_s = self._node.config.connection_failed_authentication_delay_ms / 1000
        await asyncio.sleep(max(0.0, began_at + late_s - time.monotonic()))
        return None

    async def _found(self, authorization: str, address: str) -> Caller | None:
        """Return the caller, as `_shown`, within the patience with this address.

        Requests that show the same at once are one guess: a right password may come from many connections before it
        is known.
        """
        shown = (address, authorization)
        looking = self._looking.get(shown)
        if looking is None:
            self._check_patience(address)
            self._wrong.add(address)  # on arrival: else as many guesses as arrive at once would be hashed
            looking = asyncio.get_running_loop().create_task(self._shown(authorization, address))
            self._looking[shown] = looking
            looking.add_done_callback(partial(self._looked, shown))
        return await asyncio.shield(looking)

    def _looked(self, shown: tuple[str, str], looking: asyncio.Task[Caller | None]) -> None:
        del self._looking[shown]
        if looking.cancelled() or looking.exception() is not None or looking.result() is not None:
            self._wrong.take_back(shown[0])

    async def _shown(self, authorization: str, address: str) -> Caller | None:
        """Return the caller that a header of authorization shows; None for a wrong token or password."""
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return await self._by_token(secret.strip(), address)
        if scheme.lower() == "basic":
            return await self._by_password(secret.strip(), address)
        return None

    def _anonymous(self, address: str) -> Caller | None:
        if not self.open_to_all:
            return None
        return NOBODY if self._node.authorizer is None else Caller(ANONYMOUS, "operator", ANONYMOUS, address)

    def _check_patience(self, address: str) -> None:
        wait_s = self._wrong.wait_s(address)
        if wait_s:
            raise ApiError(
                429,
                f"too many wrong tokens or passwords came from {address}; ask again in {wait_s:.0f} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )

    async def _by_token(self, token: str, address: str) -> Caller | None:
        """Return who has a token of the tokens file, or of the identity provider.

        A token of another cluster makes no difference to a node that asks for none.
        """
        found = by_token(token, self._tokens or {})
        if found is None and self._identities.concern(token):
            return await self._by_identity(token, address)
        if found is None and self.open_to_all:
            return self._anonymous(address)
        if found is None:
            self.failed("bearer", "unknown_token", address)
        return found

    async def _by_identity(self, token: str, address: str) -> Caller | None:
        """Return the user of an identity provider's token, with what OAUTHBEARER demands of it on Kafka's listeners."""
        from raftlog.security.bearer_tokens import TokenRefused  # of a package that few nodes need

        try:
            login = await self._identities.log_in(token)
        except TokenRefused as error:
            self.failed("bearer", error.reason, address, advice=error.advice)
            return None
        if login.is_new:
            _tell_login("bearer", login.principal, address)
        expires_at = asyncio.get_running_loop().time() + login.lasts_ms / 1000
        return Caller(login.principal, "operator", login.principal, address, expires_at)

    async def _by_password(self, secret: str, address: str) -> Caller | None:
        """Return the user of HTTP's Basic scheme (RFC 7617). A failure does not tell who exists."""
        try:
            user, colon, password = base64.b64decode(secret, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if not (user and colon) or len(user) > MOST_CHARS or len(password) > MOST_CHARS:
            self.failed("basic", "malformed", address)
            return None
        if not self.knows_rules():
            raise ApiError(503, UNKNOWN_RULES)
        outcome = await self._passwords.check(user, password)
        if outcome in ("wrong_password", "unknown_user"):
            self.failed(
                "basic", outcome, address, user=f"{USER}:{user}" if outcome == "wrong_password" else None
            )
            return None
        principal = f"{USER}:{user}"
        if outcome == "right":
            _tell_login("basic", principal, address)
        return Caller(principal, "operator", principal, address)

    def failed(
        self, mechanism: str, reason: str, address: str, *, user: str | None = None, advice: str | None = None
    ) -> None:
        """Count a login that failed, and have the audit log tell it.

        `user` only where there is such a one; `advice` says what to mend.
        """
        self._node.failed_logins[mechanism, reason] += 1
        audit.limited.warning(
            "admin_login_failed",
            mechanism=mechanism,
            reason=reason,
            address=address,
            principal=user,
            **({} if advice is None else {"advice": advice}),
        )


def _tell_login(mechanism: str, principal: str, address: str) -> None:
    audit.limited.info(
        "admin_login_succeeded", per=principal, mechanism=mechanism, principal=principal, address=address
    )


def authorize(caller: Caller | None, needs: Role) -> Caller:
    """Return who calls if its role allows it. Raises ApiError 401 for nobody, 403 for a token of a lower role."""
    if needs == "anyone":
        return caller or Caller("anonymous", "anyone")
    if caller is None:
        raise ApiError(
            401,
            "send Authorization: Basic as a user, or Bearer with a token of this cluster",
            code=UNAUTHENTICATED,
        )
    if needs == "operator" and caller.role != "operator":
        raise ApiError(403, f"{caller.name} is a {caller.role}; this needs an operator", code=FORBIDDEN)
    return caller


def check_browser(method: str, headers: Mapping[str, str], *, open_to_all: bool) -> None:
    """Raise ApiError 403 for what a page from elsewhere may have sent.

    `open_to_all`: there are no tokens, so being on this machine is what counts.
    """
    host = headers.get("Host", "")
    if open_to_all and not is_loopback(_hostname(host)):
        raise ApiError(403, "without tokens only names of this machine are served (Host)", code=FORBIDDEN)
    if method in SAFE_METHODS:
        return
    if headers.get("Sec-Fetch-Site", "none") not in OWN_PAGES:
        raise ApiError(403, "a page from elsewhere may change nothing (Sec-Fetch-Site)", code=FORBIDDEN)
    origin = headers.get("Origin")
    if origin is not None and _netloc(origin) != host:
        raise ApiError(403, "a page from elsewhere may change nothing (Origin)", code=FORBIDDEN)


def by_script(headers: Mapping[str, str]) -> bool:
    """Say whether a page's script asks, which has a form of its own: a browser would put up one for Basic."""
    return headers.get("X-Requested-With", "") == "XMLHttpRequest"


def _netloc(origin: str) -> str:
    """Return the host:port of an origin; "" for what is none, such as null."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    """Return the name or address in a Host header; "" for what is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["address"] or found["name"]
