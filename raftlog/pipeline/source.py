"""`format("raftlog")` for Spark: the door to the readers and writers of batches and streams.

Spark makes readers anew in several processes and sends them to executors: they hold options, never a connection.
The progress of a stream is in Spark's checkpoint and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from raftlog.pipeline.batch import BatchReader
from raftlog.pipeline.columns import are_columns, spark_schema
from raftlog.pipeline.options import OptionFaults, ReadOptions, read_options, write_options
from raftlog.pipeline.sink import BatchSink, StreamSink
from raftlog.pipeline.stream import stream_reader


class RaftlogDataSource(DataSource):
    """Topics as tables and streams; with the columns and options of Spark's Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    def schema(self) -> StructType:
        return spark_schema(include_headers=read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_with_columns(read_options(self.options, "batch"), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return stream_reader(_with_columns(read_options(self.options, "stream"), schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        if overwrite:
            raise OptionFaults(["mode: a log is only appended to, so mode must be append"])
        return BatchSink(schema, write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return StreamSink(schema, write_options(self.options))


def _with_columns(options: ReadOptions, schema: StructType) -> ReadOptions:
    """Return options that read only these columns. Spark does not pass a query's columns to Python sources."""
    if not are_columns(schema, include_headers=options.include_headers):
        fixed = spark_schema(include_headers=options.include_headers).simpleString()
        raise OptionFaults([f"schema: the columns are fixed ({fixed}); some may be left out, no other given"])
    return replace(options, columns=tuple(schema.fieldNames()))
