"""A stalled leader answers a request for the beginning of a log long after its successor did.

No raftlog here: the brokers are librdkafka's own for its tests. The consumer's use of the late response is its own
doing, whatever the brokers are, and the stock port must not be caught by it.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raftlog.testing.progress import patient
from raftlog_chaos.workloads.port import encode_value
from raftlog_chaos.workloads.stock import StockPorts
from tests.kit.waits import PATIENCE_S

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

RECORDS = 50
OTHER, ASKED, BUSY = 0, 1, 2
"""Partitions: the first keeps a connection to a live broker, the second moves, the third opens its leader's connection.
"""
SLOW, NEXT, AWAKE = 1, 2, 3
"""Brokers."""
LATE_MS = int(patient(2.5) * 1000)
PRODUCER = 0


class Brokers:
    """librdkafka's own brokers in this process, by its C interface: three of them, one topic `t`."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._c, name).restype = ctypes.c_void_p
        self._c.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        reason = ctypes.create_string_buffer(256)
        config = ctypes.c_void_p(self._c.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(self._c.rd_kafka_new(PRODUCER, config, reason, len(reason)))
        self._cluster = ctypes.c_void_p(self._c.rd_kafka_mock_cluster_new(self._client, 3))
        self._c.rd_kafka_mock_topic_create(self._cluster, b"t", 3, 3)
        self.bootstrap = self._c.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def lead(self, partition: int, broker_id: int) -> None:
        self._c.rd_kafka_mock_partition_set_leader(self._cluster, b"t", partition, broker_id)

    def answer_after(self, broker_id: int, milliseconds: int) -> None:
        self._c.rd_kafka_mock_broker_set_rtt(self._cluster, broker_id, milliseconds)

    def close(self) -> None:
        self._c.rd_kafka_mock_cluster_destroy(self._cluster)
        self._c.rd_kafka_destroy(self._client)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    try:
        for partition, broker_id in ((OTHER, AWAKE), (ASKED, SLOW), (BUSY, SLOW)):
            brokers.lead(partition, broker_id)
        producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            for partition in (OTHER, ASKED, BUSY):
                key = f"t-{partition}"
                producer.produce("t", encode_value(key, number), partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        yield brokers
    finally:
        brokers.close()


class Raw:
    """A consumer as anybody would write it: it asks for the beginning."""

    def __init__(self, brokers: Brokers) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "group.id": "raw",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.interval.ms": 100,
                "log_level": 0,
            }
        )
        self._position = confluent_kafka.OFFSET_BEGINNING

    def assign(self, *partitions: int) -> None:
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition("t", each, self._position if each == ASKED else RECORDS - 1)
                for each in partitions
            ]
        )

    def read(self) -> list[int]:
        message = self._consumer.poll(0.05)
        if message is None or message.error() is not None or message.partition() != ASKED:
            return []
        self._position = message.offset() + 1
        return [message.offset()]

    def close(self) -> None:
        self._consumer.close()


class Port:
    """The stock port, called from a test that does not await."""

    def __init__(self, brokers: Brokers) -> None:
        self._loop = asyncio.new_event_loop()
        quick = {"topic.metadata.refresh.interval.ms": 100}
        self._port = StockPorts(brokers.bootstrap, quick)(1, "reader")

    def assign(self, *partitions: int) -> None:
        keys = [f"t-{each}" for each in partitions]
        self._loop.run_until_complete(self._port.assign(keys, seek_to_beginning=False))

    def read(self) -> list[int]:
        reads = self._loop.run_until_complete(self._port.poll())
        return [offset for offset, _ in reads.get(f"t-{ASKED}", [])]

    def close(self) -> None:
        self._loop.run_until_complete(self._port.close())
        self._loop.close()


def read_for(seconds: float, client: Any, until: Callable[[list[int]], bool] = lambda _: False) -> list[int]:
    found: list[int] = []
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at and not until(found):
        found += client.read()
    return found


def offsets_read(brokers: Brokers, client: Any) -> list[int]:
    """A consumer reads a partition; its leader gets slow, is replaced, and answers at last."""
    try:
        client.assign(OTHER, BUSY)
        read_for(1.0, client)
        brokers.answer_after(SLOW, LATE_MS)
        slow_at = time.monotonic()
        client.assign(OTHER, ASKED)
        read_for(0.3, client)
        brokers.lead(ASKED, NEXT)
        found = read_for(PATIENCE_S, client, lambda found: len(found) >= RECORDS)
        assert time.monotonic() < slow_at + LATE_MS / 1000, (
            "the successor served before the old leader answered"
        )
        client.assign(OTHER, ASKED)  # where it is: another assignment, no other effect
        return found + read_for(slow_at + LATE_MS / 1000 + 1.5 - time.monotonic(), client)
    finally:
        client.close()


@pytest.mark.nightly
def test_librdkafka_goes_back_to_the_beginning_when_an_old_leader_answers_late(brokers: Brokers) -> None:
    """Its own brokers do it to it. If this fails one day, the stock port may ask for the beginning again."""
    assert offsets_read(brokers, Raw(brokers)) == [*range(RECORDS), *range(RECORDS)]


def test_the_stock_port_stays_where_it_is_when_an_old_leader_answers_late(brokers: Brokers) -> None:
    """It never requests the beginning of a log, so that no response can come late."""
    assert offsets_read(brokers, Port(brokers)) == list(range(RECORDS))
