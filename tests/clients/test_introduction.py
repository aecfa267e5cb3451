"""The first steps of a reader of a Kafka introduction, with each stock library. No node is harmed here."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import run_checked
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.waits import run

LIBRARIES: list[type[Any]] = [Confluent, KafkaPython, Aiokafka]
NUM_PARTITIONS = 4
KEYS = [b"alice", b"bob", b"carol", b"dave", b"", b"\x00\xff"]

DOCUMENTED_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Apache Kafka 4.3, "Topic-Level Configs"."""


def test_an_empty_partition_numbers_from_0_and_a_consumer_seeks_back(stock: StockClient, topic: str) -> None:
    """Offsets 0, 1, 2; a consumer at the end seeks to 1 and reads on from there."""
    stock.create_topic(topic, 1, 3)
    assert stock.bounds(topic, 0) == (0, 0)
    acknowledged = [stock.produce(topic, [value])[0] for value in (b"first", b"second", b"third")]
    assert acknowledged == [(0, 0), (0, 1), (0, 2)]
    whole, again = stock.read_ranges(topic, 0, [(0, 3), (1, 2)])
    assert [each.value for each in whole] == [b"first", b"second", b"third"]
    assert again == whole[1:]


def test_the_same_read_gives_the_same_records_in_the_order_they_were_sent(
    stock: StockClient, cluster: Cluster, topic: str
) -> None:
    """Order holds within a partition and records never change, whichever library reads."""
    stock.create_topic(topic, 1, 3)
    values = [b"%d" % number for number in range(200)]
    stock.produce(topic, values[:100])
    stock.produce(topic, values[100:])
    readings = []
    for library in LIBRARIES:
        reader: StockClient = library(cluster.bootstrap_servers)
        readings += reader.read_ranges(topic, 0, [(0, len(values))] * 2)
        reader.close()
    assert [each.value for each in readings[0]] == values
    assert all(reading == readings[0] for reading in readings)


def test_a_topic_without_numbers_gets_the_brokers_defaults(stock: StockClient, topic: str) -> None:
    """CreateTopics with -1 (KIP-464), and a topic created by a producer's first request."""
    names = [f"{topic}-auto"]
    stock.produce(names[0], [b"be"])
    if stock.leaves_numbers_to_the_broker:
        names.append(topic)
        stock.create_topic(topic)
    for name in names:
        stock.wait_known(name)
        assert [sorted(replicas) for replicas in stock.topics()[name]] == [[1, 2, 3]] * NUM_PARTITIONS


def test_an_untouched_topic_reports_the_documented_defaults(stock: StockClient, topic: str) -> None:
    """As in Kafka's documentation, and none of them is said to be set on the topic."""
    stock.create_topic(topic, 1, 3)
    configs = stock.configs(topic)
    assert {name: configs[name].value for name in DOCUMENTED_DEFAULTS} == DOCUMENTED_DEFAULTS
    assert not any(config.set_on_topic for config in configs.values())


def test_the_records_of_one_key_stay_in_one_partition(stock: StockClient, topic: str) -> None:
    """Every library hashes keys (murmur2), and the partition of a key never changes."""
    stock.create_topic(topic, NUM_PARTITIONS, 1)
    homes = {}
    for key in KEYS:
        acknowledged = stock.produce(topic, [b"one", b"two"], key=key) + stock.produce(
            topic, [b"three"], key=key
        )
        homes[key] = {record_metadata.partition for record_metadata in acknowledged}
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set.union(*homes.values())) > 1


def test_raftlogs_own_producer_sends_a_key_where_other_clients_do(cluster: Cluster, topic: str) -> None:
    """`raftlog produce` hashes as the Java client does (murmur2), and so does every library here."""
    clients = [library(cluster.bootstrap_servers) for library in LIBRARIES]
    clients[0].create_topic(topic, NUM_PARTITIONS, 1)
    keys = [b"alice", b"bob", b"carol", b"dave"]
    homes = [[each.produce(topic, [b"v"], key=key)[0].partition for key in keys] for each in clients]
    assert homes[0] == homes[1] == homes[2]
    lines = b"".join(key + b":own\n" for key in keys)
    command = [
        sys.executable,
        "-m",
        "raftlog",
        "produce",
        "-t",
        topic,
        "-b",
        cluster.bootstrap_servers,
        "-K",
        ":",
    ]
    run(command, stdin=lines).check_returncode()
    for partition in range(NUM_PARTITIONS):
        _, end = clients[0].bounds(topic, partition)
        records = clients[0].read(topic, partition, 0, end) if end else []
        own = {record.key for record in records if record.value == b"own"}
        assert own == {key for key, home in zip(keys, homes[0], strict=True) if home == partition}
    for each in clients:
        each.close()


def test_an_explicit_partition_wins_over_the_key(stock: StockClient, topic: str) -> None:
    """The partitioner is only asked when the program names no partition."""
    stock.create_topic(topic, NUM_PARTITIONS, 1)
    for partition in range(NUM_PARTITIONS):
        assert stock.produce(topic, [b"here"], key=b"alice", partition=partition) == [(partition, 0)]


def test_records_without_a_key_spread_evenly(stock: StockClient, topic: str) -> None:
    """No partition gets less than half or more than double its share of 400 records (chance of failing: 1e-8)."""
    stock.create_topic(topic, NUM_PARTITIONS, 1)
    for partition in range(
        NUM_PARTITIONS
    ):  # librdkafka leaves out partitions of leaders that it is not connected to yet
        stock.produce(topic, [b"here"], partition=partition)
    acknowledged = stock.produce(topic, [b"anywhere"] * 400)
    shares = Counter(record_metadata.partition for record_metadata in acknowledged)
    assert all(50 <= shares[partition] <= 200 for partition in range(NUM_PARTITIONS)), shares


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement_works(stock: StockClient, topic: str, acks: int | str) -> None:
    """acks=0 gets no response and is sent all the same."""
    stock.create_topic(topic, 1, 3)
    stock.produce(topic, [b"one", b"two"], acks=acks)
    assert [record.value for record in stock.read(topic, 0, 0, 2)] == [b"one", b"two"]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda each: each.name)
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_client_may_bootstrap_from_any_node_alone(
    cluster: Cluster, topic: str, library: type[StockClient], node_id: int
) -> None:
    """One address is enough to find all brokers and to produce to every partition, wherever it is led."""
    client = library(cluster.nodes[node_id].address)
    client.create_topic(topic, 3, 3)
    for partition in range(3):
        assert client.produce(topic, [b"found"], partition=partition) == [(partition, 0)]
        assert client.read(topic, partition, 0, 1)[0].value == b"found"
    assert client.describe().broker_ids == {1, 2, 3}
    client.close()


def test_two_clusters_on_one_machine_do_not_notice_each_other(cluster: Cluster, topic: str) -> None:
    """Same node ids, same topic names: other brokers, other records, another cluster id."""
    with run_checked(1) as other:
        here, there = Confluent(cluster.bootstrap_servers), Confluent(other.bootstrap_servers)
        for client, value in ((here, b"here"), (there, b"there")):
            client.create_topic(topic, 1, 1)
            client.produce(topic, [value])
        assert here.read(topic, 0, 0, 1)[0].value == b"here"
        assert there.read(topic, 0, 0, 1)[0].value == b"there"
        assert here.bounds(topic, 0) == there.bounds(topic, 0) == (0, 1)
        assert here.describe().broker_ids == {1, 2, 3}
        assert there.describe().broker_ids == {1}
        assert here.describe().cluster_id != there.describe().cluster_id
        here.close()
        there.close()
