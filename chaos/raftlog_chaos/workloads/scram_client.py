"""The client's side of SCRAM (RFC 5802), without a connection: three messages out, two in.

It is no stock library, so that a workload or an attack can stop halfway, say things twice, or lie.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """One login: `first`, then `final` with the server's first message, then `is_server`."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._said = ""
        self._salted = b""

    def first(self, header: str = "n,,") -> bytes:
        """Return the first message; `header` may name an authorization id or a channel binding."""
        return f"{header}{self._bare}".encode()

    def final(self, server_first: bytes, *, nonce: str = "") -> bytes:
        """Return the proof, by default for the nonce that the server gave. KeyError: that was no first message."""
        text = server_first.decode()
        given = dict(part.split("=", 1) for part in text.split(","))
        self._salted = salted_password(
            self._hash, self._password, b64decode(given["s"]), iterations=int(given["i"])
        )
        unproven = f"c={b64encode(b'n,,').decode()},r={nonce or given['r']}"
        self._said = f"{self._bare},{text},{unproven}"
        key = hmac.digest(self._salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), self._said.encode(), self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproven},p={b64encode(proof).decode()}".encode()

    def is_server(self, server_final: bytes) -> bool:
        """Whether the server proved that it knows the user's credential."""
        server_key = hmac.digest(self._salted, b"Server Key", self._hash)
        expected = b64encode(hmac.digest(server_key, self._said.encode(), self._hash))
        return hmac.compare_digest(b"v=" + expected, server_final)


@lru_cache(maxsize=256)
def salted_password(hash_name: str, password: str, salt: bytes, *, iterations: int) -> bytes:
    """Return what AlterUserScramCredentials takes; it costs milliseconds, so answers are kept."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
