"""Rows to records: an idempotent producer takes Arrow batches, and success is reported when all in-sync replicas have
them.

At least once: a task that Spark runs again sends its rows again. `exactly_once` puts them into transactions. Columns
and rules are as in Spark's Kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from raftlog.pipeline import clients
from raftlog.pipeline.columns import HEADERS
from raftlog.pipeline.options import OptionFaults, WriteOptions

FLUSH_S: Final = 1.0
WAIT_S: Final = 0.1
ROWS: Final = 1_000
"""Produced between two looks at what was refused."""
ANY_PARTITION: Final = -1
NOW: Final = 0
ALLOWED: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS.simpleString(),),
    "timestamp": ("timestamp",),
}


class NotWritten(RuntimeError):
    """It is unknown whether some rows of a task are on all replicas; Spark runs the task again or fails the query."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The number of rows of a task that are on all replicas."""

    rows: int


class BatchSink(DataSourceArrowWriter):
    """The writer of a batch."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._columns = checked_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._columns, iterator)


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of a stream; a batch that is replayed is written again."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._columns = checked_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._columns, iterator)


def checked_columns(schema: StructType, options: WriteOptions) -> frozenset[str]:
    """Return the columns that are used. Raises OptionFaults naming every column that does not fit."""
    types = {each.name.lower(): each.dataType.simpleString() for each in schema.fields}
    faults = []
    for name, allowed in ALLOWED.items():
        if name == "timestamp" and not options.include_timestamp:
            continue
        if name in types and types[name] not in allowed:
            faults.append(f"column {name}: is {types[name]}, must be {' or '.join(allowed)}")
    if "value" not in types:
        faults.append(f"column value: is missing (there are {', '.join(types)})")
    if options.topic is None and "topic" not in types:
        faults.append("topic: give the option topic or a column topic")
    if options.include_timestamp and "timestamp" not in types:
        faults.append("includeTimestamp: there is no column timestamp")
    if faults:
        raise OptionFaults(faults)
    return frozenset(types) & ALLOWED.keys()


def _write(options: WriteOptions, columns: frozenset[str], batches: Iterator[pa.RecordBatch]) -> Written:
    outbox = clients.borrow_outbox(options.client)
    writing = Writing(options, columns, outbox)
    try:
        for batch in batches:
            writing.send(batch)
        writing.finish()
    except BaseException:
        writing.drop()
        raise
    clients.return_outbox(outbox, options.client)
    return Written(writing.sent)


class Writing:
    """One task's rows on one producer."""

    def __init__(self, options: WriteOptions, columns: frozenset[str], outbox: clients.Outbox) -> None:
        self.sent = 0
        self._options = options
        self._columns = columns
        self._refused = outbox.refused
        self._door = outbox.door
        self._producer = outbox.producer

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand a batch's rows to the producer, waiting while it is full."""
        for first in range(0, batch.num_rows, ROWS):
            self._produce(self._rows(batch.slice(first, ROWS)))
            self._producer.poll(0)
            self._check()

    def finish(self) -> None:
        """Return when everything is acknowledged. Raises NotWritten."""
        while self._producer.flush(FLUSH_S):
            self._check()
            self._door.check()  # rows that wait for a login that keeps failing would wait for minutes
        self._check()

    def drop(self) -> None:
        """Drop unsent records: after a failure no more may be written."""
        self._producer.purge()
        self._producer.flush(FLUSH_S)

    def _produce(self, rows: Iterator[tuple[Any, ...]]) -> None:
        from confluent_kafka import KafkaException

        produce = self._producer.produce
        for topic, value, key, partition, timestamp, headers in rows:
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(WAIT_S)
                    self._check()
                    self._door.check()
                except KafkaException as error:
                    raise NotWritten(f"{topic}: {error.args[0].str()}") from error
            self.sent += 1

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Return topic, value, key, partition, timestamp and headers of each row."""
        found = {name.lower(): batch.column(name) for name in batch.schema.names}
        columns = {name: found[name] for name in self._columns}
        if self._options.topic is None and columns["topic"].null_count:
            raise NotWritten("column topic: is null in a row; the option topic sets one topic for all rows")
        return zip(
            _values(columns["topic"]) if self._options.topic is None else repeat(self._options.topic),
            _values(columns["value"]),
            _values(columns["key"]) if "key" in columns else repeat(None),
            _partitions(columns["partition"]) if "partition" in columns else repeat(ANY_PARTITION),
            _milliseconds(columns["timestamp"]) if self._options.include_timestamp else repeat(NOW),
            map(_headers, columns["headers"].to_pylist()) if "headers" in columns else repeat(None),
            strict=False,  # values are as many as rows, what is repeated has no end
        )

    def _check(self) -> None:
        if self._refused:
            raise NotWritten(f"{len(self._refused)} rows were refused, first {self._refused[0]}")


def _values(column: pa.Array) -> list[Any]:
    """Return bytes, strings and None; numpy is much faster at that than Arrow's own lists."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _partitions(column: pa.Array) -> list[int]:
    found: list[int] = column.fill_null(ANY_PARTITION).to_pylist()
    return found


def _milliseconds(times: pa.Array) -> list[int]:
    milliseconds = times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    found: list[int] = milliseconds.fill_null(NOW).to_pylist()
    return found


def _headers(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(each["key"], each["value"]) for each in headers]
