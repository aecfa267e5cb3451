"""Eligible leader replicas as kafka-topics.sh shows them, and a partition that the second-last replica leads."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.interop.scripts import KafkaScripts, Tool
from tests.kit.waits import until

pytestmark = pytest.mark.java

TOPIC = "careful"


def test_replica_that_left_a_small_isr_is_shown_and_leads_if_it_comes_back_first(
    scripts: KafkaScripts,
) -> None:
    """Two replicas, and both must be in sync: the first to fail is eligible, and leads when the other fails too."""
    with Cluster(3) as cluster:
        cluster.create_topic(TOPIC, replication_factor=2, settings={"min.insync.replicas": "2"})
        cluster.wait_until_healthy()
        topics = Tool(scripts, cluster, "org.apache.kafka.tools.TopicCommand")
        (view,) = cluster.partitions(TOPIC).values()
        leader, second = view.leader, next(each for each in view.replicas if each != view.leader)
        assert "Elr: \t" in topics.say("--describe", "--topic", TOPIC)
        cluster.kill(second)
        until(lambda: f"Elr: {second}" in topics.say("--describe", "--topic", TOPIC), "it is eligible")
        cluster.restart(second, wait=False)
        cluster.wait_until_healthy()
        assert "Elr: \t" in topics.say("--describe", "--topic", TOPIC)
        cluster.kill(second)
        until(lambda: f"Elr: {second}" in topics.say("--describe", "--topic", TOPIC), "it is eligible again")
        cluster.kill(leader)
        cluster.restart(second, wait=False)
        cluster.wait_until(lambda: cluster.leader(TOPIC) == second, "the second-last replica leads")
