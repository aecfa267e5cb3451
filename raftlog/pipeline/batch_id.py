"""Finds the query of a batch in `foreachBatch`. Spark keeps a query's id in its checkpoint, so restarts keep it.

A batch that is written to a place again is taken for a replay and skipped. In the same run of its query it is no
replay: it is other rows, which would be lost. So that is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.pipeline.options import OptionFaults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark names the query of a batch."""
RUN_ID: Final = "spark.jobGroup.id"
"""The local property with the id of the query's run, which each start makes anew."""
_written: dict[str, tuple[str | None, int]] = {}
"""The run and batch that this process wrote to each place last."""


class WrittenTwice(OptionFaults):
    """A run of a query writes a batch to the same place again."""


def query_of(frame: DataFrame) -> str:
    """Return the id of the query that a batch is of. Raise OptionFaults outside of a streaming query."""
    query = _property(frame, QUERY_ID)
    if query is None:
        raise OptionFaults(
            ["exactly once: only batches of a streaming query have a number; use foreachBatch"]
        )
    return query


def write_once(frame: DataFrame, batch: int, place: str, write: Callable[[], int]) -> int:
    """Return what a write of a batch to a place returns. Raise WrittenTwice, OptionFaults."""
    now = (_property(frame, RUN_ID), batch)
    if _written.get(place) == now:
        raise WrittenTwice(
            [f"batch {batch} was written to {place} already, and these rows would be left out"]
        )
    found = write()
    _written[place] = now
    return found


def _property(frame: DataFrame, name: str) -> str | None:
    try:
        context = frame.sparkSession.sparkContext
    except AttributeError:
        raise OptionFaults(
            [
                "exactly once: Spark Connect does not say which query a batch is of; use a session of the driver"
            ]
        ) from None
    found: str | None = context.getLocalProperty(name)
    return found
