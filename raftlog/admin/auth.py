"""Authentication of callers: bearer tokens with a role each, and the bounds of a web page in somebody's browser.

Without a tokens file the API answers on loopback only, to whoever is on this machine. A name in Host that is not the
machine's own is refused then, so that no page can reach it by a DNS name of its own (rebinding).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from raftlog.admin.errors import FORBIDDEN, UNAUTHENTICATED, ApiError
from raftlog.admin.route import Role
from raftlog.base.config_network import is_loopback

ROLES: Final = ("reader", "operator")
SHORTEST_TOKEN: Final = 16
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_PAGES: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of a page from here, or of no page at all."""


class Caller(NamedTuple):
    """The caller, and its rights."""

    name: str
    role: Role


NOBODY: Final = Caller("anonymous", "operator")
"""The caller on this machine, where no tokens are configured."""


class TokensUnusable(ValueError):
    """A tokens file that cannot be used; the message names the file, the line and the rule."""


def parse_tokens(text: str, *, name: str) -> dict[bytes, Caller]:
    """Read lines of `role name token`; blank ones and those that begin with # are skipped. Raises TokensUnusable."""
    tokens: dict[bytes, Caller] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{name}, line {number}"
        if len(words) != len(("role", "name", "token")):
            raise TokensUnusable(f"{where}: must be `role name token`, but has {len(words)} words")
        role, caller, token = words
        if role not in ROLES:
            raise TokensUnusable(f"{where}: the role must be {' or '.join(ROLES)}, but is {role!r}")
        if len(token) < SHORTEST_TOKEN:
            raise TokensUnusable(f"{where}: the token must have at least {SHORTEST_TOKEN} characters")
        if token.encode() in tokens:
            raise TokensUnusable(f"{where}: the token was given before")
        tokens[token.encode()] = Caller(caller, "operator" if role == "operator" else "reader")
    if not tokens:
        raise TokensUnusable(f"{name} has no token")
    return tokens


def authenticate(headers: Mapping[str, str], tokens: Mapping[bytes, Caller] | None) -> Caller | None:
    """Return who calls; None for a caller without a valid token where tokens are wanted."""
    if tokens is None:
        return NOBODY
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    given = token.strip().encode(errors="replace") if scheme.lower() == "bearer" else b""
    found = None
    for known, caller in tokens.items():  # all of them, so that the time tells nothing
        if hmac.compare_digest(known, given):
            found = caller
    return found


def authorize(caller: Caller | None, needs: Role) -> Caller:
    """Return who calls if it may. Raises ApiError 401 without a valid token, 403 with one of a lower role."""
    if needs == "anyone":
        return caller or Caller("anonymous", "anyone")
    if caller is None:
        raise ApiError(401, "send Authorization: Bearer with a token of this cluster", code=UNAUTHENTICATED)
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


def _netloc(origin: str) -> str:
    """Return the host:port of an origin; "" for what is none, such as null."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
