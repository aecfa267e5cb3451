"""Claims about the admin API's server, over real HTTP: what concerns every route."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster, Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node with its admin API."""
    with AdminCluster(1) as running:
        yield running


def ask(
    cluster: Cluster, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], Any]:
    """Return status, headers and JSON."""
    host, _, port = cluster.admin_url(1).removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        connection.request(method, path, content, {**sent, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text else None
    finally:
        connection.close()


def test_node_says_that_it_lives_and_takes_part(cluster: Cluster) -> None:
    """Probes need no token and no cluster id."""
    assert ask(cluster, "GET", "/v1/live")[2]["status"] == "alive"
    assert ask(cluster, "GET", "/v1/ready")[::2] == (200, {"ready": True, "reasons": []})


def test_failures_are_json_with_a_code_and_a_sentence(cluster: Cluster) -> None:
    """Whatever fails, a program can read why."""
    status, headers, body = ask(cluster, "GET", "/v3/nothing")
    assert (status, body["error_code"]) == (404, 404)
    assert headers["Content-Type"].startswith("application/json")
    status, headers, body = ask(cluster, "DELETE", "/v3/clusters")
    assert (status, headers["Allow"]) == (405, "GET")


def test_request_id_of_the_caller_comes_back_and_a_bad_one_is_replaced(cluster: Cluster) -> None:
    """What goes into logs is bounded and printable."""
    assert ask(cluster, "GET", "/v1/live", headers={"X-Request-Id": "mine-1"})[1]["X-Request-Id"] == "mine-1"
    other = ask(cluster, "GET", "/v1/live", headers={"X-Request-Id": "a b" * 100})[1]["X-Request-Id"]
    assert other != "a b" * 100
    assert len(other) == 16


def test_without_tokens_only_names_of_this_machine_are_served(cluster: Cluster) -> None:
    """A page elsewhere can make its own name point here (DNS rebinding)."""
    for host in ("evil.example", "127.0.0.1.evil.example:80", "127.evil.example"):
        assert ask(cluster, "GET", "/v1/live", headers={"Host": host})[0] == 403
    for host in ("localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert ask(cluster, "GET", "/v1/live", headers={"Host": host})[0] == 200


def test_query_is_checked_by_name(cluster: Cluster) -> None:
    """An unknown or repeated parameter is a mistake, not noise."""
    for query in ("page_size=0", "page_size=x", "nothing=1", "page_size=1&page_size=2", "page_token=%21"):
        status, _, body = ask(cluster, "GET", f"/v3/clusters?{query}")
        assert (status, body.get("error_code")) == (400, 400), query


def test_document_names_every_route_and_is_openapi(cluster: Cluster) -> None:
    """What is served is documented, by the same rows."""
    from openapi_spec_validator import validate

    from raftlog.admin.resources import ROUTES

    document = ask(cluster, "GET", "/openapi.json")[2]
    validate(document)
    assert {(each.template, each.method.lower()) for each in ROUTES} == {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
