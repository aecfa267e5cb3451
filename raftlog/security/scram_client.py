"""The client's side of SCRAM (RFC 5802), without a connection: for logins without a client library."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from raftlog.security.scram import HASHES, MAX_ITERATIONS, salted
from raftlog.security.tokens import EXTENSION

_NO_BINDING: Final = "n,,"


class ServerUnproven(ValueError):
    """The server's messages are malformed, or do not prove that the server knows the user."""


class ScramClient:
    """One login: the bytes of `first`, then `final` with the server's response, then `verify` with the next response.

    `with_token`: the user is a delegation token's id, the password its HMAC in base64 (KIP-48). `derive` is `salted`,
    which takes milliseconds, or keeps its answers.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        nonce: str,
        with_token: bool = False,
        derive: Callable[[str, str, bytes, int], bytes] = salted,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._derive = derive
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}" + (f",{EXTENSION}=true" if with_token else "")
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message, with the user's name."""
        return f"{_NO_BINDING}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the proof of the password. Raise ServerUnproven."""
        nonce, salt, iterations = self.read(server_first)
        salted_password = self._derive(self._mechanism, self._password, salt, iterations)
        name = HASHES[self._mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", name)
        unproven = f"c={b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        said = f"{self._first_bare},{server_first.decode()},{unproven}".encode()
        signature = hmac.digest(hashlib.new(name, client_key).digest(), said, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted_password, b"Server Key", name), said, name)
        return f"{unproven},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raise ServerUnproven unless the server knows the password as well."""
        expected = b"v=" + b64encode(self._server_signature)
        if not self._server_signature or not hmac.compare_digest(expected, server_final):
            raise ServerUnproven("the server did not prove that it knows this user")

    def read(self, server_first: bytes) -> tuple[str, bytes, int]:
        """Return the whole nonce, the salt and the iterations of the server's message. Raise ServerUnproven."""
        try:
            fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
            nonce, salt, iterations = fields["r"], b64decode(fields["s"], validate=True), int(fields["i"])
        except (ValueError, KeyError):
            raise ServerUnproven("the server's message is not a SCRAM message") from None
        if not nonce.startswith(self._nonce) or not 0 < iterations <= MAX_ITERATIONS:
            raise ServerUnproven("the server's nonce or iteration count is invalid")
        return nonce, salt, iterations
