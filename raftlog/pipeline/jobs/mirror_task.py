"""What one task of `mirror` does: leave out what the target has, send the rest in order, tell which went where."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from raftlog.pipeline.jobs.mirror import runs

SOURCE_HEADER: Final = "raftlog.mirror.source"
LOOK_BACK: Final = 500
"""Records at a target's end that are looked at first; four times as many each time that was not enough."""
PATIENCE_S: Final = 120.0
RUNS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("source", pa.int64()),
        ("target", pa.int64()),
        ("records", pa.int64()),
        ("skipped", pa.bool_()),
    ]
)
RUNS_DDL: Final = "topic string, partition int, source long, target long, records long, skipped boolean"


class NotCopied(RuntimeError):
    """Some records are not known to be at the target; Spark runs the task again, or the job ends."""


@dataclass(slots=True)
class _Partition:
    """One partition under way: what was there, and what went where."""

    there: dict[int, int]
    sent: dict[int, int] = field(default_factory=dict)


def copy(
    settings: Mapping[str, str], prefix: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Copy a task's records and yield a row of RUNS for each run. For mapInArrow. Raises NotCopied."""
    from confluent_kafka import Producer

    # gapless: nothing follows a record that was given up on, so the next attempt keeps the order
    decided = {"acks": "all", "enable.idempotence": True, "enable.gapless.guarantee": True}
    producer = Producer({"log_level": 0, "linger.ms": 20, **settings, **decided})
    partitions: dict[tuple[str, int], _Partition] = {}
    failed: list[str] = []
    skipped: dict[tuple[str, int], dict[int, int]] = {}
    try:
        for batch in batches:
            for row in batch.to_pylist():
                at = (row["topic"], row["partition"])
                if at not in partitions:
                    partitions[at] = _Partition(_already(settings, prefix, *at, first=row["offset"]))
                one = partitions[at]
                if row["offset"] in one.there:
                    skipped.setdefault(at, {})[row["offset"]] = one.there[row["offset"]]
                else:
                    _send(producer, prefix, row, one=one, failed=failed)
        if producer.flush(PATIENCE_S):
            raise NotCopied(f"the target did not acknowledge all records within {PATIENCE_S:g} s")
        if failed:
            raise NotCopied(failed[0])
    except BaseException:
        producer.purge()  # nothing may arrive behind the back of the next attempt, which looks at what is there
        raise
    for at, one in partitions.items():
        yield from _told(at, one.sent, skipped=False)
        yield from _told(at, skipped.get(at, {}), skipped=True)


def _told(at: tuple[str, int], pairs: Mapping[int, int], *, skipped: bool) -> Iterator[pa.RecordBatch]:
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "source": each.source,
            "target": each.target,
            "records": each.count,
            "skipped": skipped,
        }
        for each in runs(*at, pairs.items())
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=RUNS)


def _send(producer: Any, prefix: str, row: Mapping[str, Any], *, one: _Partition, failed: list[str]) -> None:
    source = row["offset"]

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(f"{prefix}{row['topic']}-{row['partition']}: {error}")
        else:
            one.sent[source] = message.offset()

    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    headers.append((SOURCE_HEADER, f"{row['topic']}/{row['partition']}/{source}".encode()))
    timestamp = row["timestamp"]
    while True:
        try:
            producer.produce(
                prefix + row["topic"],
                row["value"],
                row["key"],
                partition=row["partition"],
                timestamp=max(0, round(timestamp.timestamp() * 1000)) if timestamp else 0,
                headers=headers,
                on_delivery=delivered,
            )
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def _already(
    settings: Mapping[str, str], prefix: str, topic: str, partition: int, *, first: int
) -> dict[int, int]:
    """Return target offsets by source offset, from `first` on (or the last one before it), of what is there."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "log_level": 0,
            **settings,
            "group.id": f"raftlog-mirror-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    place = TopicPartition(prefix + topic, partition)
    try:
        low, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S, cached=False)
        back = LOOK_BACK
        while True:
            begin = max(low, end - back)
            found = _copies(consumer, place, (begin, end), source=f"{topic}/{partition}/")
            if begin == low or min(found, default=first) < first:
                return found
            back *= 4
    finally:
        consumer.close()


def _copies(consumer: Any, place: Any, span: tuple[int, int], *, source: str) -> dict[int, int]:
    """Return target offsets by source offset of the copies within a span of the target."""
    from confluent_kafka import TopicPartition

    begin, end = span
    found: dict[int, int] = {}
    consumer.assign([TopicPartition(place.topic, place.partition, begin)])
    until = time.monotonic() + PATIENCE_S
    reached = begin
    while reached < end:
        if time.monotonic() > until:
            raise NotCopied(
                f"the end of {place.topic}-{place.partition} was not read within {PATIENCE_S:g} s"
            )
        message = consumer.poll(0.5)
        if message is None or message.error():
            continue
        reached = message.offset() + 1
        for name, value in message.headers() or ():
            if (
                name == SOURCE_HEADER
                and value is not None
                and value.decode(errors="replace").startswith(source)
            ):
                found.setdefault(int(value.decode().rpartition("/")[2]), message.offset())
    consumer.unassign()
    return found
