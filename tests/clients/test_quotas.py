"""Claims about stock clients of librdkafka with quotas: they are slowed, and see it (KIP-13, KIP-219)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.testing.cluster import AdminCluster
from tests.cli.live import CommandLine
from tests.clients.nodes import told, violations
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, until

RECORD = b"x" * 50_000
FEW, MANY = 10, 40
"""Numbers of records: few pass at once by a quota of 1 per second, many do not."""


@pytest.fixture(scope="module")
def one() -> Iterator[AdminCluster]:
    """A node with its admin API."""
    with AdminCluster(1, settings=SMALL) as cluster:
        yield cluster
        found = violations(cluster)
        assert not found, told(found)


def throttled(cluster: AdminCluster, quota: str) -> float:
    """Return for how many seconds clients were throttled, by /metrics."""
    with urllib.request.urlopen(f"{cluster.admin_url()}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    name = f'raftlog_throttle_seconds_total{{quota="{quota}"}} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def limit(cluster: AdminCluster, client_id: str, quota: str) -> None:
    done = CommandLine(cluster.bootstrap_servers)("quota", "set", "--client-id", client_id, quota)
    assert done.returncode == 0, done.stderr


def client_settings(cluster: AdminCluster, client_id: str, events: list[Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": client_id,
        "throttle_cb": events.append,
        "log_level": 2,
    }


def test_a_producer_sees_that_it_is_throttled_and_loses_no_record(one: AdminCluster) -> None:
    """A producer without a quota is not throttled; how long it takes is not judged here."""
    limit(one, "greedy", f"producer_byte_rate={20 * len(RECORD)}")
    events: list[Any] = []
    modest_events: list[Any] = []
    greedy = Producer(
        client_settings(one, "greedy", events) | {"linger.ms": 0, "batch.size": 2 * len(RECORD)}
    )
    modest = Producer(client_settings(one, "modest", modest_events))
    delivered = 0

    def count(error: Any, _: Any) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    sent = 0

    def send() -> bool:
        nonlocal sent
        for _ in range(FEW):
            greedy.produce("greedy", RECORD, on_delivery=count)
            modest.produce("modest", b"y")
            sent += 1
        greedy.poll(0.01)
        modest.poll(0)
        return bool(events)

    until(send, "the greedy one is throttled", seen=lambda: sent)
    assert events[0].throttle_time > 0
    assert throttled(one, "producer_byte_rate") > 0
    until(lambda: greedy.flush(0.2) == 0, "all is delivered", seen=lambda: delivered)
    assert delivered == sent
    assert modest.flush(PATIENCE_S) == 0
    assert not modest_events


def test_a_consumer_sees_that_it_is_throttled_and_reads_all(one: AdminCluster) -> None:
    """Fetch responses are empty meanwhile, and no record is skipped or read twice."""
    producer = Producer({"bootstrap.servers": one.bootstrap_servers})
    for number in range(MANY):
        producer.produce("read", RECORD, key=str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    limit(one, "reader", f"consumer_byte_rate={2 * len(RECORD)}")
    events: list[Any] = []
    settings = client_settings(one, "reader", events)
    consumer = Consumer(
        settings | {"group.id": "g", "fetch.max.bytes": 200_000, "message.max.bytes": 100_000}
    )
    consumer.assign([TopicPartition("read", 0, 0)])
    keys: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(0.05)
        if message is not None and not message.error():
            keys.append(message.key())
        return len(keys) == MANY

    until(read, "all is read", seen=lambda: (len(keys), len(events)))
    consumer.close()
    assert keys == [str(number).encode() for number in range(MANY)]
    assert events and max(each.throttle_time for each in events) > 0
    assert throttled(one, "consumer_byte_rate") > 0
