"""Claims about a full disk over HTTP: every node names it, and its own node the replicas that it could not make."""

from __future__ import annotations

import urllib.request
from typing import Any

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.admin.test_health import reasons
from tests.kit.waits import PATIENCE_S, until


def test_a_full_disk_is_named_until_there_is_room() -> None:
    """A node that refuses writes reports more than a node exporter does."""
    with AdminCluster(2, voters=1, faults=True) as cluster:
        first, full = Api(cluster.admin_url(1)), Api(cluster.admin_url(2))
        cluster.trouble_disk(2, DiskTrouble(full=True))
        cluster.create_topic("crowded", partitions=20, replication_factor=1)

        def told() -> dict[str, Any]:
            return reasons(full.get("/v1/health").body)

        until(lambda: "replicas_not_created" in told(), "the replicas are named", seen=told)
        found = told()["replicas_not_created"]
        assert (found["severity"], found["count"], found["brokers"]) == ("red", 10, [2])
        assert all(each.startswith("crowded-") for each in found["partitions"])
        assert "No space left on device" in found["message"] and "node-2/data/crowded-" in found["message"]
        for node in (first, full):
            health = node.get("/v1/health").body
            assert reasons(health)["log_dirs_full"]["brokers"] == [2]
            assert "node-2/data" in reasons(health)["log_dirs_full"]["message"]
        with urllib.request.urlopen(f"{cluster.admin_url(2)}/metrics", timeout=PATIENCE_S) as answer:
            assert b"\nraftlog_replicas_not_created 10\n" in answer.read()
        cluster.trouble_disk(2, DiskTrouble())
        until(lambda: told().keys() == {"faults_enabled"}, "they are made", seen=told)
