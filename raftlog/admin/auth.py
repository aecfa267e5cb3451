"""Authentication of callers: bearer tokens with a role each; users by password, identity provider's token or
certificate. Limits for web pages in a browser.

Users are the same as on Kafka's listeners: a SCRAM or PLAIN password, an OAUTHBEARER token, or the name in a client's
certificate. Without a tokens file, callers on this machine need no credentials: with ACLs they are User:ANONYMOUS, else
operators. Then a name in Host that is not the machine's own is refused, against DNS rebinding.
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
from raftlog.admin.passwords import MAX_CHARS, Passwords
from raftlog.admin.tokens import by_token
from raftlog.admin.view import NodeView
from raftlog.admin.wrong_tokens import WrongTokens
from raftlog.base.config.network import is_loopback
from raftlog.base.principals import USER
from raftlog.security.acls import ANONYMOUS

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
UNKNOWN_RULES: Final = "this node has no metadata from a controller yet, so it knows no users and no rules"
OWN_PAGES: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of a page from here, or of no page at all."""


_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::[0-9]*)?")


class Authenticator:
    """Identifies the caller of a request by a token, a password, a certificate, or without credentials."""

    def __init__(
        self,
        node: NodeView,
        tokens: Mapping[bytes, Caller] | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        listener: tuple[str, int] | None = None,
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
        """The checks in progress, by the address and the credentials."""
        listener = listener or node.config.admin_listener
        self.open_to_all = tokens is None and listener is not None and is_loopback(listener[0])
        """Whether callers on this machine need no credentials."""

    def knows_rules(self) -> bool:
        """Return whether this node has met a controller: its users and ACLs are then current."""
        self._met_controller = self._met_controller or self._node.knows_rules()
        return self._met_controller

    async def caller(self, headers: Mapping[str, str], address: str, certified: str) -> Caller | None:
        """Return the caller, or None without valid credentials. `certified`: the principal of the client's certificate.

        Raise ApiError 429 for an address with too many wrong tokens or passwords.
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
            limited.warning("admin_address_blocked", address=address)
        late_s = self._node.config.connection_failed_authentication_delay_ms / 1000
        await asyncio.sleep(max(0.0, began_at + late_s - time.monotonic()))
        return None

    async def _found(self, authorization: str, address: str) -> Caller | None:
        """Return the caller, as `_shown`, within the patience with this address.

        Simultaneous requests with the same credentials are one guess: a right password may come from many connections
        before it is known.
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
        """Return the caller of an authorization header; None for a wrong token or password."""
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
                f"too many wrong tokens or passwords from {address}; retry in {wait_s:.0f} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )

    async def _by_token(self, token: str, address: str) -> Caller | None:
        """Return the caller with a token of the tokens file, or of the identity provider.

        A token of another cluster is ignored by a node that requires no token.
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
        """Return the user of an identity provider's token, checked as by OAUTHBEARER on Kafka's listeners."""
        from raftlog.security.bearer_tokens import TokenRefused  # of a package that few nodes need

        try:
            login = await self._identities.log_in(token)
        except TokenRefused as error:
            self.failed("bearer", error.reason, address, advice=error.advice)
            return None
        if login.is_new:
            _log_login("bearer", login.principal, address)
        expires_at = asyncio.get_running_loop().time() + login.lasts_ms / 1000
        return Caller(login.principal, "operator", login.principal, address, expires_at)

    async def _by_password(self, secret: str, address: str) -> Caller | None:
        """Return the user of HTTP's Basic scheme (RFC 7617). A failure does not reveal which users exist."""
        try:
            user, colon, password = base64.b64decode(secret, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if not (user and colon) or len(user) > MAX_CHARS or len(password) > MAX_CHARS:
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
            _log_login("basic", principal, address)
        return Caller(principal, "operator", principal, address)

    def failed(
        self, mechanism: str, reason: str, address: str, *, user: str | None = None, advice: str | None = None
    ) -> None:
        """Count a failed login, and write it to the audit log.

        `user` only if that user exists; `advice` says how to fix it.
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


def _log_login(mechanism: str, principal: str, address: str) -> None:
    audit.limited.info(
        "admin_login_succeeded", per=principal, mechanism=mechanism, principal=principal, address=address
    )


def authorize(caller: Caller | None, needs: Role) -> Caller:
    """Return the caller if its role allows the request. Raise ApiError 401 without credentials, 403 for a token of a
    lower role.
    """
    if needs == "anyone":
        return caller or Caller("anonymous", "anyone")
    if caller is None:
        raise ApiError(
            401,
            "authenticate with Authorization: Basic as a user, or with a Bearer token of this cluster",
            code=UNAUTHENTICATED,
        )
    if needs == "operator" and caller.role != "operator":
        raise ApiError(403, f"{caller.name} is a {caller.role}; this needs an operator", code=FORBIDDEN)
    return caller


def check_browser(method: str, headers: Mapping[str, str], *, open_to_all: bool) -> None:
    """Raise ApiError 403 for a request that a foreign page may have sent.

    `open_to_all`: there are no tokens, so all callers on this machine are accepted.
    """
    host = headers.get("Host", "")
    if open_to_all and not is_loopback(_hostname(host)):
        raise ApiError(403, "without tokens the Host header must name this machine", code=FORBIDDEN)
    if method in SAFE_METHODS:
        return
    if headers.get("Sec-Fetch-Site", "none") not in OWN_PAGES:
        raise ApiError(
            403, "requests from other web sites may not change anything (Sec-Fetch-Site)", code=FORBIDDEN
        )
    origin = headers.get("Origin")
    if origin is not None and _netloc(origin) != host:
        raise ApiError(403, "requests from other web sites may not change anything (Origin)", code=FORBIDDEN)


def check_page(headers: Mapping[str, str]) -> None:
    """Raise ApiError 403 for a request of a foreign page: it cannot read the answer, and yet takes a place."""
    if headers.get("Sec-Fetch-Site", "none") not in OWN_PAGES:
        raise ApiError(403, "pages of other web sites may not read records (Sec-Fetch-Site)", code=FORBIDDEN)


def by_script(headers: Mapping[str, str]) -> bool:
    """Return whether a page's script asks: a browser would show its own form for Basic."""
    return headers.get("X-Requested-With", "") == "XMLHttpRequest"


def _netloc(origin: str) -> str:
    """Return the host:port of an origin; "" if invalid, such as null."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    """Return the name or address in a Host header; "" if invalid."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["address"] or found["name"]
