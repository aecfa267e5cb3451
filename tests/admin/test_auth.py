"""Claims about tokens, roles and addresses: which callers are allowed, and from where."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.admin.listener import TokensUnusable
from raftlog.admin.tokens import by_token, parse_tokens
from raftlog.base.config import ConfigFaults, load_config
from raftlog.base.log import LIMITED_EVERY_S, LIMITED_LINES
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.kit.errors import raises_faults
from tests.kit.waits import log_lines

READER, OPERATOR = "reader-token-0123456789", "operator-token-0123456789"
TOKENS = f"# who may\nreader grafana {READER}\n\noperator alice {OPERATOR}\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(TOKENS.removeprefix("# who may\n"), "utf-8-sig")  # as editors on Windows write it
    with AdminCluster(1, settings={"raftlog.admin.tokens.file": str(path)}) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_each_role_may_do_its_part(guarded: AdminCluster) -> None:
    """Without a token only probes are answered; readers read; operators change."""
    node = Api(guarded.admin_url())
    assert node.get("/v1/ready").status == 200
    refused = node.get("/v3/clusters")
    assert (refused.status, refused.body["error_code"]) == (401, 40101)
    assert refused.headers["WWW-Authenticate"].startswith("Bearer, Basic")
    assert node.ask("GET", "/v3/clusters", headers=bearer("wrong-token-0123456789")).status == 401
    answer = node.ask("GET", "/v3/clusters", headers=bearer(READER))
    at = f"/v3/clusters/{answer.body['data'][0]['cluster_id']}/topics"
    refused = node.ask("POST", at, {"topic_name": "a"}, bearer(READER))
    assert (refused.status, refused.body["error_code"]) == (403, 40301)
    assert node.ask("POST", at, {"topic_name": "a"}, bearer(OPERATOR)).status == 201


def test_refused_change_is_in_the_audit_log(guarded: AdminCluster) -> None:
    """An operator looks for callers that tried what they are not allowed to do."""
    node = Api(guarded.admin_url())
    node.ask("DELETE", "/v3/clusters/none/topics/a", headers={**bearer(READER), "X-Request-Id": "audit-2"})
    (line,) = log_lines(guarded.nodes[1], "audit-2")
    assert '"grafana"' in line
    assert "this needs an operator" in line


def test_every_change_is_in_the_audit_log_without_secrets(guarded: AdminCluster) -> None:
    """The line has the user, the request, the address and the outcome."""
    node = Api(guarded.admin_url())
    node.ask("DELETE", "/v3/clusters/none/topics/a", headers={**bearer(OPERATOR), "X-Request-Id": "audit-1"})
    (line,) = log_lines(guarded.nodes[1], "audit-1")
    for part in ('"admin_change"', '"alice"', '"delete_topic"', "127.0.0.1", "cluster none does not exist"):
        assert part in line
    assert OPERATOR not in guarded.nodes[1].log_path.read_text()


def test_a_flood_without_tokens_fills_no_log(guarded: AdminCluster) -> None:
    """Refused changes and unreadable requests are a few lines each; an operator's change is always written."""
    node = Api(guarded.admin_url())
    host, _, port = guarded.admin_url().removeprefix("http://").rpartition(":")
    began_at = time.monotonic()
    for number in range(4 * LIMITED_LINES):
        node.ask("DELETE", "/v3/clusters/none/topics/a", headers={"X-Request-Id": f"flood-{number}"})
        with socket.create_connection((host, int(port)), timeout=30) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            stranger.recv(1024)
    node.ask("DELETE", "/v3/clusters/none/topics/a", headers={**bearer(OPERATOR), "X-Request-Id": "audit-3"})
    assert log_lines(guarded.nodes[1], "audit-3")
    lines = guarded.nodes[1].log_path.read_text().splitlines()
    most = LIMITED_LINES * (1 + int((time.monotonic() - began_at) // LIMITED_EVERY_S))
    for event in ("flood-", "admin_request_unreadable"):
        assert 0 < sum(event in each for each in lines) <= most


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "no token"),
        ("reader x", "line 1"),
        ("admin x 0123456789abcdef", "role"),
        ("reader x short", "16 characters"),
        ("reader x 0123456789abcdef\noperator y 0123456789abcdef", "line 2"),
    ],
)
def test_faulty_tokens_file_is_refused_by_line(text: str, rule: str) -> None:
    """A node must not start with other rights than its operator wrote down."""
    with pytest.raises(TokensUnusable, match=rule):
        parse_tokens(text, name="tokens")


def test_token_counts_only_whole() -> None:
    """Neither a prefix nor more than the token opens anything."""
    tokens = parse_tokens(TOKENS, name="tokens")
    assert by_token(READER, tokens) is not None
    for value in (READER[:-1], f"{READER}x", "", "é"):
        assert by_token(value, tokens) is None, value


def test_token_counts_only_as_bearer(guarded: AdminCluster) -> None:
    """No other scheme opens anything."""
    node = Api(guarded.admin_url())
    for value in (READER, f"Basic {READER}", f"Token {READER}", "Bearer"):
        assert node.ask("GET", "/v3/clusters", headers={"Authorization": value}).status == 401, value


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9644", "10.0.0.1:9644", "[::]:9644", "127.evil.example:9644", ":9644"]
)
def test_beyond_loopback_the_api_needs_tokens(address: str, tmp_path: Path) -> None:
    """An open admin port on a network would be everybody's."""
    with raises_faults("raftlog.admin.listener"):
        load_config(flags={"raftlog.admin.listener": address, "raftlog.admin.ssl.certificate": "chain.pem"})
    load_config(
        flags={
            "raftlog.admin.listener": address,
            "raftlog.admin.tokens.file": str(tmp_path / "t"),
            "raftlog.admin.ssl.certificate": "chain.pem",
        }
    )


def test_beyond_loopback_tokens_need_tls_by_default(tmp_path: Path) -> None:
    """A token that crosses a network in the clear is everybody's. A client that knows the path says so, and is
    warned.
    """
    far = {"raftlog.admin.listener": "0.0.0.0:9644", "raftlog.admin.tokens.file": str(tmp_path / "t")}
    with pytest.raises(ConfigFaults, match=r"TLS.*raftlog\.admin\.tokens\.without\.tls"):
        load_config(flags=far)
    told = load_config(flags={**far, "raftlog.admin.tokens.without.tls": "true"})
    assert "admin_tokens_without_tls" in {each.event for each in told.warnings}
    secure = load_config(flags={**far, "raftlog.admin.ssl.certificate": "chain.pem"})
    near = load_config(flags={**far, "raftlog.admin.listener": "127.0.0.1:9644"})
    for config in (secure, near):
        assert "admin_tokens_without_tls" not in {each.event for each in config.warnings}
