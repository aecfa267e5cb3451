"""The client's side of a SASL login, without a connection: PLAIN, SCRAM and OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from raftlog.security.scram import HASHES
from raftlog.security.scram_client import ScramClient

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
"""The mechanisms that `login_messages` knows."""

_GIVE_UP: Final = b"\x01"
"""The client's answer to a server that reports an error within the exchange (RFC 7628)."""


class Login(NamedTuple):
    """A user and what proves it: a password, or with OAUTHBEARER a token and no user.

    `with_token`: the user is a delegation token's id, the password its HMAC in base64 (KIP-48).
    """

    mechanism: str
    user: str
    password: str
    with_token: bool = False


def login_messages(login: Login, *, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the messages of a login; each expects the server's response to be sent in. Raise ServerUnproven."""
    if login.mechanism == PLAIN:
        yield f"\0{login.user}\0{login.password}".encode()
    elif login.mechanism == OAUTHBEARER:
        if (yield f"n,,\x01auth=Bearer {login.password}\x01\x01".encode()):
            yield _GIVE_UP
    else:
        client = ScramClient(
            login.mechanism, login.user, login.password, nonce=nonce, with_token=login.with_token
        )
        client.verify((yield client.final((yield client.first()))))
