"""Finds the query of a batch in `foreachBatch`. Spark keeps a query's id in its checkpoint, so restarts keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.pipeline.options import OptionFaults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark names the query of a batch."""


def query_of(frame: DataFrame) -> str:
    """Return the id of the query that a batch is of. Raise OptionFaults outside of a streaming query."""
    query: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        raise OptionFaults(
            ["exactly once: only batches of a streaming query have a number; use foreachBatch"]
        )
    return query
