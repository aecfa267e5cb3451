"""A cluster of three nodes to kill and stop, a plain HTTP client, and the APIs of the cluster that modules share."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, until

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
        return {each["code"] for each in reasons} - {"node_slow", "leaders_not_preferred"}

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


BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""The timestamp of the first record: retention by age does not delete it."""


class Queue(NamedTuple):
    """A topic with ten records in partition 0, and the name of a share group that is not there yet."""

    topic: str
    group: str
    node: Api

    def get(self) -> Any:
        return self.node.get(f"/v1/share-groups/{self.group}")

    def reset(self, to: str, value: int | None = None, **more: Any) -> Any:
        body = {"topic_name": self.topic, "to": to, "value": value, **more}
        return self.node.ask("POST", f"/v1/share-groups/{self.group}/reset", body)

    def delete(self, path: str = "") -> Any:
        return self.node.ask("DELETE", f"/v1/share-groups/{self.group}{path}")

    @property
    def starts(self) -> dict[int, int]:
        return {each["partition_id"]: each["start_offset"] for each in self.get().body["offsets"]}


@pytest.fixture
def queue(node: Api, api: Api) -> Iterator[Queue]:
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("t", "q"))
    assert api.ask("POST", "/topics", {"topic_name": topic, "partitions_count": 2}).status == 201
    until(lambda: topic in str(node.get("/v1/topics").body), "the topic is known")
    for number in range(10):
        record = {"partition_id": 0, "value": {"data": number}, "timestamp": BEGAN_MS + 1000 * number}
        assert api.ask("POST", f"/topics/{topic}/records", record).body["error_code"] == 200
    yield Queue(topic, group, node)
    api.ask("DELETE", f"/topics/{topic}")
