"""Claims about the admin API's server, over real HTTP: what concerns every route."""

from __future__ import annotations

import pytest
from openapi_spec_validator import validate

from raftlog.admin.limits import Limits
from raftlog.admin.resources import ROUTES
from tests.admin.conftest import Api


def test_node_says_that_it_lives_and_takes_part(node: Api) -> None:
    """Probes need no token and no cluster id."""
    assert node.ask("GET", "/v1/live")[2]["status"] == "alive"
    assert node.ask("GET", "/v1/ready")[::2] == (200, {"ready": True, "reasons": [], "warnings": []})


def test_address_without_a_path_says_where_to_go_on(node: Api) -> None:
    """Each of its links leads somewhere."""
    index = node.get("/").body
    assert (index["name"], index["node_id"]) == ("raftlog", 2)
    for name in ("openapi", "health", "clusters"):
        host, _, path = index[name].removeprefix("http://").partition("/")
        assert (host, node.get(f"/{path}").status) == (f"{node.host}:{node.port}", 200)
    assert index["metrics"].endswith("/metrics")


def test_failures_are_json_with_a_code_and_a_sentence(node: Api) -> None:
    """Every failure has a reason that a program can read."""
    status, headers, body = node.ask("GET", "/v3/nothing")
    assert (status, body["error_code"]) == (404, 404)
    assert headers["Content-Type"].startswith("application/json")
    status, headers, body = node.ask("DELETE", "/v3/clusters")
    assert (status, headers["Allow"]) == (405, "GET")


def test_request_id_of_the_caller_comes_back_and_a_bad_one_is_replaced(node: Api) -> None:
    """Text that goes into logs is bounded and printable."""
    assert node.ask("GET", "/v1/live", headers={"X-Request-Id": "mine-1"})[1]["X-Request-Id"] == "mine-1"
    other = node.ask("GET", "/v1/live", headers={"X-Request-Id": "a b" * 100})[1]["X-Request-Id"]
    assert other != "a b" * 100
    assert len(other) == 16


def test_without_tokens_only_names_of_this_machine_are_served(node: Api) -> None:
    """A page elsewhere can make its own name point here (DNS rebinding)."""
    for host in ("evil.example", "127.0.0.1.evil.example:80", "127.evil.example"):
        assert node.ask("GET", "/v1/live", headers={"Host": host})[0] == 403
    for host in ("localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert node.ask("GET", "/v1/live", headers={"Host": host})[0] == 200


def test_without_tokens_one_of_another_cluster_is_passed_over_and_a_wrong_password_is_not(node: Api) -> None:
    """Everybody on this machine may call, but not under a name that was not proved."""
    answer = node.ask("GET", "/v3/clusters", headers={"Authorization": "Bearer of-another-cluster"})
    assert answer.status == 200
    for wrong in ("Basic YWxpY2U6YSBndWVzcw==", "Basic x", "Other x"):
        assert node.ask("GET", "/v3/clusters", headers={"Authorization": wrong}).status == 401


def test_query_is_checked_by_name(node: Api) -> None:
    """An unknown or repeated parameter is a mistake, not noise."""
    for query in ("page_size=0", "page_size=x", "nothing=1", "page_size=1&page_size=2", "page_token=%21"):
        status, _, body = node.ask("GET", f"/v3/clusters?{query}")
        assert (status, body.get("error_code")) == (400, 400), query


def test_document_names_every_route_and_is_openapi(node: Api) -> None:
    """Every served route is documented, by the same rows."""
    document = node.ask("GET", "/openapi.json")[2]
    validate(document)
    assert {(each.template, each.method.lower()) for each in ROUTES} == {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }


def test_page_from_elsewhere_can_change_nothing(node: Api) -> None:
    """A browser on this machine is no operator: what its pages send says where it comes from."""
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        answer = node.ask("POST", "/v3/clusters/x/topics", {"topic_name": "a"}, headers)
        assert (answer.status, answer.body["error_code"]) == (403, 40301), headers


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b"[" * 100_000, {}, 422),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b'{"topic_name": 5}', {}, 422),
        (b'{"topic_name": "a", "partitions": 5}', {}, 422),
        (b"x" * (Limits().body_bytes + 1), {}, 413),
    ],
    ids=("cut off", "no UTF-8", "deep", "no JSON", "wrong type", "misspelt", "huge"),
)
def test_faulty_body_is_refused_by_its_fault(
    api: Api, body: bytes, headers: dict[str, str], status: int
) -> None:
    """The error shows the sender what to change; no part of the request is done."""
    answer = api.ask("POST", "/topics", body, headers)
    assert (answer.status, answer.body["error_code"]) == (status, status)
    assert api.get("/topics/a").status == 404
