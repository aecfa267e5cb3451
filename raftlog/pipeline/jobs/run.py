"""Streaming queries run batch by batch until they end, fail, or are stopped.

Each batch passes a gate: a stop during a batch waits for it, and the next batch is not begun. Spark has then written
only the next batch's offsets in its checkpoint; a restart continues with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raftlog.pipeline.jobs.common import StreamOptions
from raftlog.pipeline.jobs.control import BatchDone, Control
from raftlog.pipeline.jobs.failures import job_error, spark_errors
from raftlog.pipeline.jobs.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S: Final = 0.2

WriteBatch = Callable[["DataFrame", int], int]
"""Writes a batch, in place of what an earlier attempt wrote, and returns its number of records."""


class _StopAsked(Exception):
    """Ends a query before its next batch."""


@dataclass(slots=True)
class Gate:
    """Admits batches one at a time until a stop is requested, and counts them."""

    write: WriteBatch
    control: Control
    batches: int = 0
    rows: int = 0
    failure: BaseException | None = None
    _busy: bool = False
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with self._lock:
            if self._closed or self.control.stopping.is_set():
                self._closed = True
                raise _StopAsked
            self._busy = True
        try:
            self._pass(frame, batch)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            with self._lock:
                self._busy = False

    def _pass(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        rows = self.write(frame, batch)
        self.batches += 1
        self.rows += rows
        self.control.on_batch(BatchDone(batch, rows, time.monotonic() - began))

    def close(self) -> bool:
        """Admit no more batches; return whether none is in progress."""
        with self._lock:
            self._closed = True
            return not self._busy

    @property
    def closed(self) -> bool:
        return self._closed


def read_stream(spark: SparkSession, options: StreamOptions) -> DataFrame:
    """Return the records that a job reads, by its connector. Raise JobError if Spark does not know it."""
    return spark.readStream.format(options.connector).options(**options.reader_options()).load()


@contextmanager
def started(
    frame: DataFrame, gate: Gate, options: StreamOptions, checkpoint: Path
) -> Iterator[StreamingQuery]:
    """Start a query with batches that pass a gate; it does not outlive the block. Raise JobError."""
    writer: DataStreamWriter = frame.writeStream.foreachBatch(gate).option(
        "checkpointLocation", str(checkpoint)
    )
    if options.every:
        writer = writer.trigger(processingTime=f"{round(options.every * 1000)} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    try:
        query = writer.start()
    except spark_errors() as error:
        raise job_error(error) from error
    try:
        yield query
    finally:
        query.stop()


def wait(running: Sequence[tuple[StreamingQuery, Gate]], tally: Tally) -> None:
    """Wait until all queries ended, or stop them once the caller wishes and their batches are done. Raises JobError.

    Only the first query is tallied; when any fails, the others are not waited for.
    """
    open_ones = list(running)
    while open_ones:
        for query, gate in [*open_ones]:
            if _ended(query, gate):
                open_ones.remove((query, gate))
        tally.update(running[0][0])


def _ended(query: StreamingQuery, gate: Gate) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        if query.awaitTermination(POLL_S):  # parts of seconds will do
            return True
    except StreamingQueryException as error:
        if gate.failure is not None:
            raise job_error(gate.failure) from error
        if gate.closed:
            return True
        raise job_error(error) from error
    # within a trigger Spark may be about to note the last batch as done; the next one ends at the gate
    if gate.control.stopping.is_set() and gate.close() and not query.status["isTriggerActive"]:
        query.stop()
    return False
