"""raftlog.client.oidc and the login with its token: what is sent to an identity provider, and what comes back."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from raftlog.cli.client_settings import dialer_of
from raftlog.client.errors import Refused
from raftlog.client.oidc import Provider, fetch_token
from raftlog.security.sasl_client import Login, login_messages


@contextmanager
def provider(status: int, content: bytes) -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """Give the URL of an identity provider that answers so, and what it was asked: (authorization, fields)."""
    asked: list[tuple[str, dict[str, list[str]]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], parse_qs(body)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


def test_the_settings_of_a_file_become_a_login_with_a_fresh_token() -> None:
    """librdkafka's names; id and secret are not encoded for URLs, as in KIP-768 by default."""
    with provider(200, json.dumps({"access_token": "abc"}).encode()) as (url, asked):
        dialer = dialer_of(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": url,
                "sasl.oauthbearer.client.id": "alice",
                "sasl.oauthbearer.client.secret": "in: wonderland",
                "sasl.oauthbearer.scope": "kafka",
            }
        )
        assert dialer.login is not None and not asked
        login = dialer.login()
        dialer.login()
    assert login == Login("OAUTHBEARER", "", "abc")
    secret = base64.b64encode(b"alice:in: wonderland").decode()
    fields = {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert asked == [(f"Basic {secret}", fields)] * 2, "each connection has a token of its own"


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (401, b"{}", "returned 401"),
        (200, b"<html>", "has no access_token"),
        (200, b"[]", "has no access_token"),
        (200, b"{}", "has no access_token"),
    ],
)
def test_a_provider_without_a_token_is_named_as_the_reason(status: int, content: bytes, said: str) -> None:
    """The secret is in no message."""
    with provider(status, content) as (url, _), pytest.raises(Refused, match=said) as failed:
        fetch_token(Provider(url, "alice", "a secret"))
    assert "a secret" not in str(failed.value)


def test_an_error_within_the_exchange_is_acknowledged() -> None:
    """The server then ends the exchange with its error (RFC 7628, 3.2.3)."""
    messages = login_messages(Login("OAUTHBEARER", "", "abc"), nonce="")
    assert next(messages) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert messages.send(b'{"status":"invalid_token"}') == b"\x01"
    accepted = login_messages(Login("OAUTHBEARER", "", "abc"), nonce="")
    next(accepted)
    with pytest.raises(StopIteration):
        accepted.send(b"")
