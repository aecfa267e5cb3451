"""The messages of PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628): bytes to values, bounds first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.base.errors import MALFORMED, SaslAuthenticationFailed

MAX_NAME_CHARS: Final = 1_024

_OAUTH: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^,=\x00]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x00\x01]*\x01)+)\x01"
)


class PlainLogin(NamedTuple):
    """A name and a password from a client. Its text form hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin({self.user!r})"


class OauthLogin(NamedTuple):
    """A token, the requested authorization user, if any, and the extensions (KIP-342)."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"OauthLogin({self.authorization_id!r})"


def parse_plain(message: bytes) -> PlainLogin:
    """Read `[authzid] NUL user NUL password`. Raise SaslAuthenticationFailed."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        parts = []
    if len(parts) != len(("authzid", "user", "password")):
        raise SaslAuthenticationFailed("this is not a PLAIN message", reason=MALFORMED)
    authzid, user, password = parts
    if not user or not password or len(user) > MAX_NAME_CHARS:
        why = "user name and password may not be empty, nor the name very long"
        raise SaslAuthenticationFailed(why, reason=MALFORMED)
    if authzid not in ("", user):
        raise SaslAuthenticationFailed("a user may only log in as itself: the authorization id is another")
    return PlainLogin(user, password)


def parse_oauth(message: bytes) -> OauthLogin:
    """Read a client's first message, of which `auth=Bearer <token>` is one pair. Raise SaslAuthenticationFailed."""
    try:
        match = _OAUTH.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationFailed("this is not an OAUTHBEARER message", reason=MALFORMED)
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    scheme, _, token = pairs.pop("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        why = "an OAUTHBEARER message has auth=Bearer and a token"
        raise SaslAuthenticationFailed(why, reason=MALFORMED)
    authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OauthLogin(token.strip(), authorization_id, pairs)
