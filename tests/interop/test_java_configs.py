"""Kafka's own tools at the configs of brokers, loggers and client metrics, and a Java client that is asked to push."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.clients.members import group_members
from tests.clients.nodes import told, violations
from tests.interop.member_kinds import java_kind
from tests.interop.scripts import KafkaScripts, Tool
from tests.kit.waits import PATIENCE_S, until

pytestmark = pytest.mark.java

CONFIGS = "kafka.admin.ConfigCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
OF_KAFKA = Path(__file__).parents[1] / "base" / "kafka_4_3_broker_configs.txt"


@pytest.fixture(scope="module")
def two() -> Iterator[AdminCluster]:
    """Two nodes with their admin APIs."""
    with AdminCluster(2) as cluster:
        yield cluster
        found = violations(cluster)
        assert not found, told(found)


def metrics(cluster: AdminCluster) -> str:
    """Return what clients pushed to either node."""
    texts = []
    for node_id in cluster.nodes:
        with urllib.request.urlopen(
            f"{cluster.admin_url(node_id)}/metrics?family=clients", timeout=PATIENCE_S
        ) as answer:
            texts.append(answer.read().decode())
    return "".join(texts)


def test_the_list_of_kafkas_broker_settings_is_what_kafka_prints(scripts: KafkaScripts) -> None:
    """The tests of the config tables walk that list; here it is held against Kafka's own classes."""
    assert scripts.run("raftlog.BrokerConfigs").split("\n") == OF_KAFKA.read_text().split("\n")


def test_the_stock_tool_changes_settings_of_brokers_that_raftlog_has_and_lacks(
    scripts: KafkaScripts, two: AdminCluster
) -> None:
    """Applied, kept without effect, and refused with a reason: for all brokers and for a single broker."""
    tool = Tool(scripts, two, CONFIGS)

    def of_all(*words: str) -> str:
        return tool.say(*words, "--entity-type", "brokers", "--entity-default")

    def of_one(*words: str) -> str:
        return tool.say(*words, "--entity-type", "brokers", "--entity-name", "2")

    assert "Completed updating" in of_all("--alter", "--add-config", "num.io.threads=9,max.connections=900")
    until(lambda: "num.io.threads=9" in of_all("--describe"), "it is shown")
    assert "max.connections=900" in of_all("--describe")
    assert "Completed updating" in of_one("--alter", "--add-config", "max.connections=800")
    synonyms = "DYNAMIC_BROKER_CONFIG:max.connections=800, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=900"
    until(lambda: synonyms in of_one("--describe", "--all"), "the broker's own goes before that of all")
    relogin = "sasl.kerberos.min.time.before.relogin"
    assert "Completed updating" in of_one("--alter", "--add-config", f"{relogin}=1000")
    refused = of_one("--alter", "--add-config", "sasl.kerberos.service.name=kafka")
    assert "raftlog does not carry out this setting of SASL" in refused and "did you mean" not in refused
    kept = of_all("--alter", "--add-config", "max.connection.creation.rate=10")
    assert "Completed updating" in kept, "it has no effect"
    assert "Completed updating" in of_all("--alter", "--delete-config", "num.io.threads,max.connections")


def test_the_stock_tool_changes_the_levels_of_one_brokers_loggers(
    scripts: KafkaScripts, two: AdminCluster
) -> None:
    """kafka-configs.sh --entity-type broker-loggers (KIP-412)."""
    tool = Tool(scripts, two, CONFIGS)

    def say(broker: str, *words: str) -> str:
        return tool.say(*words, "--entity-type", "broker-loggers", "--entity-name", broker)

    assert "raftlog.broker.replicas.fetcher=INFO" in say("2", "--describe")
    assert "Completed updating" in say("2", "--alter", "--add-config", "raftlog.broker=DEBUG")
    assert "raftlog.broker.replicas.fetcher=DEBUG" in say("2", "--describe")
    assert "raftlog.broker.replicas.fetcher=INFO" in say("1", "--describe")
    assert "Invalid broker logger" in say("2", "--alter", "--add-config", "kafka.server=DEBUG")
    assert "Completed updating" in say("2", "--alter", "--delete-config", "raftlog.broker")
    assert "raftlog.broker.replicas.fetcher=INFO" in say("2", "--describe")


def test_a_java_consumer_pushes_what_the_stock_tool_subscribes_to(
    scripts: KafkaScripts, two: AdminCluster
) -> None:
    """kafka-client-metrics.sh: altered, listed, described, deleted; what is pushed stands in /metrics (KIP-714)."""
    tool = Tool(scripts, two, CLIENT_METRICS)
    match = "client_software_name=apache-kafka-java,client_id=consumer-of-java-.*"
    assert "Altered" in tool.say(
        "--alter",
        "--name",
        "java",
        "--metrics",
        "org.apache.kafka.consumer.",
        "--interval",
        "500",
        "--match",
        match,
    )
    until(lambda: "java" in tool.say("--list").split(), "it is listed")
    described = tool.say("--describe", "--name", "java")
    assert "interval.ms=500" in described and "client_id=consumer-of-java-.*" in described
    with group_members(
        two.bootstrap_servers, "pushed", "of-java", java_kind("consumer"), partitions=1
    ) as group:
        group.wait_shares([1])
        name = "kafka_client_consumer_coordinator_assigned_partitions"
        until(
            lambda: f"{name}{{" in metrics(two),
            "the consumer's own metrics are shown",
            seen=lambda: metrics(two),
        )
        (line, *_) = [each for each in metrics(two).splitlines() if each.startswith(f"{name}{{")]
        assert 'client_id="consumer-of-java-1"' in line and 'group_id="of-java"' in line
        assert "kafka_client_producer" not in metrics(two)
    assert "Deleted" in tool.say("--delete", "--name", "java")
    until(lambda: "java" not in tool.say("--list").split(), "it is gone")


def test_stock_tools_cordon_a_broker(scripts: KafkaScripts, two: AdminCluster) -> None:
    """kafka-configs.sh sets cordoned.log.dirs, and kafka-topics.sh is refused with the reason (KIP-1066)."""
    configs = Tool(scripts, two, CONFIGS)
    topics = Tool(scripts, two, "org.apache.kafka.tools.TopicCommand")

    def cordon(folder: str) -> str:
        change = ("--alter", "--add-config", f"cordoned.log.dirs={folder}")
        return configs.say(*change, "--entity-type", "brokers", "--entity-name", "2")

    assert "/elsewhere" in cordon("/elsewhere")
    assert "Completed updating" in cordon("*")
    refused = topics.say("--create", "--topic", "wide", "--replication-factor", "2", "--partitions", "1")
    assert "all log directories of broker 2 are cordoned" in refused
    assert "Created topic" in topics.say("--create", "--topic", "narrow", "--replication-factor", "1")
    unset = ("--alter", "--delete-config", "cordoned.log.dirs")
    assert "Completed updating" in configs.say(*unset, "--entity-type", "brokers", "--entity-name", "2")
    assert "Created topic" in topics.say("--create", "--topic", "wide", "--replication-factor", "2")
