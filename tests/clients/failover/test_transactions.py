"""Transactions of stock clients while their coordinators and brokers are killed."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer, TopicPartition

from raftlog.testing.cluster import Cluster
from tests.clients.test_transaction_coordinator import committed
from tests.clients.test_transactions import consumer_of, make_topic, transactional, wait_committed
from tests.kit.waits import PATIENCE_S, waiting

RECORDS = 180
PER_TRANSACTION = 30


class Pipeline:
    """Consume, transform, produce: what was read and what comes of it are one transaction."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.consumer = consumer_of(cluster, "pipeline")
        self.consumer.subscribe(["input"])
        self.producer = transactional(cluster, "pipeline")

    def step(self, *, commit: bool) -> int:
        """One transaction; returns how many records it moved."""
        records = [
            record for record in self.consumer.consume(PER_TRANSACTION, timeout=0.5) if record.error() is None
        ]
        if not records:
            return 0
        self.producer.begin_transaction()
        for record in records:
            self.producer.produce("output", record.value(), key=record.key())
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(
            positions, self.consumer.consumer_group_metadata(), PATIENCE_S
        )
        if commit:
            self.producer.commit_transaction(PATIENCE_S)
            return len(records)
        self.producer.abort_transaction(PATIENCE_S)
        for position in self.consumer.committed(self.consumer.assignment(), PATIENCE_S):
            start = position.offset if position.offset >= 0 else 0
            self.consumer.seek(TopicPartition(position.topic, position.partition, start))
        return 0


def test_each_record_is_processed_once_while_nodes_are_killed(cluster: Cluster) -> None:
    """Consume, transform, produce: aborts, kill -9 of two nodes in turn, and successors that go on."""
    make_topic(cluster, "input")
    make_topic(cluster, "output")
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(RECORDS):
        source.produce("input", b"%d" % number, key=b"%d" % number)
    assert source.flush(PATIENCE_S) == 0
    pipeline = Pipeline(cluster)
    moved = step = 0
    wait = waiting("all records are moved", seen=lambda: moved)
    while moved < RECORDS:
        wait.pause()
        victim = {1: 1, 4: 3}.get(step)
        if victim is not None:
            cluster.kill(victim)
        try:
            moved += pipeline.step(commit=step % 3 != 1)
        except KafkaException as error:
            assert not error.args[0].fatal(), error
            pipeline.producer.abort_transaction(PATIENCE_S)
            pipeline.consumer.close()
            pipeline = Pipeline(cluster)
        if victim is not None:
            cluster.restart(victim)
        step += 1
    pipeline.consumer.close()
    wait_committed(cluster, "output", {b"%d" % number: 1 for number in range(RECORDS)})


def test_a_transaction_outlives_its_coordinator(cluster: Cluster, topic: str) -> None:
    """The coordinator is killed between the records and the commit; this commit holds, and so does the next."""
    cluster.create_topic(topic, partitions=1)
    producer = transactional(cluster, f"id of {topic}")
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, f"{number}")
        assert producer.flush(PATIENCE_S) == 0
        victim = cluster.leader("__transaction_state")
        if number == 1:
            cluster.kill(victim)
        producer.commit_transaction(PATIENCE_S)
        if not cluster.nodes[victim].running:
            cluster.restart(victim)
    assert committed(cluster, topic, 3) == ["0", "1", "2"]
