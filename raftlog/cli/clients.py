"""`raftlog produce` and `raftlog consume`, on librdkafka. Keys are hashed as the Java client does (murmur2)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.cli import exits

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


def client_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE settings of librdkafka; exits with 2 when one is not of that form."""
    from raftlog.base.config import parse_override

    try:
        return dict(map(parse_override, settings))
    except ValueError as error:
        print(f"raftlog: {error}", file=sys.stderr)
        sys.exit(exits.USAGE)


def confluent_kafka() -> Any:
    """Return the client library; exits with 1 and what to install when it is not there."""
    try:
        import confluent_kafka.admin
    except ImportError:
        print("raftlog: this needs a Kafka client: pip install 'raftlog[demo]'", file=sys.stderr)
        sys.exit(exits.FAILED)
    return confluent_kafka


def produce_lines(production: Production, settings: Sequence[str]) -> int:
    """Send standard input line by line; returns the exit code."""
    client = confluent_kafka()
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = client.Producer(
        {
            "bootstrap.servers": production.bootstrap,
            "acks": production.acks,
            "enable.idempotence": production.acks == "all",
            "partitioner": "murmur2_random",
            **client_settings(settings),
        }
    )
    for line in sys.stdin.buffer:
        key, value = _key_and_value(line.rstrip(b"\r\n"), production)
        while True:
            try:
                producer.produce(production.topic, value, key, production.partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(POLL_S)
        producer.poll(0)
    unsent = producer.flush(FLUSH_S)
    if failures or unsent:
        reason = failures[0] if failures else "no answer"
        print(f"raftlog: {len(failures) + unsent} records not acknowledged: {reason}", file=sys.stderr)
        return exits.FAILED
    return 0


def _key_and_value(line: bytes, production: Production) -> tuple[bytes | None, bytes]:
    if production.key is not None:
        return production.key.encode(), line
    if production.key_delimiter is None:
        return None, line
    key, delimiter, value = line.partition(production.key_delimiter.encode())
    return (key, value) if delimiter else (None, line)


def consume_lines(consumption: Consumption, settings: Sequence[str]) -> int:
    """Print records to standard output; returns the exit code."""
    client = confluent_kafka()
    consumer = client.Consumer(
        {
            "bootstrap.servers": consumption.bootstrap,
            "group.id": "raftlog-consume",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **client_settings(settings),
        }
    )
    try:
        starts = _starts(client, consumer, consumption)
        if starts is None:
            print(f"raftlog: there is no topic {consumption.topic}", file=sys.stderr)
            return exits.NOT_FOUND
        consumer.assign(starts)
        _print_records(client, consumer, consumption, open_partitions={each.partition for each in starts})
    except client.KafkaException as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.UNREACHABLE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    finally:
        consumer.close()
    return 0


def _starts(client: Any, consumer: Any, consumption: Consumption) -> list[Any] | None:
    topic = consumer.list_topics(consumption.topic, timeout=METADATA_TIMEOUT_S).topics[consumption.topic]
    if topic.error is not None:
        return None
    partitions = sorted(topic.partitions) if consumption.partition < 0 else [consumption.partition]
    return [
        client.TopicPartition(consumption.topic, each, _offset(client, consumer, consumption, each))
        for each in partitions
    ]


def _offset(client: Any, consumer: Any, consumption: Consumption, partition: int) -> int:
    named: Mapping[str, int] = {"beginning": client.OFFSET_BEGINNING, "end": client.OFFSET_END}
    if consumption.offset in named:
        return named[consumption.offset]
    try:
        offset = int(consumption.offset)
    except ValueError:
        print("raftlog: -o must be beginning, end or a whole number", file=sys.stderr)
        sys.exit(exits.USAGE)
    if offset >= 0:
        return offset
    low, high = consumer.get_watermark_offsets(
        client.TopicPartition(consumption.topic, partition), timeout=10
    )
    return int(max(low, high + offset))


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
