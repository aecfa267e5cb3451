"""Compacted topics with stock clients: keys are overwritten and deleted, and each library reads what is left."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import batches_on_disk, events, folder, leader_of, view
from tests.clients.stock import ClientRefused, StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.marks import taste
from tests.kit.waits import until

LIBRARIES: list[type[Any]] = [Confluent, KafkaPython, Aiokafka]
each_library = pytest.mark.parametrize("library", taste([Aiokafka], LIBRARIES), ids=lambda each: each.name)
CONFIGS = {
    "cleanup_policy": "compact",
    "segment_bytes": "4000",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "100",
}
KEYS = 5
ROUNDS = 40


def overwrite(client: StockClient, topic: str, number: int) -> None:
    """Write every key again."""
    for key in range(KEYS):
        client.produce(topic, [b"%d " % number * 20], key=b"key %d" % key, partition=0)


def is_cleaned(cluster: Cluster, topic: str) -> bool:
    """Whether every replica has cleaned all but its active segment, so that it does not change any more."""
    view(cluster, topic)  # which takes a moment
    for node_id in cluster.nodes:
        active = max(int(path.stem) for path in folder(cluster, node_id, topic).glob("*.log"))
        if [each["cleaned_until"] for each in cleanings(cluster, node_id, topic)][-1:] != [active]:
            return False
    return True


def cleanings(cluster: Cluster, node_id: int, topic: str) -> list[dict[str, Any]]:
    """A node's log lines about the cleanings of a topic."""
    told = events(cluster, node_id)
    return [each for each in told if each["event"] == "log_compacted" and each["topic"] == topic]


@each_library
def test_every_library_reads_the_newest_value_of_each_key(
    cluster: Cluster, topic: str, library: type[StockClient]
) -> None:
    """Over holes and emptied batches, from offset 0 on; all replicas are cleaned."""
    writer = Confluent(cluster.bootstrap_servers)
    writer.create_topic(topic, 1, 3, **CONFIGS)
    for number in range(ROUNDS):
        overwrite(writer, topic, number)
    writer.close()
    until(lambda: is_cleaned(cluster, topic), "cleaned")
    client = library(cluster.bootstrap_servers)
    count = sum(each.record_count for each in batches_on_disk(cluster, leader_of(cluster, topic), topic))
    assert count < KEYS * ROUNDS / 2
    records = client.read(topic, 0, 0, count)
    assert [each.offset for each in records] == sorted({each.offset for each in records})
    newest = {each.key: each.value for each in records}
    assert newest == {b"key %d" % key: b"%d " % (ROUNDS - 1) * 20 for key in range(KEYS)}
    client.close()
    for node_id in cluster.nodes:
        told = cleanings(cluster, node_id, topic)
        assert all(each["bytes_after"] <= each["bytes_before"] for each in told)


def test_a_deleted_key_goes_with_its_tombstone(cluster: Cluster, topic: str) -> None:
    """A record without a value removes the key; after delete.retention.ms the tombstone goes, too."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 1, 3, **CONFIGS)
    overwrite(client, topic, 0)
    client.produce(topic, [None], key=b"key 0", partition=0)  # type: ignore[list-item]
    written = 0

    def is_gone() -> bool:
        nonlocal written
        written += 1
        overwrite_others(client, topic, written)
        found = client.read(topic, 0, 0, KEYS - 1)
        return b"key 0" not in {each.key for each in found}

    until(is_gone, "the tombstone is gone")
    client.close()


def overwrite_others(client: StockClient, topic: str, number: int) -> None:
    for key in range(1, KEYS):
        client.produce(topic, [b"%d " % number * 400], key=b"key %d" % key, partition=0)


def test_a_record_without_a_key_is_refused(cluster: Cluster, topic: str) -> None:
    """INVALID_RECORD, as Kafka; the topic takes the next record with a key."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 1, 3, **CONFIGS)
    with pytest.raises(ClientRefused) as refused:
        client.produce(topic, [b"value"], partition=0)
    assert refused.value.code == 87
    assert client.produce(topic, [b"value"], key=b"key", partition=0) == [(0, 0)]
    client.close()


def test_a_record_without_a_key_is_distinguished_from_its_neighbours(cluster: Cluster, topic: str) -> None:
    """Of a hundred in a batch ten have no key: those are at fault, the other ninety may come again (KIP-467)."""
    admin = Confluent(cluster.bootstrap_servers)
    admin.create_topic(topic, 1, 3, **CONFIGS)
    admin.close()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 10_000}
    producer = Producer(settings)
    told: dict[int, int] = {}
    for number in range(100):
        key = None if number % 10 == 3 else b"k%d" % number

        def delivered(error: Any, message: Any, number: int = number) -> None:
            told[number] = error.code()

        producer.produce(topic, b"v", key=key, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    at_fault = {number for number, code in told.items() if code == KafkaError.INVALID_RECORD}
    assert at_fault == {*range(3, 100, 10)}
    assert {told[each] for each in told.keys() - at_fault} == {KafkaError._INVALID_DIFFERENT_RECORD}


def test_kafka_python_hears_what_is_wrong_with_each_record(cluster: Cluster, topic: str) -> None:
    """The reason that the broker gives for a record reaches the program."""
    admin = Confluent(cluster.bootstrap_servers)
    admin.create_topic(topic, 1, 3, **CONFIGS)
    admin.close()
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=10_000)
    sent = [
        producer.send(topic, b"v", key=None if number == 7 else b"k", partition=0) for number in range(20)
    ]
    producer.flush(30)
    reasons = [str(each.exception) for each in sent]
    producer.close()
    assert "the record has no key, which a compacted topic needs" in reasons.pop(7)
    assert all("part of a batch which had one more more invalid records" in each for each in reasons)
