"""One task of `archive`: it writes records of one topic-partition and batch into Parquet files, a file for each date.

A file's name consists of the checkpoint, the batch and the partition, and a batch always holds the same records. So a
batch that is written again, after a crash or by a retried task, replaces its own file. Files get their names only when
they are whole and synced. So every reader sees each record at most once, and exactly once after the batch.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raftlog.base.disk import make_folders, put_in_place
from raftlog.pipeline.jobs.control import JobError

STAGING: Final = "_staging"
ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 64 << 20
OPEN_FILES: Final = 256
DAY_US: Final = 86_400_000_000
EPOCH: Final = dt.date(1970, 1, 1).toordinal()
FIRST_DAY: Final = dt.date.min.toordinal() - EPOCH
LAST_DAY: Final = dt.date.max.toordinal() - EPOCH
"""Days since 1970 that a folder can be called after; producers choose timestamps."""
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that Kafka allows; they are parts of paths here."""

KEPT: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
    ]
)
"""A file's columns; topic and date are its folders."""
RESULT: Final = pa.schema(
    [
        ("file", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
RESULT_DDL: Final = (
    "file string, topic string, partition int, rows long, first_offset long, last_offset long, bytes long"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The folder of a batch's files, and their names."""

    root: str
    identity: str
    batch: int

    def folder(self, topic: str, day: int) -> Path:
        """Return a topic's folder of one day. JobError for a name that is no topic's: brokers are not believed."""
        if not TOPIC_NAME.fullmatch(topic):
            raise JobError(f"a broker names a topic {topic[:100]!r}, which is not a valid topic name")
        date = dt.date.fromordinal(EPOCH + day)
        return Path(self.root, f"topic={topic}", f"date={date.isoformat()}")

    def name(self, partition: int) -> str:
        return f"{partition:05d}-{self.batch:08d}-{self.identity}.parquet"


@dataclass(slots=True)
class _File:
    """One file under way: rows wait until they make a row group."""

    final: Path
    staged: Path
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    first: int | None = None
    last: int = -1

    def add(self, kept: pa.RecordBatch) -> None:
        offsets = kept.column("offset")
        self.first = offsets[0].as_py() if self.first is None else self.first
        self.last = offsets[-1].as_py()
        self.rows += kept.num_rows
        self.waiting.append(kept)
        if (
            sum(each.num_rows for each in self.waiting) >= ROW_GROUP_ROWS
            or sum(each.nbytes for each in self.waiting) >= ROW_GROUP_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting), row_group_size=ROW_GROUP_ROWS)
            self.waiting.clear()


def write_files(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's records, in the order they come, and yield a row of RESULT for each file. For mapInArrow."""
    files: dict[tuple[str, int, int], _File] = {}
    try:
        for batch in batches:
            for key, kept in split(batch):
                if key not in files:
                    files[key] = _open(target, key, len(files))
                files[key].add(kept)
        for (topic, partition, _day), file in files.items():
            yield _finish(file, topic, partition, Path(target.root))
    finally:
        for file in files.values():
            file.writer.close()
            with contextlib.suppress(FileNotFoundError):
                file.staged.unlink()


def split(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, int], pa.RecordBatch]]:
    """Yield (topic, partition, days since 1970) and the records of each, in their order, as they are kept."""
    if not batch.num_rows:
        return
    days = _days(batch.column("timestamp"))
    keys = pa.table({"topic": batch.column("topic"), "partition": batch.column("partition"), "day": days})
    kept = _kept(batch)
    for found in keys.group_by(["topic", "partition", "day"]).aggregate([]).to_pylist():
        matches = pc.and_(
            pc.and_(pc.equal(keys["topic"], found["topic"]), pc.equal(keys["partition"], found["partition"])),
            pc.equal(keys["day"], found["day"]),
        ).combine_chunks()
        yield (found["topic"], found["partition"], found["day"]), kept.filter(matches)


def _days(timestamps: pa.Array) -> pa.Array:
    """Return the UTC day of each timestamp, days before 1970 being negative; within the years 1 to 9999."""
    first_us, last_us = FIRST_DAY * DAY_US, LAST_DAY * DAY_US
    microseconds = timestamps.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    bounded = pc.min_element_wise(pc.max_element_wise(microseconds, first_us), last_us)
    return pc.add(pc.divide(pc.subtract(bounded, first_us), DAY_US), FIRST_DAY)


def _kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = {"timestamp_type": "timestampType"}
    columns = [batch.column(names.get(column.name, column.name)).cast(column.type) for column in KEPT]
    return pa.RecordBatch.from_arrays(columns, schema=KEPT)


def _open(target: Target, key: tuple[str, int, int], opened: int) -> _File:
    topic, partition, day = key
    if opened >= OPEN_FILES:
        raise JobError(
            f"{topic}-{partition} has records of more than {OPEN_FILES} days in one batch; lower max_records"
        )
    root = Path(target.root)
    folder = target.folder(topic, day)
    make_folders(root / STAGING)
    make_folders(folder)
    staged = root / STAGING / f"{uuid.uuid4().hex}.parquet"
    writer = pq.ParquetWriter(staged, KEPT, compression="zstd")
    return _File(final=folder / target.name(partition), staged=staged, writer=writer)


def _finish(file: _File, topic: str, partition: int, root: Path) -> pa.RecordBatch:
    file.flush()
    file.writer.close()
    size = file.staged.stat().st_size
    put_in_place(file.staged, file.final)
    row = {
        "file": str(file.final.relative_to(root)),
        "topic": topic,
        "partition": partition,
        "rows": file.rows,
        "first_offset": file.first,
        "last_offset": file.last,
        "bytes": size,
    }
    return pa.RecordBatch.from_pylist([row], schema=RESULT)
