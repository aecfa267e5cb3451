"""Claims about drains and leadership transfers over HTTP."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.admin.test_health import api_of, create, reasons

TOPIC = "moving"


@pytest.fixture(scope="module")
def cluster_with_topic(cluster: AdminCluster) -> AdminCluster:
    create(cluster, TOPIC)
    return cluster


def leaders(node: Api) -> list[int]:
    """Return the leader of each partition, as a node reports it."""
    return [node.get(f"/v1/topics/{TOPIC}/partitions/{each}/why").body["leader"] for each in range(3)]


def test_leadership_moves_to_the_replica_that_is_named(cluster_with_topic: AdminCluster) -> None:
    """Any node accepts the request; the event says that a user asked for it."""
    node = api_of(cluster_with_topic, 2)
    path = f"/v1/topics/{TOPIC}/partitions/0"
    wanted = next(each for each in (1, 2, 3) if each != leaders(node)[0])
    moved = node.ask("POST", f"{path}/leader", {"leader": wanted})
    assert (moved.status, moved.body) == (200, {"topic": TOPIC, "partition": 0, "leader": wanted})
    cluster_with_topic.wait_until(lambda: leaders(node)[0] == wanted, "it leads")
    newest = node.get(f"{path}/why").body["events"][0]
    assert newest["what"] == ["leader_changed"]
    assert newest["because"] == "an unknown user asked to move the leadership"


def test_what_cannot_lead_is_refused(cluster_with_topic: AdminCluster) -> None:
    """Another broker, another topic, no number: each with its own status."""
    node = api_of(cluster_with_topic, 3)
    path = f"/v1/topics/{TOPIC}/partitions"
    assert node.ask("POST", f"{path}/0/leader", {"leader": 9}).status == 400
    assert node.ask("POST", f"{path}/77/leader", {"leader": 1}).status == 404
    assert node.ask("POST", f"{path}/0/leader", {"leader": "one"}).status == 422
    assert node.ask("POST", f"{path}/0/leader", {}).status == 422


def test_a_drained_broker_leads_nothing_until_the_drain_ends(cluster_with_topic: AdminCluster) -> None:
    """Drained, it stays in sync; undone, it may lead again."""
    node = api_of(cluster_with_topic, 1)
    drained = node.ask("POST", "/v1/brokers/3/drain")
    assert (drained.status, drained.body["draining"]) == (200, True)
    # of other tests' topics it may have the only replica
    cluster_with_topic.wait_until(lambda: 3 not in leaders(node), "it leads nothing")
    assert node.get("/v1/brokers/3/drain").body["draining"]
    health = node.get("/v1/health").body
    assert {code: each["severity"] for code, each in reasons(health).items()} == {"brokers_draining": "green"}
    assert health["status"] == "green"
    refused = node.ask("POST", f"/v1/topics/{TOPIC}/partitions/0/leader", {"leader": 3})
    assert refused.status == 409
    assert "drained" in refused.body["message"]
    ended = node.ask("DELETE", "/v1/brokers/3/drain")
    assert (ended.status, ended.body["draining"]) == (200, False)
    assert node.ask("POST", f"/v1/topics/{TOPIC}/partitions/0/leader", {"leader": 3}).status == 200
    assert node.ask("POST", "/v1/brokers/99/drain").status == 404
