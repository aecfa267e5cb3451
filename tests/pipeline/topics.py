"""A stock client beside Spark: makes, fills, shortens and reads topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.clients.raw_client import view_topic
from tests.clients.stock import is_known
from tests.kit.waits import PATIENCE_S, until

LINGER_MS = 10_000
"""No record is sent before all are handed over (flush waits for no time), however slowly that goes."""


class Row(NamedTuple):
    """A record, as a stock consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


class Topics:
    """The topics of a cluster. A change of a topic is known to every node when the call returns."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    @property
    def cluster_id(self) -> str:
        return str(self._admin.list_topics(timeout=PATIENCE_S).cluster_id)

    def make(self, topic: str, partitions: int = 1, *, replicas: int = 3, **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, replicas, config=named)
        self._done(self._admin.create_topics([new]))
        self._everywhere(lambda address: is_known(address, topic, partitions), f"{topic} is known")

    def delete(self, topic: str) -> None:
        self._done(self._admin.delete_topics([topic]))
        self._everywhere(lambda address: view_topic(address, topic) is None, f"{topic} is gone")

    def grow(self, topic: str, partitions: int) -> None:
        self._done(self._admin.create_partitions([NewPartitions(topic, partitions)]))
        self._everywhere(lambda address: is_known(address, topic, partitions), f"{topic} has grown")

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset."""
        self._done(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def fill(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        timestamp_ms: int = 0,
        **more: Any,
    ) -> None:
        """Write values to a partition, in one batch if they are few, and return when all replicas have them."""
        refused: list[str] = []
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": LINGER_MS})
        for value in values:
            producer.produce(
                topic,
                value=value,
                partition=partition,
                timestamp=timestamp_ms,
                on_delivery=lambda error, _: refused.append(str(error)) if error else None,
                **more,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not refused, refused

    def held(self, topic: str, partitions: int = 1) -> int:
        """Return how many offsets all partitions have together."""
        topic_partitions = {
            TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)
        }
        futures = self._admin.list_offsets(topic_partitions)
        return sum(each.result(PATIENCE_S).offset for each in futures.values())

    def read(self, topic: str, partitions: int = 1) -> list[Row]:
        """Return all records of a topic, by partition and offset."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "topics", "enable.partition.eof": True}
        )
        rows: list[Row] = []
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            ended: set[int] = set()
            while len(ended) < partitions:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{topic} does not come to its end"
                if message.error() is None:
                    rows.append(_row(message))
                else:
                    ended.add(message.partition())
        finally:
            consumer.close()
        return sorted(rows, key=lambda row: (row.partition, row.offset))

    def _everywhere(self, holds: Callable[[str], bool], what: str) -> None:
        for address in self.servers.split(","):
            until(lambda address=address: holds(address), f"{what} at {address}")  # type: ignore[misc]

    @staticmethod
    def _done(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(PATIENCE_S)


def _row(message: Any) -> Row:
    return Row(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp()[1],
    )
