"""Appends the batches of a query to a Delta or Iceberg table, each once, with the packages deltalake and pyiceberg.

The table's own commits hold the number of the next batch, by the rules of `raftlog.tables`. A commit is based on the
newest version, and judged by the version after it. A replayed batch that is in the table is skipped. A second run of
the query takes the table over, and the first one stops. Tasks compute the rows, and the driver writes them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from raftlog.pipeline.batch_id import query_of, write_once
from raftlog.tables.formats import Place, open_table
from raftlog.tables.progress import Source, TableError
from raftlog.tables.table import StoreFailed, Table
from raftlog.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLUSTER: Final = "spark"
"""In place of a cluster's id: the rows are of a query."""
BATCHES: Final = 0
"""In place of a partition's number: the only one. Its offset is the next batch."""


class TableSink:
    """A function for `foreachBatch` that appends each batch of a query to a table.

    Use one for each query. The table gets all columns of the frames.
    `first_batch` is the batch with which the table begins. `may_skip`: not every batch is given to this table.
    """

    def __init__(
        self, place: Place, name: str, *, first_batch: int = 0, may_skip: bool = False, tidy_every: int = 20
    ) -> None:
        self._place, self._name = place, name
        self._first_batch, self._may_skip, self._tidy_every = first_batch, may_skip, tidy_every
        self._writer: TableWriter | None = None
        self._commits = 0

    def __call__(self, frame: DataFrame, batch: int) -> int:
        """Append a batch; return its number of rows, 0 if it was there.

        Raise TableError, ImportError, ValueError, WrittenTwice.
        """
        where = self._place.where(self._name)
        return write_once(frame, batch, f"table {where}", lambda: self._append(frame, batch))

    def holding(self, frame: DataFrame, batch: int) -> Table | None:
        """Return the table if it has the batch, otherwise None. Raise StoreFailed."""
        table = open_table(self._place, self._name, pa.schema([]))
        head = table.load()
        source = Source(CLUSTER, self._name, query_of(frame))
        has = head is not None and head.source == source and head.offsets.get(BATCHES) == batch + 1
        return table if has else None

    def _append(self, frame: DataFrame, batch: int) -> int:
        schema = _columns_of(frame)
        if self._writer is None:
            self._writer = self._begin(query_of(frame), schema, batch)
        if self._has(self._writer, batch):
            return 0
        rows = frame.toArrow().cast(schema)
        self._writer.append(rows, {BATCHES: batch + 1})
        self._commits += 1
        if self._tidy_every and self._commits % self._tidy_every == 0:
            with suppress(StoreFailed):  # small files stay until the next time
                self._writer.table.tidy()
            self._writer.refresh()
        return int(rows.num_rows)

    def _begin(self, query: str, schema: pa.Schema, batch: int) -> TableWriter:
        """Take the table over, which is made if there is none."""
        table = open_table(self._place, self._name, schema)
        writer = TableWriter(table, Source(CLUSTER, self._name, query), time.sleep)
        begin = batch if self._may_skip else self._first_batch
        writer.take_over({BATCHES: begin}, schema.empty_table())
        return writer

    def _has(self, writer: TableWriter, batch: int) -> bool:
        """Return whether a batch is in the table. Raise TableError if it is not the next one either."""
        found = writer.head.offsets[BATCHES]
        if found == batch or (found < batch and self._may_skip):
            return False
        if found == batch + 1:
            return True
        raise TableError(
            f"{writer.table.where}: its next batch is {found}, and this is batch {batch}. The table was made again, or "
            "another copy of this checkpoint went on. Use a new checkpoint and another place"
        )


def columns_of_table(place: Place, name: str) -> pa.Schema | None:
    """Return a table's columns, None if there is no table. Raise StoreFailed, ImportError, ValueError."""
    table = open_table(place, name, pa.schema([]))
    return None if table.load() is None else table.columns()


def _columns_of(frame: DataFrame) -> pa.Schema:
    """Return a frame's columns for Arrow. Each may be null, since a later column is null in earlier rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([each.with_nullable(True) for each in found])
