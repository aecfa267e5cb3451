"""`raftlog produce` and `raftlog consume`, on librdkafka. Keys are hashed as the Java client does (murmur2)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.cli import exits
from raftlog.cli.librdkafka import confluent_kafka, exit_of, open_client

POLL_S = 0.2
FLUSH_S = 60.0
METADATA_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Production:
    """What to send where; `partition` -1 lets the key decide."""

    topic: str
    bootstrap: str
    key_delimiter: str | None
    key: str | None
    partition: int
    acks: str


@dataclass(frozen=True, slots=True)
class Consumption:
    """What to read from where; `partition` -1 is all of them, `count` 0 is without end."""

    topic: str
    bootstrap: str
    offset: str
    partition: int
    count: int
    exit_at_end: bool
    json: bool


def produce_lines(production: Production, settings: Sequence[str]) -> int:
    """Send standard input line by line; returns the exit code. Ctrl-C ends the input; what was read is still sent."""
    failures: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    defaults = {
        "acks": production.acks,
        "enable.idempotence": production.acks == "all",
        "partitioner": "murmur2_random",
    }
    producer, troubles = open_client("Producer", production.bootstrap, defaults=defaults, settings=settings)
    try:
        partitions = producer.list_topics(production.topic, timeout=METADATA_TIMEOUT_S).topics[
            production.topic
        ]
    except confluent_kafka().KafkaException as error:
        print(f"raftlog: {troubles.explain(error.args[0], producer)}", file=sys.stderr)
        return exit_of(error.args[0])
    if partitions.partitions and production.partition >= len(partitions.partitions):
        return _no_such_partition(production.topic, production.partition, len(partitions.partitions))
    code = 0
    try:
        for line in sys.stdin.buffer:
            _send(producer, production, line.rstrip(b"\r\n"), delivered)
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    unsent = producer.flush(FLUSH_S)
    if failures or unsent:
        reason = failures[0].str() if failures else "no answer"
        lost = len(failures) + unsent
        print(
            f"raftlog: {lost} {'record' if lost == 1 else 'records'} not acknowledged: {reason}",
            file=sys.stderr,
        )
        return exit_of(failures[0]) if failures else exits.UNREACHABLE
    return code


def _send(producer: Any, production: Production, line: bytes, delivered: Callable[[Any, Any], None]) -> None:
    key, value = _key_and_value(line, production)
    while True:
        try:
            producer.produce(production.topic, value, key, production.partition, on_delivery=delivered)
            break
        except BufferError:
            producer.poll(POLL_S)
    producer.poll(0)


def _no_such_partition(topic: str, partition: int, partitions: int) -> int:
    known = f"0 to {partitions - 1}" if partitions > 1 else "0 alone"
    print(f"raftlog: topic {topic} has no partition {partition}, but {known}", file=sys.stderr)
    return exits.NOT_FOUND


def _key_and_value(line: bytes, production: Production) -> tuple[bytes | None, bytes]:
    if production.key is not None:
        return production.key.encode(), line
    if production.key_delimiter is None:
        return None, line
    key, delimiter, value = line.partition(production.key_delimiter.encode())
    return (key, value) if delimiter else (None, line)


def consume_lines(consumption: Consumption, settings: Sequence[str]) -> int:
    """Print records to standard output; returns the exit code."""
    library = confluent_kafka()
    defaults = {
        "group.id": "raftlog-consume",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # what was deleted meanwhile is left out, and nothing else
    }
    consumer, troubles = open_client("Consumer", consumption.bootstrap, defaults=defaults, settings=settings)
    try:
        return _consume(library, consumer, consumption)
    except library.KafkaException as error:
        print(f"raftlog: {troubles.explain(error.args[0], consumer)}", file=sys.stderr)
        return exit_of(error.args[0])
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    finally:
        consumer.close()


def _consume(library: Any, consumer: Any, consumption: Consumption) -> int:
    name = consumption.topic
    topic = consumer.list_topics(name, timeout=METADATA_TIMEOUT_S).topics[name]
    if topic.error is not None:
        if topic.error.name() != "UNKNOWN_TOPIC_OR_PART":
            raise library.KafkaException(topic.error)
        print(f"raftlog: there is no topic {name}", file=sys.stderr)
        return exits.NOT_FOUND
    if consumption.partition >= len(topic.partitions):
        return _no_such_partition(name, consumption.partition, len(topic.partitions))
    partitions = sorted(topic.partitions) if consumption.partition < 0 else [consumption.partition]
    consumer.assign(
        [
            library.TopicPartition(name, each, _offset(library, consumer, consumption, each))
            for each in partitions
        ]
    )
    _print_records(library, consumer, consumption, open_partitions=set(partitions))
    return 0


def _offset(library: Any, consumer: Any, consumption: Consumption, partition: int) -> int:
    """Return where to begin: never outside what the partition holds, where a consumer would be sent elsewhere."""
    named: Mapping[str, int] = {"beginning": library.OFFSET_BEGINNING, "end": library.OFFSET_END}
    if consumption.offset in named:
        return named[consumption.offset]
    try:
        offset = int(consumption.offset)
    except ValueError:
        print("raftlog: --offset must be beginning, end or a whole number", file=sys.stderr)
        sys.exit(exits.USAGE)
    low, high = consumer.get_watermark_offsets(
        library.TopicPartition(consumption.topic, partition), timeout=METADATA_TIMEOUT_S
    )
    return int(max(low, min(high, offset if offset >= 0 else high + offset)))


def _print_records(
    client: Any, consumer: Any, consumption: Consumption, *, open_partitions: set[int]
) -> None:
    printed = 0
    out = sys.stdout.buffer
    while open_partitions and (not consumption.count or printed < consumption.count):
        message = consumer.poll(POLL_S)
        if message is None:
            out.flush()
        elif message.error() is None:
            open_partitions.add(message.partition())
            out.write(_line(message, as_json=consumption.json) + b"\n")
            printed += 1
        elif message.error().code() == client.KafkaError._PARTITION_EOF:
            out.flush()
            if consumption.exit_at_end:
                open_partitions.discard(message.partition())
        else:
            raise client.KafkaException(message.error())
    out.flush()


def _line(message: Any, *, as_json: bool) -> bytes:
    value: bytes = message.value() or b""
    if not as_json:
        return value
    key = message.key()
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "headers": {name: _text(content) for name, content in message.headers() or []},
            "key": None if key is None else _text(key),
            "value": None if message.value() is None else _text(value),
        }
    ).encode()


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")
