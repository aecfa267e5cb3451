"""Kafka's own tools at the controllers' listener: `--bootstrap-controller` (KIP-919)."""

from __future__ import annotations

import re

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import until
from tests.clients.with_confluent import Confluent
from tests.interop.scripts import KafkaScripts

pytestmark = pytest.mark.java

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def controllers(cluster: Cluster) -> str:
    """Return the listeners of the voters, as Kafka's tools take them."""
    (line,) = re.findall(r"^controller.quorum.voters=(.*)$", cluster.nodes[1].config_path.read_text(), re.M)
    return re.sub(r"\d+@", "", line)


def test_the_stock_tools_ask_and_change_the_controllers(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str
) -> None:
    """The quorum, the cluster's id, features, and configs of topics and of a node: as at the brokers."""
    at_controllers, at_brokers = controllers(cluster), cluster.bootstrap_servers

    def say(tool: str, *words: str) -> str:
        return scripts.run(tool, *words)

    described = say(QUORUM, "--bootstrap-controller", at_controllers, "describe", "--status")
    assert f"LeaderId:{cluster.controller_id()}" in described.replace(" ", ""), described
    replicas = say(QUORUM, "--bootstrap-controller", at_controllers, "describe", "--replication")
    assert replicas.count("Follower") == 2, replicas
    cluster_id = say(CLUSTER, "cluster-id", "--bootstrap-server", at_brokers)
    assert cluster_id == say(CLUSTER, "cluster-id", "--bootstrap-controller", at_controllers)
    endpoints = say(CLUSTER, "list-endpoints", "--bootstrap-controller", at_controllers)
    assert all(each.split(":")[1] in endpoints for each in at_controllers.split(",")), endpoints
    features = say(FEATURES, "--bootstrap-controller", at_controllers, "describe")
    assert "transaction.version" in features, features

    client.create_topic(topic, 1, 1)
    of_topic = ("--bootstrap-controller", at_controllers, "--entity-type", "topics", "--entity-name", topic)
    altered = say(CONFIGS, *of_topic, "--alter", "--add-config", "retention.ms=12345")
    assert "Completed updating" in altered, altered
    at_broker = ("--bootstrap-server", at_brokers, *of_topic[2:])
    until(lambda: "retention.ms=12345" in say(CONFIGS, *at_broker, "--describe"), "a broker shows it")
    of_node = ("--bootstrap-controller", at_controllers, "--entity-type", "brokers", "--entity-name", "2")
    assert "log.retention.ms" in say(CONFIGS, *of_node, "--describe", "--all")
