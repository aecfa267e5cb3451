"""The tokens file: the callers of the admin API, with token and role. It does not know HTTP."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from raftlog.admin.caller import Caller
from raftlog.admin.listener import TokensUnusable

ROLES: Final = ("reader", "operator")
SHORTEST_TOKEN: Final = 16


def parse_tokens(text: str, *, name: str) -> dict[bytes, Caller]:
    """Read lines of `role name token`; skip blank lines and lines that begin with #. Raise TokensUnusable."""
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
            raise TokensUnusable(f"{where}: the token is a duplicate")
        tokens[token.encode()] = Caller(caller, "operator" if role == "operator" else "reader")
    if not tokens:
        raise TokensUnusable(f"{name} has no token")
    return tokens


def by_token(token: str, tokens: Mapping[bytes, Caller]) -> Caller | None:
    """Return the caller with a token."""
    given, found = token.encode(errors="replace"), None
    for known, caller in tokens.items():  # all of them, so that the time reveals no token
        if hmac.compare_digest(known, given):
            found = caller
    return found
