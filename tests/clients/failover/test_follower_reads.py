"""Stock consumers with a rack read from the follower in it (KIP-392), and go on at the leader when it is killed."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.testing.cluster import AdminCluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.with_confluent import Confluent
from tests.kit.settings import SMALL
from tests.kit.waits import until

COUNT = 500
VALUES = [b"%d " % number * 40 for number in range(COUNT)]


@pytest.fixture(scope="module")
def racked() -> Iterator[AdminCluster]:
    """Three nodes, each in a rack of its own."""
    racks = {each: {"broker.rack": f"zone-{each}"} for each in (1, 2, 3)}
    settings = {**SMALL, "replica.selector.class": RACK_AWARE_SELECTOR}
    with AdminCluster(3, settings=settings, node_settings=racks) as cluster:
        yield cluster


def filled(cluster: AdminCluster, topic: str) -> tuple[int, int]:
    """A topic of one partition with VALUES; its leader and one of its followers."""
    cluster.create_topic(topic, settings={"min.insync.replicas": "1"})
    producer = Confluent(cluster.bootstrap_servers)
    producer.produce(topic, VALUES, partition=0)
    producer.close()
    leader = cluster.leader(topic)
    return leader, next(each for each in (1, 2, 3) if each != leader)


def counted(cluster: AdminCluster, node_id: int, name: str, topic: str) -> float:
    """A counter of a topic in a node's metrics; 0 if it is not there."""
    with urllib.request.urlopen(f"{cluster.admin_url(node_id)}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf'^{name}\{{topic="{topic}"\}} (\S+)$', text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


class Librdkafka:
    """A consumer of one partition from its beginning, with the statistics that librdkafka keeps."""

    def __init__(self, cluster: AdminCluster, topic: str, rack: str) -> None:
        self.statistics: dict[str, Any] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"readers of {topic}",
                "client.rack": rack,
                "statistics.interval.ms": 100,
                "stats_cb": lambda text: self.statistics.update(json.loads(text)),
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.offsets: list[int] = []
        self.values: list[bytes | None] = []

    def read(self, count: int) -> None:
        """Read until there are so many records in all."""

        def has_read() -> bool:
            for message in self.consumer.consume(COUNT, timeout=0.05):
                if message.error() is None:
                    self.offsets.append(message.offset())
                    self.values.append(message.value())
            return len(self.offsets) >= count

        until(has_read, f"{count} records are read", seen=lambda: len(self.offsets))

    def source(self, topic: str) -> tuple[int, int]:
        """The broker that the partition is fetched from, and its leader."""
        found = self.statistics.get("topics", {}).get(topic, {}).get("partitions", {}).get("0", {})
        return found.get("broker", -1), found.get("leader", -1)

    def received_from(self, node_id: int) -> int:
        """Bytes received from a broker."""
        brokers = self.statistics.get("brokers", {}).values()
        return sum(each["rxbytes"] for each in brokers if each["nodeid"] == node_id)


def test_librdkafka_reads_from_the_follower_in_its_rack(racked: AdminCluster) -> None:
    """By its own statistics, which name the broker of each partition, and count bytes by broker."""
    leader, follower = filled(racked, "near")
    reader = Librdkafka(racked, "near", f"zone-{follower}")
    try:
        reader.read(COUNT)
        assert reader.values == VALUES

        def is_there() -> bool:
            reader.consumer.poll(0.05)
            return reader.source("near") == (follower, leader)

        until(is_there, "the follower is the source", seen=lambda: reader.source("near"))
        assert reader.received_from(follower) > sum(map(len, VALUES)) > reader.received_from(leader)
    finally:
        reader.consumer.close()
    assert counted(racked, follower, "raftlog_follower_fetches_total", "near") > 0
    assert counted(racked, leader, "raftlog_topic_bytes_out_total", "near") == 0


def test_kafka_python_reads_from_the_follower_in_its_rack(racked: AdminCluster) -> None:
    """By the counters of the brokers: the leader has sent no record."""
    leader, follower = filled(racked, "nearer")
    consumer = KafkaConsumer(
        bootstrap_servers=racked.bootstrap_servers, client_rack=f"zone-{follower}", auto_offset_reset="none"
    )
    found: list[bytes] = []
    try:
        where = KafkaPythonPartition("nearer", 0)
        consumer.assign([where])
        consumer.seek(where, 0)

        def has_read() -> bool:
            found.extend(each.value for each in consumer.poll(timeout_ms=100).get(where, ()))
            return len(found) >= COUNT

        until(has_read, "all is read", seen=lambda: len(found))
    finally:
        consumer.close()
    assert found == VALUES
    assert counted(racked, follower, "raftlog_follower_fetches_total", "nearer") > 0
    assert counted(racked, leader, "raftlog_topic_bytes_out_total", "nearer") == 0


def test_readers_go_on_at_the_leader_when_their_follower_is_killed(racked: AdminCluster) -> None:
    """No record is lost or read twice, though `auto.offset.reset` would be an error here."""
    leader, follower = filled(racked, "killed")
    reader = Librdkafka(racked, "killed", f"zone-{follower}")
    writer = Confluent(racked.bootstrap_servers)
    try:
        reader.read(COUNT)
        with BackgroundProducer(writer, "killed") as producer:
            reader.read(COUNT + 100)
            assert counted(racked, follower, "raftlog_follower_fetches_total", "killed") > 0
            racked.kill(follower)
            producer.wait_acked(200)
        end = COUNT + producer.acked
        reader.read(end)
        assert reader.offsets == list(range(end))
        assert counted(racked, leader, "raftlog_topic_bytes_out_total", "killed") > 0
    finally:
        reader.consumer.close()
        writer.close()
        racked.restart(follower)
