"""A program: one transactional producer, `transactor.py LIBRARY BOOTSTRAP ID TIMEOUT_MS`. It ends when its input does.

It does what the lines of its input say: init, begin, `send TOPIC PARTITION VALUE`, `offset GROUP TOPIC PARTITION
OFFSET`, flush, commit, abort. It answers each with `done`, or with `failed`, the exception's name, and why.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

STEP_S = 30.0


class TransactionSteps(Protocol):
    """The steps in one library's words; `flush` raises what became of the records that were sent."""

    def init(self) -> Any: ...
    def begin(self) -> Any: ...
    def send(self, topic: str, partition: int, value: bytes) -> Any: ...
    def offset(self, group: str, topic: str, partition: int, offset: int) -> Any: ...
    def flush(self) -> Any: ...
    def commit(self) -> Any: ...
    def abort(self) -> Any: ...


class Confluent:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._failed: list[Exception] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 20_000),
                "log_level": 0,
            }
        )
        self.init = lambda: self._producer.init_transactions(STEP_S)
        self.begin = self._producer.begin_transaction
        self.commit = lambda: self._producer.commit_transaction(STEP_S)
        self.abort = lambda: self._producer.abort_transaction(STEP_S)

    def _delivered(self, error: Any, _: Any) -> None:
        from confluent_kafka import KafkaException

        if error is not None:
            self._failed.append(KafkaException(error))

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        self.flush()

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        # only a consumer can name a group
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        tp = TopicPartition(topic, partition, offset)
        self._producer.send_offsets_to_transaction([tp], metadata, STEP_S)
        consumer.close()

    def flush(self) -> None:
        self._producer.flush(STEP_S)
        if self._failed:
            raise self._failed.pop()


class KafkaPython:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(STEP_S * 1000),
        )
        self.init = self._producer.init_transactions
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction
        self.flush = self._producer.flush

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(STEP_S)

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        read_to = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(read_to, group)


class Aiokafka:
    """Its loop runs only while something is asked of it, or a line is awaited."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int) -> None:
        from aiokafka import AIOKafkaProducer

        self._runner = asyncio.Runner()

        async def make() -> Any:
            return AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
            )

        self._producer = self._run(make())
        self.init = lambda: self._run(self._producer.start())
        self.begin = lambda: self._run(self._producer.begin_transaction())
        self.commit = lambda: self._run(self._producer.commit_transaction())
        self.abort = lambda: self._run(self._producer.abort_transaction())
        self.flush = lambda: self._run(self._producer.flush())

    def _run(self, work: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(work, STEP_S)

        return self._runner.run(bounded())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        from aiokafka import TopicPartition

        self._run(
            self._producer.send_offsets_to_transaction({TopicPartition(topic, partition): offset}, group)
        )


LIBRARIES: dict[str, Callable[[str, str, int], TransactionSteps]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def tell(line: str) -> None:
    sys.stdout.write(" ".join(line.split()) + "\n")
    sys.stdout.flush()


def obey(producer: TransactionSteps, words: list[str]) -> None:
    match words:
        case ["send", topic, partition, value]:
            producer.send(topic, int(partition), value.encode())
        case ["offset", group, topic, partition, offset]:
            producer.offset(group, topic, int(partition), int(offset))
        case [("init" | "begin" | "flush" | "commit" | "abort") as step]:
            getattr(producer, step)()
        case _:
            raise ValueError(" ".join(words))


def main() -> None:
    library, bootstrap, name, timeout_ms = sys.argv[1:]
    producer = LIBRARIES[library](bootstrap, name, int(timeout_ms))
    tell("done")
    for line in sys.stdin:
        try:
            obey(producer, line.split())
            tell("done")
        except Exception as error:
            tell(f"failed {type(error).__name__} {error!r} {error}")


if __name__ == "__main__":
    main()
