"""Small results into a folder of Parquet: one file for each task and batch, whole and synced before it has its name.

The same law as in `parquet`: a replayed batch, or a task's second life, replaces its own file.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raftlog.base.disk import make_folders, put_in_place
from raftlog.pipeline.jobs.parquet import STAGING, Target

COUNTED_DDL = "rows long, records long"
COUNTED = pa.schema([("rows", pa.int64()), ("records", pa.int64())])


def write_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's rows as one file, and yield how many there were and the sum of their column `records`."""
    from pyspark import TaskContext

    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    root = Path(target.root)
    make_folders(root / STAGING)
    staged = root / STAGING / f"{uuid.uuid4().hex}.parquet"
    table = pa.Table.from_batches(held)
    try:
        pq.write_table(table, staged, compression="zstd")
        put_in_place(staged, root / target.name(context.partitionId()))
    finally:
        with contextlib.suppress(FileNotFoundError):
            staged.unlink()
    records = sum(table.column("records").to_pylist())
    yield pa.RecordBatch.from_pylist([{"rows": table.num_rows, "records": records}], schema=COUNTED)
