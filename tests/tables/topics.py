"""Topics with all kinds of records, and what a stock client reads of them, to compare tables with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kit.waits import PATIENCE_S


class LogRecord(NamedTuple):
    """A record as the log has it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


VALUES = (b"text", b"", None, b"\x00\xff\xfe", b"x" * 10_000)
HEADERS = ([], [("a", b"1"), ("a", b"2")], [("empty", b""), ("null", None)], [("\N{SNOWMAN}", b"\xff")])


def produce(servers: str, topic: str, count: int, *, partitions: int = 3) -> None:
    """Append records with all kinds of keys, values and headers to the partitions in turn."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            VALUES[number % len(VALUES)],
            None if number % 7 == 0 else b"%d" % number,
            partition=number % partitions,
            headers=HEADERS[number % len(HEADERS)],
        )
    assert producer.flush(PATIENCE_S) == 0


def produce_in_transactions(servers: str, topic: str, count: int, *, partitions: int = 3) -> None:
    """Append transactions of five records each, and abort every second one."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-writer", "linger.ms": 5})
    producer.init_transactions(PATIENCE_S)
    for number in range(count):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(topic, b"%d-%d" % (number, each), partition=(number + each) % partitions)
        if number % 2:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def read_log(servers: str, topic: str) -> list[LogRecord]:
    """Return all records that read_committed shows, by partition and offset."""
    return sorted(_read(servers, topic), key=lambda each: (each.partition, each.offset))


def _read(servers: str, topic: str) -> Iterator[LogRecord]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "read-log",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        waiting = set(consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in waiting])
        while waiting:
            (message,) = consumer.consume(1, PATIENCE_S)
            error = message.error()
            if error is None:
                yield LogRecord(
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def as_log_record(row: dict[str, Any]) -> LogRecord:
    """Return a table's row as the record that it was made of."""
    return LogRecord(
        row["partition"],
        row["offset"],
        round(row["timestamp"].timestamp() * 1000),
        row["key"],
        row["value"],
        tuple((each["key"], each["value"]) for each in row["headers"]),
    )


def assert_same(rows: list[dict[str, Any]], log: list[LogRecord]) -> None:
    """Fail unless the table has each record of the log once, byte for byte, and no other row."""
    found = sorted(map(as_log_record, rows), key=lambda each: (each.partition, each.offset))
    assert len(found) == len(log), f"{len(found)} rows, {len(log)} records"
    assert found == log
