"""A task on an executor: it reads exactly one range of offsets into Arrow batches.

Offsets without a record (compacted away, aborted, markers) are skipped. The task keeps asking if a partition ends
before the range does: a new leader may report that for a moment.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from raftlog.pipeline import clients, leader_fetch
from raftlog.pipeline.columns import arrow_schema
from raftlog.pipeline.login import DENIED, denied
from raftlog.pipeline.offsets import Range, report_loss
from raftlog.pipeline.options import ReadOptions

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 8 << 20
FIRST_ROWS: Final = 64
"""A first batch is small, since the size of records is unknown then."""
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
POLL_S: Final = 0.05
SETTLE_S: Final = 5.0
WATERMARKS_S: Final = 10.0
NO_RIGHT_ON_GROUP: Final = "GROUP_AUTHORIZATION_FAILED"


class Stalled(RuntimeError):
    """No records of a range arrived for kafkaConsumer.pollTimeoutMs, though the cluster has some."""


def read_range(options: ReadOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order.

    Raise DataLoss, Stalled, UnreadableHeaders, or what the client library cannot heal.
    """
    position = wanted.start
    schema = _schema(options)
    if leader_fetch.can_read(options.client) and "headers" not in schema.names:
        reading = leader_fetch.LeaderReading(options.client, wanted, schema)
        yield from reading.batches()
        position = reading.position
    if position < wanted.end:
        yield from read_by_consumer(options, wanted, position)


def _schema(options: ReadOptions) -> pa.Schema:
    return arrow_schema(include_headers=options.include_headers, names=options.columns)


def read_by_consumer(options: ReadOptions, wanted: Range, position: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range from a position on."""
    settings = clients.consumer_settings(options.client, options.group_id_prefix)
    inbox = clients.borrow_inbox(settings)
    try:
        yield from _Reading(options, wanted, position, inbox).batches()
    except BaseException:
        inbox.consumer.close()
        raise
    clients.return_inbox(inbox, settings)


class _Reading:
    """One range on one consumer. `position` is the next offset that may still come."""

    def __init__(self, options: ReadOptions, wanted: Range, position: int, inbox: clients.Inbox) -> None:
        self.options = options
        self.wanted = wanted
        self.position = position
        self._consumer = inbox.consumer
        self._door = inbox.door
        self._schema = arrow_schema(include_headers=options.include_headers)
        self._wanted_names = _schema(options).names
        self._rows = FIRST_ROWS
        self._first_lost_at = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._go_to(self.position)
        heard_at = time.monotonic()
        while self.position < self.wanted.end:
            before = self.position
            with _no_garbage_collection():
                batch = self._next_batch()
            if batch is not None:
                yield batch
            now = time.monotonic()
            if self.position > before:
                heard_at = now
                self._door.passed()
                continue
            self._door.check()
            if now - heard_at > self.options.poll_timeout_ms / 1_000:
                raise Stalled(
                    f"no records of {self.wanted} arrived after offset {self.position} for"
                    f" {self.options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
                )

    def _next_batch(self) -> pa.RecordBatch | None:
        rows = min(self._rows, self.wanted.end - self.position)
        records = self._taken(self._consumer.consume(rows, POLL_S))
        if not records:
            return None
        batch = self._batch(records)
        self._rows = max(1, min(BATCH_ROWS, BATCH_BYTES * len(records) // (batch.nbytes or 1)))
        return batch

    def _go_to(self, offset: int) -> None:
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        self.position = offset
        self._consumer.assign([KafkaTopicPartition(self.wanted.at.topic, self.wanted.at.partition, offset)])

    def _taken(self, messages: list[Any]) -> list[Any]:
        """Return the records of the range among what came, and move on behind what came."""
        records = messages
        if messages and any(map(type(messages[0]).error, messages)):
            records = [m for m in messages if m.error() is None]
        if records:
            last = records[-1].offset()
            if records[0].offset() < self.position or last >= self.wanted.end:
                records = [m for m in records if self.position <= m.offset() < self.wanted.end]
            self.position = max(self.position, last + 1)
        for message in messages if len(records) != len(messages) else ():
            if message.error() is not None:
                self._heed(message)
        return records

    def _heed(self, message: Any) -> None:
        """Take the end of the partition for what it is, look into a lost position, and raise what cannot heal."""
        from confluent_kafka import KafkaException

        error = message.error()
        if error.name() == "_PARTITION_EOF":
            self.position = max(self.position, message.offset())
        elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._lost()
        elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
            self._lose(f"{self.wanted.at} is gone while {self.wanted} was to be read: the topic was deleted")
            self.position = self.wanted.end
        elif error.name() in DENIED:
            raise denied(self.options.client, "read", [self.wanted.at.topic])
        elif error.name() == NO_RIGHT_ON_GROUP:
            pass  # librdkafka looks for the group's coordinator, which is not needed here
        elif error.fatal() or error.name() not in clients.HEALING:
            raise KafkaException(error)

    def _lost(self) -> None:
        """The cluster has not the offset that we are at: older records are deleted, or the topic was made anew."""
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        tp = KafkaTopicPartition(self.wanted.at.topic, self.wanted.at.partition)
        low, high = self._consumer.get_watermark_offsets(tp, timeout=WATERMARKS_S, cached=False)
        self._first_lost_at = self._first_lost_at or time.monotonic()
        if low <= self.position and (self.position < high or self._may_yet_come()):
            self._go_to(self.position)
            return
        self._lose(
            f"{self.wanted.at}: offset {self.position} of {self.wanted} is not in the log, which has [{low}, {high})"
        )
        if self.position < low < self.wanted.end:
            self._go_to(low)
        else:
            self.position = self.wanted.end

    def _may_yet_come(self) -> bool:
        """Return whether a leader that was elected just now may know again what was committed before it."""
        return time.monotonic() - self._first_lost_at < SETTLE_S

    def _lose(self, what: str) -> None:
        report_loss(what, fail=self.options.fail_on_data_loss)

    def _batch(self, records: list[Any]) -> pa.RecordBatch:
        count, kind = len(records), type(records[0])
        times = list(map(kind.timestamp, records))
        columns = [
            pa.array(map(kind.key, records), pa.binary(), size=count),
            pa.array(map(kind.value, records), pa.binary(), size=count),
            pa.repeat(self.wanted.at.topic, count),
            pa.repeat(pa.scalar(self.wanted.at.partition, pa.int32()), count),
            pa.array(map(kind.offset, records), pa.int64(), size=count),
            pa.array([each[1] for each in times], pa.timestamp("ms", tz="UTC")).cast(_MICROSECONDS),
            pa.array([each[0] - 1 for each in times], pa.int32()),
        ]
        if self.options.include_headers:
            headers = self._schema.field("headers").type
            columns.append(pa.array([_headers(record) for record in records], headers))
        return pa.record_batch(columns, schema=self._schema).select(self._wanted_names)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Thousands of records that live for one batch have no cycles, and looking for some takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class UnreadableHeaders(ValueError):
    """A record has a header with a name that is not UTF-8, which confluent-kafka cannot read."""


def _headers(message: Any) -> list[dict[str, Any]] | None:
    try:
        headers = message.headers()
    except (SystemError, UnicodeDecodeError):
        raise UnreadableHeaders(
            f"the record {message.topic()} {message.partition()} at offset {message.offset()} has a header whose "
            "name is not UTF-8, and confluent-kafka cannot read it"
        ) from None
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
