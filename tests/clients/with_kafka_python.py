"""kafka-python as a `StockClient` client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions
from kafka.errors import BrokerResponseError, CommitFailedError, KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

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

POLL_MS = 100
PATIENCE_MS = int(PATIENCE_S * 1000)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn kafka-python's exceptions into Refused."""
    try:
        yield
    except BrokerResponseError as error:
        raise ClientRefused(error.errno, str(error)) from error
    except KafkaError as error:
        raise ClientRefused(-1, repr(error)) from error


class KafkaPython(StockClient):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "retry_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
        }
        self._admin = KafkaAdminClient(**self.settings)

    def close(self) -> None:
        self._admin.close()

    # Topics

    def _create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        topic = {"num_partitions": partitions, "replication_factor": replicas, "configs": configs}
        with refusals():
            self._admin.create_topics({name: topic})

    def delete_topic(self, name: str) -> None:
        with refusals():
            self._admin.delete_topics([name])

    def grow_topic(self, name: str, partitions: int) -> None:
        with refusals():
            self._admin.create_partitions({name: NewPartitions(partitions)})

    def topics(self) -> Mapping[str, Sequence[Sequence[int]]]:
        with refusals():
            found = self._admin.describe_topics()
        return {
            topic["name"]: [
                each["replica_nodes"]
                for each in sorted(topic["partitions"], key=lambda one: one["partition_index"])
            ]
            for topic in found
        }

    def configs(self, topic: str) -> Mapping[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with refusals():
            found = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {
            name: Config(each["value"], each["config_source"] == "DYNAMIC_TOPIC_CONFIG")
            for name, each in found.items()
        }

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        with refusals():
            answer = self._admin.alter_configs([resource])["topic"][topic]
        if answer != "OK":  # reported, not raised: "[Error 40] ..."
            raise ClientRefused(int(re.findall(r"\d+", answer)[0]), answer)

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
        producer = KafkaProducer(
            **self.settings,
            acks=acks,
            enable_idempotence=acks == "all",
            compression_type=compression,
            linger_ms=5,
            delivery_timeout_ms=PATIENCE_MS,
            request_timeout_ms=PATIENCE_MS - 100,
        )
        with closing(producer), refusals():
            futures = []
            for value in values:
                futures.append(producer.send(topic, value, key=key, partition=partition))
                futures[-1].add_callback(lambda _sent: acked())
            producer.flush(PATIENCE_S)
            sent = [future.get(PATIENCE_S) for future in futures]
        return [RecordMetadata(each.partition, each.offset) for each in sent]

    def _consumer(self, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **self.settings, enable_auto_commit=False, auto_offset_reset="earliest", **settings
        )

    @staticmethod
    def _take(consumer: KafkaConsumer, count: int) -> list[Record]:
        found: list[Record] = []

        def enough() -> bool:
            for records in consumer.poll(POLL_MS, max_records=count - len(found)).values():
                found.extend(
                    Record(each.partition, each.offset, each.key, each.value, each.timestamp)
                    for each in records
                )
            return len(found) >= count

        poll_until(enough, f"{count} records")
        return found

    def read_ranges(self, topic: str, partition: int, legs: Sequence[ReadRange]) -> list[list[Record]]:
        tp = TopicPartition(topic, partition)
        found = []
        with closing(self._consumer()) as consumer, refusals():
            consumer.assign([tp])
            for start, count in legs:
                consumer.seek(tp, start)
                found.append(self._take(consumer, count))
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            found = consumer.offsets_for_times({tp: timestamp_ms})[tp]
        return None if found is None else int(found.offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        tp = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition)
        with refusals():
            return int(self._admin.delete_records({tp: before})[tp]["low_watermark"])

    # Groups and cluster

    def consume_as_group(self, topic: str, group: str, count: int) -> list[Record]:
        with closing(self._consumer(group_id=group)) as consumer, refusals():
            consumer.subscribe([topic])
            consumer.partitions_for_topic(
                topic
            )  # once joined, it may forget to rejoin for what it learns then
            records = self._take(consumer, count)
            self._commit_behind(consumer, topic, records)
        return records

    @staticmethod
    def _commit_behind(consumer: KafkaConsumer, topic: str, records: list[Record]) -> None:
        """Commit; a library that has just learnt of partitions wants to rejoin by polling first."""
        ends = {each.partition: each.offset + 1 for each in records}
        offsets = {TopicPartition(topic, each): OffsetAndMetadata(end) for each, end in ends.items()}

        def committed() -> bool:
            try:
                consumer.commit(offsets)
            except (CommitFailedError, RebalanceInProgressError):
                consumer.poll(POLL_MS)
                return False
            return True

        poll_until(committed, "the commit")

    def groups(self) -> frozenset[str]:
        with refusals():
            return frozenset(each["group_id"] for each in self._admin.list_groups())

    def describe(self) -> ClusterDescription:
        with refusals():
            found = self._admin.describe_cluster()
        brokers = frozenset(each["broker_id"] for each in found["brokers"])
        return ClusterDescription(found["cluster_id"], found["controller_id"], brokers)
