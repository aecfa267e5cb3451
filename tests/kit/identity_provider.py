"""A small identity provider: it signs tokens, and shows its keys in a file or at an address of loopback.

There it also gives tokens to programs that know the secret (RFC 6749, client credentials).
"""

from __future__ import annotations

import json
import ssl
import time
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

ISSUER = "https://identity.test"
AUDIENCE = "kafka"
CLIENT_SECRET = "the secret of a program"


def make_key(algorithm: str, key_id: str | None = None) -> Key:
    """Return a new key for an algorithm, with its own name as its id."""
    parameters: Any = {"kid": key_id or algorithm.lower(), "use": "sig"}
    if algorithm.startswith("ES"):
        curve: Any = {"256": "P-256", "384": "P-384", "512": "P-521"}[algorithm[2:]]
        return ECKey.generate_key(curve, parameters)
    if algorithm.startswith("Ed"):
        return OKPKey.generate_key("Ed25519", parameters)
    return RSAKey.generate_key(2048, parameters)


def sign(key: Key, algorithm: str, claims: dict[str, Any], **header: Any) -> str:
    """Return a signed token with just these claims."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # of the name EdDSA
        return jwt.encode(
            {"alg": algorithm, "kid": key.kid, **header},
            claims,
            key,
            algorithms=[header.get("alg", algorithm)],
        )


class IdentityProvider:
    """It has one key at a time. `jwks` is the published key set; `fetches` counts the requests for it."""

    def __init__(self, algorithm: str = "ES256") -> None:
        self.algorithm = algorithm
        self.keys = [make_key(algorithm)]
        self.fetches = 0
        self.status = 200
        self.headers: dict[str, str] = {}

    @property
    def jwks(self) -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()

    def body(self) -> Iterable[bytes]:
        """Yield what it answers, in parts."""
        yield self.jwks

    def change_key(self, key_id: str) -> None:
        """Sign with another key from now on, and show only that."""
        self.keys = [make_key(self.algorithm, key_id)]

    def token(self, user: str, *, now_s: int | None = None, lasts_s: int = 600, **claims: Any) -> str:
        """Return a token for a user; `claims` override the usual claims."""
        issued_at = int(time.time()) if now_s is None else now_s
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": issued_at, "exp": issued_at + lasts_s}
        return sign(self.keys[-1], self.algorithm, usual | claims)

    def write(self, path: Path) -> str:
        """Put the keys into a file; returns its URL."""
        path.write_bytes(self.jwks)
        return path.as_uri()

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        """Show the keys at an address of loopback, which is yielded."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.fetches += 1
                self.send_response(provider.status if self.path == "/keys" else 200)
                for name, value in provider.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    for part in provider.body():
                        self.wfile.write(part)
                except OSError:
                    pass  # the client has read enough and closed the connection

            def do_POST(self) -> None:
                """Give a token to alice's program."""
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                basic = b64encode(f"alice:{CLIENT_SECRET}".encode()).decode()
                is_right = (
                    self.headers["Authorization"] == f"Basic {basic}" and b"client_credentials" in asked
                )
                answer = {"access_token": provider.token("alice"), "token_type": "Bearer", "expires_in": 600}
                text = json.dumps(answer if is_right else {"error": "invalid_client"}).encode()
                self.send_response(200 if is_right else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Discard the log line."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
