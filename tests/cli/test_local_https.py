"""A node on this machine with a certificate for another name: the requests sent to it without verification."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from tests.cli.live import invoke
from tests.kit.certificates import Authority


@dataclass
class Node:
    """An HTTPS server that says that its restart is safe, and the credentials that reached it."""

    url: str
    authority: str
    credentials: list[str | None] = field(default_factory=list)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    authority = Authority(tmp_path)
    pem = authority.issue("node", "node1.example.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.credentials.append(self.headers["Authorization"])
            body = b'{"blocking": []}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print no line for each request."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = Node(f"https://localhost:{server.server_port}", str(authority.path))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_hook_asks_its_node_without_a_login_and_whatever_the_environment_says(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's environment may have a token and bootstrap servers for its users."""
    monkeypatch.setenv("RAFTLOG_TOKEN", "secret")
    monkeypatch.setenv("RAFTLOG_HTTP_USER", "root:secret")
    monkeypatch.setenv("RAFTLOG_BOOTSTRAP", "127.0.0.1:1")
    code, _, errors = invoke("node", "wait-safe", "--http", node.url, "--wait", "0")
    assert (code, errors, node.credentials) == (0, "", [None])


@pytest.mark.parametrize("verifies", ["token", "user", "cacert", "usual"])
def test_credentials_go_only_to_a_node_whose_certificate_is_verified(node: Node, verifies: str) -> None:
    """And where an authority is named, it counts."""
    api = HttpApi(node.url, skips_verification_here=verifies != "usual")
    match verifies:
        case "token":
            api.token = "secret"
        case "user":
            api.user = "root:secret"
        case "cacert":
            api.cacert = node.authority
    with pytest.raises(Failure) as refused:
        api.ask("GET", "/v1/restart-risks")
    assert (refused.value.code, node.credentials) == (exits.DENIED, [])


def test_port_of_https_is_not_taken_for_kafka_over_tls(node: Node) -> None:
    """The settings of a client would not help."""
    code, _, said = invoke("topic", "list", "-b", node.url.removeprefix("https://"))
    assert code == exits.UNREACHABLE and "HTTP answers there, not Kafka" in said
