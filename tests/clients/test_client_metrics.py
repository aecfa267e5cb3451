"""Claims about stock clients of librdkafka that are asked for their metrics (KIP-714)."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from raftlog.testing.cluster import AdminCluster
from tests.clients.nodes import told, violations
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, until

PUSH_MS = 300


@pytest.fixture(scope="module")
def one() -> Iterator[AdminCluster]:
    """A node with its admin API."""
    with AdminCluster(1, settings=SMALL) as cluster:
        yield cluster
        found = violations(cluster)
        assert not found, told(found)


def subscribe(cluster: AdminCluster, name: str, **configs: str) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name, configs=configs)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        assert admin.alter_configs([resource]) == {"client_metrics": {name: "OK"}}
    finally:
        admin.close()


def shown(cluster: AdminCluster) -> list[str]:
    """Return the lines of /metrics that clients made."""
    with urllib.request.urlopen(
        f"{cluster.admin_url()}/metrics?family=clients", timeout=PATIENCE_S
    ) as answer:
        return [line for line in answer.read().decode().splitlines() if line.startswith("kafka_client_")]


def test_without_a_subscription_a_client_hears_nothing_of_client_metrics(one: AdminCluster) -> None:
    """librdkafka prints a line about subscriptions wherever a broker lists the API for them."""
    said: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.getLogger("tests.client_metrics")
    logger.addHandler(Lines())
    settings = {"bootstrap.servers": one.bootstrap_servers, "debug": "telemetry", "log_level": 7}
    producer = Producer(settings, logger=logger)
    producer.produce("unasked", b"x")
    assert producer.flush(30) == 0
    assert not [line for line in said if "GETSUBSCRIPTIONS" in line], said


def test_librdkafkas_clients_push_what_they_are_asked_for(one: AdminCluster) -> None:
    """A producer with a matching name is shown in /metrics with its numbers; other producers are not."""
    subscribe(one, "asked", **{"metrics": "*", "interval.ms": str(PUSH_MS), "match": "client_id=asked-.*"})
    common = {"bootstrap.servers": one.bootstrap_servers, "log_level": 2}
    asked, other = (Producer({**common, "client.id": name}) for name in ("asked-1", "other-1"))
    consumer = Consumer({**common, "client.id": "asked-2", "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["pushed"])

    def busy() -> list[str]:
        for each in (asked, other):
            each.produce("pushed", b"x")
            each.poll(0)
        consumer.poll(0.05)
        return shown(one)

    def has(name: str, client_id: str) -> bool:
        return any(line.startswith(name) and f'client_id="{client_id}"' in line for line in busy())

    until(
        lambda: has("kafka_client_producer_connection_creation_total", "asked-1"),
        "a producer pushes",
        seen=busy,
    )
    until(
        lambda: has("kafka_client_consumer_connection_creation_total", "asked-2"),
        "a consumer pushes",
        seen=busy,
    )
    assert not [line for line in shown(one) if "other-1" in line]
    consumer.close()
    for each in (asked, other):
        assert each.flush(30) == 0
