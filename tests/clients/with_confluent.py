"""confluent-kafka (librdkafka) as a `StockClient` client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from raftlog_chaos.runs.meter import QUICK_CLIENT
from tests.clients.stock import (
    ClientRefused,
    ClusterDescription,
    Config,
    ReadRange,
    Record,
    RecordMetadata,
    StockClient,
    nothing,
)
from tests.kit.waits import PATIENCE_S, poll_until

POLL_S = 0.1


@contextmanager
def refusals() -> Iterator[None]:
    """Turn librdkafka's exceptions into Refused."""
    try:
        yield
    except KafkaException as error:
        raise ClientRefused(error.args[0].code(), error.args[0].str()) from error


def record_of(message: Message) -> Record:
    return Record(
        message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1]
    )


class Confluent(StockClient):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, **QUICK_CLIENT}
        self._producers: dict[tuple[int | str, str], Producer] = {}

    def close(self) -> None:
        self._producers.clear()

    def _ask(self, request: Callable[[AdminClient], Any]) -> Any:
        """Return the single result of an admin request, from a client of its own.

        An old client that once knew a controller waits for that very broker, dead or alive.
        """
        admin = AdminClient(self.settings)
        with refusals():
            futures = request(admin)
            future = next(iter(futures.values())) if isinstance(futures, dict) else futures
            return future.result(PATIENCE_S)

    # Topics

    def _create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        topic = NewTopic(name, partitions, replicas, config=configs)
        self._ask(lambda admin: admin.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        self._ask(lambda admin: admin.delete_topics([name]))

    def grow_topic(self, name: str, partitions: int) -> None:
        self._ask(lambda admin: admin.create_partitions([NewPartitions(name, partitions)]))

    def topics(self) -> Mapping[str, Sequence[Sequence[int]]]:
        with refusals():
            found = AdminClient(self.settings).list_topics(timeout=PATIENCE_S).topics
        return {
            name: [topic.partitions[index].replicas for index in sorted(topic.partitions)]
            for name, topic in found.items()
        }

    def configs(self, topic: str) -> Mapping[str, Config]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._ask(lambda admin: admin.describe_configs([resource]))
        return {
            name: Config(entry.value, entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
            for name, entry in entries.items()
        }

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._ask(lambda admin: admin.incremental_alter_configs([resource]))

    # Records

    def produce(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        compression: str | None = None,
        acks: int | str = "all",
        acked: Callable[[], None] = nothing,
    ) -> list[RecordMetadata]:
        producer = self._producer(acks, compression or "none")
        acknowledged: dict[int, RecordMetadata] = {}
        errors: list[KafkaError] = []

        def delivered(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
                return
            acknowledged[number] = RecordMetadata(message.partition(), message.offset())
            acked()

        target = {} if partition is None else {"partition": partition}
        with refusals():
            for number, value in enumerate(values):
                producer.produce(topic, value, key, on_delivery=partial(delivered, number), **target)
                producer.poll(0)
            assert producer.flush(2 * PATIENCE_S) == 0
        if errors:
            raise ClientRefused(errors[0].code(), errors[0].str())
        return [acknowledged[number] for number in sorted(acknowledged)]

    def _producer(self, acks: int | str, compression: str) -> Producer:
        """A producer for each way to produce is kept: a new producer waits half a second before it asks for its
        producer id.
        """
        producer = self._producers.get((acks, compression))
        if producer is None:
            producer = self._producers[acks, compression] = Producer(
                {
                    **self.settings,
                    "acks": acks,
                    "enable.idempotence": acks == "all",
                    "compression.type": compression,
                    "partitioner": "murmur2_random",
                    "sticky.partitioning.linger.ms": 0,
                    "linger.ms": 5,
                    "message.timeout.ms": int(PATIENCE_S * 1000),
                }
            )
        return producer

    def _consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                **self.settings,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )

    @staticmethod
    def _take(consumer: Consumer, count: int) -> list[Record]:
        found: list[Record] = []

        def enough() -> bool:
            message = consumer.poll(POLL_S)
            if message is None:
                return False
            if message.error() is not None:
                raise ClientRefused(message.error().code(), message.error().str())
            found.append(record_of(message))
            return len(found) == count

        poll_until(enough, f"{count} records")
        return found

    def read_ranges(self, topic: str, partition: int, legs: Sequence[ReadRange]) -> list[list[Record]]:
        found = []
        with closing(self._consumer()) as consumer, refusals():
            consumer.assign([TopicPartition(topic, partition, legs[0][0])])
            for start, count in legs:
                if found:
                    consumer.seek(TopicPartition(topic, partition, start))
                found.append(self._take(consumer, count))
        return found

    @contextmanager
    def reading(self, topic: str, partition: int) -> Iterator[Callable[[int], list[Record]]]:
        """Read a partition from its start with one consumer: each call of what this gives takes so many records on."""
        with closing(self._consumer()) as consumer, refusals():
            consumer.assign([TopicPartition(topic, partition, 0)])
            yield partial(self._take, consumer)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with closing(self._consumer()) as consumer, refusals():
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], PATIENCE_S
            )
        return found.offset if found.offset >= 0 else None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with closing(self._consumer()) as consumer, refusals():
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
        return low, high

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        record_metadata = TopicPartition(topic, partition, before)
        deleted = self._ask(lambda admin: admin.delete_records([record_metadata]))
        return int(deleted.low_watermark)

    # Groups and cluster

    def consume_as_group(self, topic: str, group: str, count: int) -> list[Record]:
        with closing(self._consumer(**{"group.id": group})) as consumer, refusals():
            consumer.subscribe([topic])
            records = self._take(consumer, count)
            consumer.commit(asynchronous=False)
        return records

    @contextmanager
    def member(self, topic: str, group: str) -> Iterator[None]:
        """Be the one member of a group for a while; librdkafka beats for it in the background."""
        with closing(self._consumer(**{"group.id": group})) as consumer:
            consumer.subscribe([topic])

            def assigned() -> bool:
                consumer.poll(POLL_S)
                return bool(consumer.assignment())

            poll_until(assigned, "the member has its partitions")
            yield

    def groups(self) -> frozenset[str]:
        listed = self._ask(lambda admin: admin.list_consumer_groups())
        assert not listed.errors
        return frozenset(each.group_id for each in listed.valid)

    def describe(self) -> ClusterDescription:
        found = self._ask(lambda admin: admin.describe_cluster())
        return ClusterDescription(
            found.cluster_id, found.controller.id, frozenset(node.id for node in found.nodes)
        )
