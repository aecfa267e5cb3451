"""Claims about the driver's requests to a cluster with dying leaders."""

from __future__ import annotations

import pytest

from raftlog.pipeline import lookup
from raftlog.pipeline.options import read_options
from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.spark


def test_offsets_of_a_leader_that_died_are_asked_of_the_next_one(monkeypatch: pytest.MonkeyPatch):
    """librdkafka gives -1001 for them, without an error, where another leader answered. No read ends there."""
    monkeypatch.setattr(lookup, "ATTEMPT_S", 2.0)
    with Cluster(3) as cluster:
        topics = Topics(cluster.bootstrap_servers)
        topics.make("t", 2)
        topics.fill("t", [b"x"] * 10)
        options = read_options({"kafka.bootstrap.servers": topics.servers, "subscribe": "t"}, "batch")
        asked = lookup.Lookup(options)
        before = asked.latest(asked.partitions())
        assert sum(before.values()) == 10
        cluster.kill_leader("t")
        assert asked.latest(before) == before
