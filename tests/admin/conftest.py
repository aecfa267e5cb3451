"""A cluster of three nodes to kill and stop, a plain HTTP client, and the APIs of the cluster that modules share."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S

KEPT: Final = [{"name": "retention.ms", "value": "-1"}]
"""Configs of a topic for records of 1970, which retention would delete."""


class Answer(NamedTuple):
    """A response; `body` is parsed JSON, or None if the body is empty."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Api:
    """The admin API of one node. `at` is prefixed to paths."""

    def __init__(self, url: str, at: str = "") -> None:
        self.host, _, port = url.removeprefix("http://").rpartition(":")
        self.port = int(port)
        self.at = at

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if content is not None else {}
            connection.request(method, self.at + path, content, {**sent, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return Answer(answer.status, answer.headers, _parsed(text))
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="session")
def failover_cluster() -> Iterator[AdminCluster]:
    """Three nodes to kill and stop."""
    with AdminCluster(3, settings=SMALL) as running:
        yield running


@pytest.fixture
def own_cluster(failover_cluster: AdminCluster) -> AdminCluster:
    """The same, whole again: each test finds all nodes running and all replicas in sync."""
    failover_cluster.heal()
    nodes = [Api(failover_cluster.admin_url(each)) for each in failover_cluster.nodes]

    def degraded() -> set[str]:
        reasons = [each for node in nodes for each in node.get("/v1/health").body["reasons"]]
        return {each["code"] for each in reasons} - {"node_slow"}

    failover_cluster.wait_until(lambda: not degraded(), "the cluster is whole", seen=degraded)
    return failover_cluster


@pytest.fixture
def node(cluster: AdminCluster) -> Api:
    """The API of a node, from its root."""
    return Api(cluster.admin_url(2))


@pytest.fixture
def api(cluster: AdminCluster) -> Api:
    """The same node's API, from its cluster: /v3/clusters/{id}."""
    url = cluster.admin_url(2)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    return Api(url, f"/v3/clusters/{found['cluster_id']}")
