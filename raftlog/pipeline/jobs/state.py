"""Counts the records in windows that are not final, from the state that Spark keeps in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.pipeline.jobs.failures import job_error, spark_errors
from raftlog.pipeline.jobs.identity import has_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_records(spark: SparkSession, query: Path) -> int:
    """Return the sum of the first measure, the count of records, over all open windows; 0 for a new checkpoint.

    Raises JobError when the state cannot be read.
    """
    if not has_batches(query):
        return 0
    _ = spark.streams  # makes the coordinator that the state's readers ask for, before the first query does
    try:
        return _sum(spark, query)
    except spark_errors() as error:
        raise job_error(error) from error


def _sum(spark: SparkSession, query: Path) -> int:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    state = spark.read.format("statestore").load(str(query))
    value = state.schema["value"].dataType
    assert isinstance(value, StructType)
    # the names repeat when several measures keep a sum: only the position distinguishes them
    placed = StructType([StructField(f"at_{n}", each.dataType) for n, each in enumerate(value.fields)])
    total = state.select(f.sum(f.col("value").cast(placed).getField("at_0"))).first()
    return int(total[0] or 0) if total is not None else 0
