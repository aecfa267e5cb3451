"""All nodes are killed at once and started again: what acks=all acknowledged is there, and the cluster goes on."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.nodes import bytes_on_disk, events, restore_nodes, wait_isr
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.marks import taste

LIBRARIES: list[type[Any]] = [Confluent, KafkaPython, Aiokafka]
SOME = 75
each_library = pytest.mark.parametrize("library", taste([KafkaPython], LIBRARIES), ids=lambda each: each.name)


def kill_all(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.kill()


def test_records_commits_topics_and_configs_survive_the_death_of_all_nodes(
    cluster: Cluster, topic: str
) -> None:
    """kill -9 right after the last acknowledgement; offsets go on where they were."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 3, 3, retention_ms="7200000", min_insync_replicas="2")
    values = [b"%d " % number * 20 for number in range(300)]
    for partition in range(3):
        client.produce(topic, values, partition=partition, compression="lz4")
    group = f"group-of-{topic}"
    consumed = client.consume_as_group(topic, group, 400)
    before = client.describe().cluster_id, client.topics()[topic], client.configs(topic)
    records = [client.read(topic, partition, 0, len(values)) for partition in range(3)]
    client.close()
    kill_all(cluster)
    restore_nodes(cluster, topic)
    client = Confluent(cluster.bootstrap_servers)
    assert (client.describe().cluster_id, client.topics()[topic], client.configs(topic)) == before
    assert [client.read(topic, partition, 0, len(values)) for partition in range(3)] == records
    rest = client.consume_as_group(topic, group, 900 - len(consumed))
    assert len({(each.partition, each.offset) for each in consumed + rest}) == 900
    assert client.produce(topic, [b"next"], partition=1) == [(1, len(values))]
    client.close()


@each_library
def test_a_producer_that_outlives_all_nodes_loses_and_doubles_nothing(
    cluster: Cluster, topic: str, library: type[StockClient]
) -> None:
    """All nodes die in the middle of its stream: every record is there once, in order, on every replica."""
    client = library(cluster.bootstrap_servers)
    client.create_topic(topic, 1, 3, min_insync_replicas="2")
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
        kill_all(cluster)
        restore_nodes(cluster, topic)
        stream.wait_acked(SOME)
    client.close()
    reader = Confluent(cluster.bootstrap_servers)
    assert stream.read_back(reader) == stream.values
    reader.close()
    wait_isr(cluster, topic, cluster.nodes)
    logs = [bytes_on_disk(cluster, node_id, topic) for node_id in cluster.nodes]
    assert logs[0] == logs[1] == logs[2]


def test_deleted_topics_and_records_stay_deleted(cluster: Cluster, topic: str) -> None:
    """A topic that was deleted and made anew is another topic, also for a node that missed both."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"old"] * 50)
    client.delete_records(topic, 0, 20)
    cluster.kill(3)
    wait_isr(cluster, topic, {1, 2})
    client.delete_topic(topic)
    survivors = Confluent(",".join(cluster.nodes[node_id].address for node_id in (1, 2)))
    survivors.create_topic(topic, 1, 2)
    survivors.produce(topic, [b"new"])
    kill_all(cluster)
    restore_nodes(cluster, topic)
    assert client.bounds(topic, 0) == (0, 1)
    assert client.read(topic, 0, 0, 1)[0].value == b"new"
    cluster.wait_until(
        lambda: (
            any(event["event"] == "stray_replica_renamed" for event in events(cluster, 3))
            or not (cluster.nodes[3].directory / "data" / f"{topic}-0").exists()
        ),
        "the node that missed it all drops the old replica",
    )
    client.close()
    survivors.close()
