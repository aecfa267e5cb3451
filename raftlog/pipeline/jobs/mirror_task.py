"""One task of `mirror`: it skips what the target has, sends the rest in order, and returns the target offsets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from raftlog.pipeline.clients import refusal
from raftlog.pipeline.jobs.offset_map import runs
from raftlog.pipeline.login import DENIED, denied

SOURCE_HEADER: Final = "raftlog.mirror.source"
FIRST_READ_BACK: Final = 500
"""Records at a target's end that are read first; four times as many each time that was not enough."""
PATIENCE_S: Final = 120.0
MAX_DIGITS: Final = 19
"""The maximum number of digits of an offset."""
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
    """It is unknown whether some records are at the target; Spark runs the task again, or the job ends."""


@dataclass(slots=True)
class _Partition:
    """One partition under way: what was there, and what went where. `source` names it, as copies do."""

    source: str
    there: dict[int, int]
    sent: dict[int, int] = field(default_factory=dict)


def copy(
    settings: Mapping[str, str], prefix: str, cluster_id: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Copy a task's records and yield a row of RUNS for each run. For mapInArrow. Raises NotCopied.

    `cluster_id` is the source's.
    """
    from confluent_kafka import Producer

    # gapless: no record follows a lost record, so the next attempt keeps the order
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
                    source = f"{cluster_id}/{at[0]}/{at[1]}"
                    there = _already(settings, (prefix + at[0], at[1]), source, first=row["offset"])
                    partitions[at] = _Partition(source, there)
                one = partitions[at]
                if row["offset"] in one.there:
                    skipped.setdefault(at, {})[row["offset"]] = one.there[row["offset"]]
                else:
                    _send(producer, settings, prefix=prefix, row=row, one=one, failed=failed)
        if producer.flush(PATIENCE_S):
            raise NotCopied(f"the target did not acknowledge all records within {PATIENCE_S:g} s")
        if failed:
            raise NotCopied(failed[0])
    except BaseException:
        producer.purge()  # no record may arrive after the check of the next attempt
        raise
    for at, one in partitions.items():
        yield from _run_rows(at, one.sent, skipped=False)
        yield from _run_rows(at, skipped.get(at, {}), skipped=True)


def _run_rows(at: tuple[str, int], pairs: Mapping[int, int], *, skipped: bool) -> Iterator[pa.RecordBatch]:
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


def _send(
    producer: Any,
    settings: Mapping[str, str],
    *,
    prefix: str,
    row: Mapping[str, Any],
    one: _Partition,
    failed: list[str],
) -> None:
    source = row["offset"]

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(refusal(error, message, settings))
        else:
            one.sent[source] = message.offset()

    headers = copy_headers(row["headers"], f"{one.source}/{source}")
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


def copy_headers(headers: Iterable[Mapping[str, Any]] | None, source: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of a copy: the record's own, but for such as say that it is a copy already, and `source`."""
    own = [(each["key"], each["value"]) for each in headers or () if each["key"] != SOURCE_HEADER]
    return [*own, (SOURCE_HEADER, source.encode())]


def copied_offset(headers: Iterable[tuple[str, bytes | None]] | None, source: str) -> int | None:
    """Return the offset that a record was copied from; None if it is no copy from that partition of that cluster.

    `source` is cluster id/topic/partition. Only the last header counts: a mirror puts its own behind all others.
    """
    named = [value for name, value in headers or () if name == SOURCE_HEADER]
    origin, _, number = (named[-1] if named and named[-1] else b"").decode(errors="replace").rpartition("/")
    if origin != source or len(number) > MAX_DIGITS or not (number.isascii() and number.isdigit()):
        return None
    return int(number)


def _already(
    settings: Mapping[str, str], target: tuple[str, int], source: str, *, first: int
) -> dict[int, int]:
    """Return target offsets by source offset, from `first` on (or the last before it), of existing copies."""
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
    tp = TopicPartition(*target)
    try:
        low, end = consumer.get_watermark_offsets(tp, timeout=PATIENCE_S, cached=False)
        back = FIRST_READ_BACK
        while True:
            begin = max(low, end - back)
            found = _copies(consumer, tp, (begin, end), source=source, settings=settings)
            if begin == low or min(found, default=first) < first:
                return found
            back *= 4
    finally:
        consumer.close()


def _copies(
    consumer: Any, tp: Any, span: tuple[int, int], *, source: str, settings: Mapping[str, str]
) -> dict[int, int]:
    """Return target offsets by source offset of the copies within a span of the target."""
    from confluent_kafka import TopicPartition

    begin, end = span
    found: dict[int, int] = {}
    consumer.assign([TopicPartition(tp.topic, tp.partition, begin)])
    until = time.monotonic() + PATIENCE_S
    reached = begin
    while reached < end:
        if time.monotonic() > until:
            raise NotCopied(f"the end of {tp.topic}-{tp.partition} was not read within {PATIENCE_S:g} s")
        message = consumer.poll(0.5)
        if message is None or message.error():
            if message is not None and message.error().name() in DENIED:
                raise NotCopied(str(denied(settings, "read", [tp.topic])))
            continue
        reached = message.offset() + 1
        try:
            headers = message.headers()
        except (SystemError, UnicodeDecodeError):  # a name is not UTF-8, so it is no copy of a mirror
            continue
        offset = copied_offset(headers, source)
        if offset is not None:
            found.setdefault(offset, message.offset())
    consumer.unassign()
    return found
