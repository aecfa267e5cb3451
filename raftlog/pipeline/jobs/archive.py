"""`archive`: topics → Parquet, a folder for each topic and date, exactly one copy of each record.

Ordering law: a batch's offsets are in Spark's checkpoint before the batch is written. Its files have their final names
before Spark marks it done. A replayed batch replaces its own files. So no record is missing or duplicate for any
reader, even a reader that does not know this job. See `parquet` for the names.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.pipeline.jobs.common import StreamOptions, local_path, path_faults
from raftlog.pipeline.jobs.control import Control, JobError
from raftlog.pipeline.jobs.identity import claim_checkpoint, claim_results, has_batches
from raftlog.pipeline.jobs.settings import setting
from raftlog.pipeline.jobs.summary import StreamSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions(StreamOptions):
    """Topics → Parquet, partitioned by topic and date."""

    path: str = setting("folder of the archive, on a disk that driver and executors share")

    def faults(self) -> list[str]:
        return super().faults() + path_faults("path", self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(StreamSummary):
    """The result of a run. `bytes` are of the files."""

    job: str = "archive"
    rows: int
    files: int
    bytes: int

    def describe(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        return f"{self.rows:,} records in {self.files:,} files ({self.bytes / 1e6:.1f} MB), {rate:,.0f} records/s"


@dataclass(slots=True)
class _Archive:
    """Writes batches; counts what they held."""

    root: Path
    identity: str
    files: int = 0
    bytes: int = 0

    def write(self, frame: DataFrame, batch: int) -> int:
        from raftlog.pipeline.jobs.parquet import RESULT_DDL, Target, write_files

        target = Target(str(self.root), self.identity, batch)
        done = frame.mapInArrow(partial(write_files, target), RESULT_DDL).collect()
        names = {row.file for row in done}
        if len(names) != len(done):
            raise JobError(
                f"two tasks of batch {batch} had the same partition: it must not be split (minPartitions)"
            )
        self.files += len(done)
        self.bytes += sum(row.bytes for row in done)
        return sum(row.rows for row in done)


def archive(spark: SparkSession, options: ArchiveOptions, control: Control | None = None) -> Summary:
    """Archive up to the end of the topics, or until stopped. Raise JobError.

    Restart it with the same checkpoint after any failure; it resumes.
    """
    from raftlog.pipeline.jobs.parquet import STAGING
    from raftlog.pipeline.jobs.run import Gate, read_stream, started, wait
    from raftlog.pipeline.jobs.tally import Tally

    control = control or Control()
    began = time.monotonic()
    root, checkpoint = (
        local_path(options.path),
        local_path(options.checkpoint),
    )
    fixed = {"path": str(root), **options.subscription}
    identity = claim_checkpoint(checkpoint, "archive", fixed)
    claim_results(root, identity, begun=has_batches(checkpoint / "query"))
    shutil.rmtree(root / STAGING, ignore_errors=True)
    writing = _Archive(root, identity)
    gate = Gate(writing.write, control)
    frame = read_stream(spark, options)
    with started(frame, gate, options, checkpoint / "query") as query:
        wait([(query, gate)], Tally())
    return Summary(
        batches=gate.batches,
        rows=gate.rows,
        files=writing.files,
        bytes=writing.bytes,
        seconds=time.monotonic() - began,
        stopped=gate.closed,
    )
