"""aiokafka as a `StockClient` client. Its loop runs only while something is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError

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
from tests.kit.waits import PATIENCE_S

POLL_MS = 100
SET_ON_TOPIC = 1
UNKNOWN = RecordMetadata(-1, -1)  # of a record that is never acknowledged

T = TypeVar("T")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn aiokafka's exceptions into Refused."""
    try:
        yield
    except BrokerResponseError as error:
        raise ClientRefused(error.errno, str(error)) from error
    except KafkaError as error:
        raise ClientRefused(-1, repr(error)) from error


def check(code: int, message: str | None = None) -> None:
    """Raise what aiokafka's admin client only reports."""
    if code:
        raise ClientRefused(code, message or "")


class Aiokafka(StockClient):
    name = "aiokafka"
    keeps_other_configs = False
    leaves_numbers_to_the_broker = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 20}
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, 2 * PATIENCE_S)

        with refusals():
            return self._runner.run(bounded())

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self.settings)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    # Topics

    def _create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        async def create() -> None:
            async with self._admin() as admin:
                topic = NewTopic(name, partitions, replicas, topic_configs=configs)
                answer = await admin.create_topics([topic])
                for _, code, message in answer.topic_errors:
                    check(code, message)

        self._run(create())

    def delete_topic(self, name: str) -> None:
        async def delete() -> None:
            async with self._admin() as admin:
                answer = await admin.delete_topics([name])
                for _, code in answer.topic_error_codes:
                    check(code)

        self._run(delete())

    def grow_topic(self, name: str, partitions: int) -> None:
        async def grow() -> None:
            async with self._admin() as admin:
                await admin.create_partitions({name: NewPartitions(partitions)})

        self._run(grow())

    def topics(self) -> Mapping[str, Sequence[Sequence[int]]]:
        async def describe() -> list[Any]:
            async with self._admin() as admin:
                return await admin.describe_topics()

        return {
            topic["topic"]: [
                each["replicas"] for each in sorted(topic["partitions"], key=lambda one: one["partition"])
            ]
            for topic in self._run(describe())
        }

    def configs(self, topic: str) -> Mapping[str, Config]:
        async def describe() -> Any:
            async with self._admin() as admin:
                (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                return answer.resources[0]

        code, message, _, _, entries = self._run(describe())
        check(code, message)
        return {
            name: Config(value, source == SET_ON_TOPIC) for name, value, _read_only, source, *_ in entries
        }

    def set_config(self, topic: str, name: str, value: str) -> None:
        async def alter() -> None:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
                for answer in await admin.alter_configs([resource]):
                    for code, message, *_ in answer.resources:
                        check(code, message)

        self._run(alter())

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
        async def send() -> list[RecordMetadata]:
            producer = AIOKafkaProducer(
                **self.settings,
                acks=acks,
                enable_idempotence=acks == "all",
                compression_type=compression,
                linger_ms=5,
            )
            await producer.start()
            try:
                sent = []
                for value in values:
                    sent.append(await producer.send(topic, value, key=key, partition=partition))
                    sent[-1].add_done_callback(lambda done: done.exception() or acked())
                    await asyncio.sleep(0)  # send alone does not let the sender run
                acknowledged = [await each for each in sent]
            finally:
                await producer.stop()
            return [
                UNKNOWN if each is None else RecordMetadata(each.partition, each.offset)
                for each in acknowledged
            ]

        return self._run(send())

    @asynccontextmanager
    async def _consumer(self, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            *topics,
            **self.settings,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **settings,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    @staticmethod
    async def _take(consumer: AIOKafkaConsumer, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=count - len(found))
            for records in polled.values():
                found.extend(
                    Record(each.partition, each.offset, each.key, each.value, each.timestamp)
                    for each in records
                )
        return found

    def read_ranges(self, topic: str, partition: int, legs: Sequence[ReadRange]) -> list[list[Record]]:
        async def take() -> list[list[Record]]:
            async with self._consumer() as consumer:
                record_metadata = TopicPartition(topic, partition)
                consumer.assign([record_metadata])
                found = []
                for start, count in legs:
                    consumer.seek(record_metadata, start)
                    found.append(await self._take(consumer, count))
                return found

        return self._run(take())

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask() -> int | None:
            async with self._consumer() as consumer:
                record_metadata = TopicPartition(topic, partition)
                consumer.assign([record_metadata])
                found = (await consumer.offsets_for_times({record_metadata: timestamp_ms}))[record_metadata]
                return None if found is None else found.offset

        return self._run(ask())

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            async with self._consumer() as consumer:
                record_metadata = TopicPartition(topic, partition)
                consumer.assign([record_metadata])
                starts = await consumer.beginning_offsets([record_metadata])
                ends = await consumer.end_offsets([record_metadata])
                return starts[record_metadata], ends[record_metadata]

        return self._run(ask())

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        async def delete() -> int:
            async with self._admin() as admin:
                record_metadata = TopicPartition(topic, partition)
                return (await admin.delete_records({record_metadata: RecordsToDelete(before)}))[
                    record_metadata
                ]

        return self._run(delete())

    # Groups and cluster

    def consume_as_group(self, topic: str, group: str, count: int) -> list[Record]:
        async def consume() -> list[Record]:
            async with self._consumer(topic, group_id=group) as consumer:
                records = await self._take(consumer, count)
                await consumer.commit()
                return records

        return self._run(consume())

    def groups(self) -> frozenset[str]:
        async def ask() -> frozenset[str]:
            async with self._admin() as admin:
                return frozenset(group for group, *_ in await admin.list_consumer_groups())

        return self._run(ask())

    def describe(self) -> ClusterDescription:
        async def ask() -> dict[str, Any]:
            async with self._admin() as admin:
                return await admin.describe_cluster()

        found = self._run(ask())
        brokers = frozenset(each["node_id"] for each in found["brokers"])
        return ClusterDescription(found["cluster_id"], found["controller_id"], brokers)
