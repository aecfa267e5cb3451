"""The batch reader, and how readers hand ranges of offsets to tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from raftlog.pipeline import bounds
from raftlog.pipeline.fetch import read_range
from raftlog.pipeline.lookup import Lookup
from raftlog.pipeline.offsets import Offsets, Range, ranges_of, split
from raftlog.pipeline.options import ReadOptions


class RangePartition(InputPartition):
    """One task's range, as Spark hands it on."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


class BatchReader(DataSourceReader):
    """Reads what the options name, as it was when the query was planned."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        lookup = Lookup(self.options)
        topic_partitions = lookup.partitions()
        return planned(
            self.options, bounds.starts(lookup, topic_partitions), bounds.ends(lookup, topic_partitions)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)


def planned(options: ReadOptions, start: Offsets, end: Offsets) -> list[InputPartition]:
    """Return the tasks that read from `start` to `end`."""
    ranges = split(
        ranges_of(start, end), least=options.min_partitions, most_records=options.max_records_per_partition
    )
    return [RangePartition(each) for each in ranges]


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a partition of the input. Spark makes one partition without a range when there are no records to read."""
    return iter(()) if partition.value is None else read_range(options, partition.value)
