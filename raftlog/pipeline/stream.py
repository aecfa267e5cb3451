"""The stream reader: what each trigger reads. Its position comes from Spark; its own memory is only a cache.

A new partition is read from its first offset. A missing partition, or a log that ends before our position, is a loss of
data, reported with the topic, the partition and the offsets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from raftlog.pipeline import bounds
from raftlog.pipeline.batch import planned, read_partition
from raftlog.pipeline.lookup import Lookup
from raftlog.pipeline.offsets import Offsets, from_json, limited, report_loss, to_json, waiting
from raftlog.pipeline.options import OptionFaults, ReadOptions

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1 knows no limits
    LIMITS = False
else:
    LIMITS = True


class ForeignCheckpoint(RuntimeError):
    """The checkpoint's offsets are not of what this query reads."""


class PlainStreamReader(DataSourceStreamReader):
    """A stream without limits: all that Spark 4.1 can do."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._lookup = Lookup(options)
        self._latest: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:
        return to_json(bounds.starts(self._lookup, self._lookup.partitions()))

    def latestOffset(self) -> dict[str, Any]:
        return to_json(self._newest(self._latest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = self._from_checkpoint(start), from_json(end)
        self._report_lost(begin, until)
        begin = {**self._begin_of_new(begin, until), **begin}
        # Records between a lower end and the position were reported as lost, and the query goes on without them.
        return planned(self.options, {at: min(begin[at], end) for at, end in until.items()}, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)

    def _from_checkpoint(self, start: Mapping[str, Any]) -> Offsets:
        """Return where reading is. Raises ForeignCheckpoint."""
        try:
            offsets = from_json(start)
        except ValueError as error:
            raise ForeignCheckpoint(f"the checkpoint is of another source: {error}") from None
        foreign = sorted({at.topic for at in offsets if not self.options.subscription.covers(at)})
        if foreign and self.options.fail_on_data_loss:
            raise ForeignCheckpoint(
                f"the checkpoint has offsets of {', '.join(foreign)}, which this query does not read"
                f" ({self.options.subscription}): it belongs to another query, or the subscription was changed. Use a"
                " new checkpointLocation, or failOnDataLoss=false to continue without them"
            )
        return offsets

    def _newest(self, known: Offsets) -> Offsets:
        """Return the end of every partition, with a few retries while a partition is missing or behind known
        offsets.
        """
        for attempt in range(self.options.fetch_offset_retries + 1):
            if attempt:
                time.sleep(self.options.fetch_offset_retry_ms / 1_000)
            self._latest = self._lookup.latest(self._lookup.existing())
            if all(self._latest.get(at, -1) >= offset for at, offset in known.items()):
                break
        return self._latest

    def _begin_of_new(self, begin: Offsets, until: Offsets) -> Offsets:
        """Return the first offsets of partitions that were not there before; what is gone of them already is lost."""
        fresh = self._lookup.earliest(until.keys() - begin.keys())
        for at, offset in fresh.items():
            if offset > 0:
                self._lose(f"{at} is new and begins at offset {offset}, not 0")
        return fresh

    def _report_lost(self, begin: Offsets, until: Offsets) -> None:
        if gone := sorted(begin.keys() - until.keys()):
            gone_parts = ", ".join(f"{at} (read up to {begin[at]})" for at in gone)
            self._lose(f"{gone_parts} is gone: deleted, or no longer subscribed to{self._lookup.unseen}")
        for at, offset in until.items():
            if offset < (reached := begin.get(at, 0)):
                self._lose(f"{at}: the log ends at offset {offset}, before {reached}, where reading was")

    def _lose(self, what: str) -> None:
        report_loss(what, fail=self.options.fail_on_data_loss)


if LIMITS:

    class LimitedStreamReader(PlainStreamReader, SupportsTriggerAvailableNow):
        """A stream that takes as much at a time as was asked for, and stops at what was there for AvailableNow."""

        def __init__(self, options: ReadOptions) -> None:
            super().__init__(options)
            self._target: Offsets | None = None
            self._last_batch_at = -math.inf

        def getDefaultReadLimit(self) -> ReadLimit:
            most, fewest = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
            if most is not None:
                return ReadMaxRows(most)
            return ReadAllAvailable() if fewest is None else ReadMinRows(fewest)

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = dict(self._newest({}))

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
            begin = self._from_checkpoint(start)
            end = self._newest(begin) if self._target is None else self._target
            if self.options.fail_on_data_loss:  # before Spark writes down that this is the next batch
                self._report_lost(begin, end)
            if isinstance(limit, ReadAllAvailable):
                return to_json(end)
            begin = {**self._lookup.earliest(end.keys() - begin.keys()), **begin}
            if self._target is None and self._too_few(begin, end):
                return start
            if (most := self.options.max_offsets_per_trigger) is not None:
                end = limited(begin, end, most)
            return to_json(end)

        def reportLatestOffset(self) -> dict[str, Any] | None:
            return to_json(self._latest) or None

        def _too_few(self, begin: Offsets, end: Offsets) -> bool:
            """Return whether to wait for more: less than minOffsetsPerTrigger, and maxTriggerDelay has not passed."""
            fewest = self.options.min_offsets_per_trigger
            if fewest is None:
                return False
            now = time.monotonic()
            if (
                waiting(begin, end) < fewest
                and now - self._last_batch_at < self.options.max_trigger_delay_ms / 1_000
            ):
                return True
            self._last_batch_at = now
            return False


def stream_reader(options: ReadOptions) -> DataSourceStreamReader:
    """Return the reader that this Spark can use. Raises OptionFaults for limits that it cannot keep."""
    if LIMITS:
        return LimitedStreamReader(options)
    limits = (options.max_offsets_per_trigger, options.min_offsets_per_trigger)
    if limits != (None, None):
        raise OptionFaults(["maxOffsetsPerTrigger, minOffsetsPerTrigger: need Spark 4.2 or newer"])
    return PlainStreamReader(options)
