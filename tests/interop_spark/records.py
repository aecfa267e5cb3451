"""Topics and records for the tests of the connector: made with a stock client, with distinct values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from raftlog.testing.cluster import Cluster
from tests.clients.stock import is_known
from tests.kit.waits import PATIENCE_S, until


def _administer(cluster: Cluster, request: Callable[[AdminClient], dict[Any, Future[Any]]]) -> None:
    """Send an admin request and wait for all its answers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for future in request(admin).values():
        future.result(PATIENCE_S)


def create(cluster: Cluster, topic: str, partitions: int = 4, **config: str) -> None:
    """Create a topic on three replicas, two of which must have a record."""
    named = {"min.insync.replicas": "2"} | {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=named)
    _administer(cluster, lambda admin: admin.create_topics([new]))
    _wait_known(cluster, topic, partitions)


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    _administer(cluster, lambda admin: admin.create_partitions([NewPartitions(topic, partitions)]))
    _wait_known(cluster, topic, partitions)


def _wait_known(cluster: Cluster, topic: str, partitions: int) -> None:
    """Other nodes hear of a new partition a moment after the answer, and a client may ask any of them."""
    for node in cluster.nodes.values():
        until(lambda node=node: is_known(node.address, topic, partitions), f"{node.address} knows {topic}")  # type: ignore[misc]


def cut(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    """Delete a partition's records below an offset, as retention does."""
    _administer(cluster, lambda admin: admin.delete_records([TopicPartition(topic, partition, offset)]))


def fill(cluster: Cluster, topic: str, numbers: range, partition: int | None = None) -> None:
    """Send the numbers as values, and wait until all are acknowledged by all."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5})
    where = {} if partition is None else {"partition": partition}
    for number in numbers:
        producer.produce(
            topic,
            str(number).encode(),
            f"key-{number % 10}".encode(),
            on_delivery=lambda error, _message: failed.append(str(error)) if error else None,
            **where,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed, failed[0]


@contextmanager
def trickling(cluster: Cluster, topic: str, per_second: int) -> Iterator[list[int]]:
    """Send numbers from 0 on at a pace, idempotently, from a thread; yields the numbers acknowledged so far."""
    stop, acked = threading.Event(), list[int]()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
            "socket.timeout.ms": 5_000,
        }
    )

    def send() -> None:
        number = 0
        while not stop.wait(1 / per_second):

            def note(error: Any, _message: Any, number: int = number) -> None:
                if error is None:
                    acked.append(number)

            producer.produce(topic, str(number).encode(), str(number % 10).encode(), on_delivery=note)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield acked
    finally:
        stop.set()
        thread.join()
        assert producer.flush(PATIENCE_S) == 0
