"""Exactly once with stock clients on a real cluster: transactions commit or vanish whole, offsets with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.testing.cluster import Cluster
from tests.kit.waits import PATIENCE_S, poll_until, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(PATIENCE_S)


def transactional(cluster: Cluster, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def consumer_of(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "enable.partition.eof": True,
            **settings,
        }
    )


def read_to_the_end(cluster: Cluster, topic: str, **settings: Any) -> Counter[bytes]:
    """Return all records that a new reader finds before the ends of the three partitions."""
    consumer = consumer_of(cluster, "nobody", **settings)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    found: Counter[bytes] = Counter()
    ended: set[int | None] = set()

    def at_the_end() -> bool:
        record = consumer.poll(0.2)
        if record is not None and record.error() is None:
            found[record.value() or b""] += 1
        elif record is not None and record.error().code() == KafkaError._PARTITION_EOF:
            ended.add(record.partition())
        return len(ended) == 3

    poll_until(at_the_end, f"{topic} is read to its end", seen=found.total)
    consumer.close()
    return found


def wait_committed(cluster: Cluster, topic: str, wanted: dict[bytes, int]) -> None:
    """Wait until as many records are to be seen, then see them: a commit is answered before its markers are written."""
    until(
        lambda: read_to_the_end(cluster, topic).total() >= sum(wanted.values()),
        f"{topic} has its last markers",
    )
    assert read_to_the_end(cluster, topic) == wanted


def test_a_read_committed_consumer_sees_committed_transactions_only(cluster: Cluster) -> None:
    """An aborted transaction never, an open transaction not yet; read_uncommitted shows all."""
    make_topic(cluster, "outcomes")
    producer = transactional(cluster, "outcomes")
    for outcome in (b"committed", b"aborted", b"committed", b"aborted"):
        producer.begin_transaction()
        for number in range(30):
            producer.produce("outcomes", outcome, key=b"%d" % number)
        if outcome == b"committed":
            producer.commit_transaction(PATIENCE_S)
        else:
            assert producer.flush(PATIENCE_S) == 0
            producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("outcomes", b"open", key=b"x")
    assert producer.flush(PATIENCE_S) == 0
    assert read_to_the_end(cluster, "outcomes") == {b"committed": 60}
    everything = read_to_the_end(cluster, "outcomes", **{"isolation.level": "read_uncommitted"})
    assert everything == {b"committed": 60, b"aborted": 60, b"open": 1}
    producer.commit_transaction(PATIENCE_S)
    wait_committed(cluster, "outcomes", {b"committed": 60, b"open": 1})


def test_a_zombie_is_fenced_and_what_it_left_open_is_aborted(cluster: Cluster) -> None:
    """The next producer of its id takes over; the zombie's commit fails for good."""
    make_topic(cluster, "zombies")
    zombie = transactional(cluster, "zombies")
    zombie.begin_transaction()
    zombie.produce("zombies", b"zombie")
    assert zombie.flush(PATIENCE_S) == 0
    successor = transactional(cluster, "zombies")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce("zombies", b"successor")
    successor.commit_transaction(PATIENCE_S)
    wait_committed(cluster, "zombies", {b"successor": 1})
