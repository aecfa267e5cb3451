"""`table`: topics → a Delta or Iceberg table, with values as columns by the schemas of a registry, each record once.

A batch is one commit of the table, which also has the number of the next batch. So a replayed batch adds nothing.
Values that do not fit go to a table of dead letters before the rows of their batch, or end the job. After a crash
between both, that table says which records of the batch do not fit: the registry may say otherwise by then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from raftlog.pipeline.jobs.common import StreamOptions, local_path
from raftlog.pipeline.jobs.control import Control, JobError, MissingError
from raftlog.pipeline.jobs.identity import claim_checkpoint
from raftlog.pipeline.jobs.settings import setting
from raftlog.pipeline.jobs.summary import StreamSummary
from raftlog.tables.formats import DEAD_LETTERS, Format, Place
from raftlog.tables.progress import TableError
from raftlog.tables.table import StoreFailed, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raftlog.pipeline.decoding import Decoder
    from raftlog.pipeline.table_sink import TableSink

INSTALL = "this needs the packages of raftlog[table]: pip install '.[table]' in a checkout"
RENAMED = {"timestampType": "timestamp_type"}
"""Columns of Spark's source that tables of `raftlog table` call otherwise."""


PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, kw_only=True)
class TableOptions(StreamOptions):
    """Topics → a Delta or Iceberg table."""

    to: str = setting("folder of the table's folder, or s3://BUCKET/PATH")
    table: str = setting("name of the table (default: the topic)", "")
    format: Literal["delta", "iceberg"] = setting("of the table: delta or iceberg", "delta")
    catalog: str = setting(
        "of an Iceberg table: a REST server, a database, or a name in pyiceberg's configuration",
        "",
        secret=True,
    )
    registry: str = setting(
        "URL of a schema registry: values become columns (default: values are bytes)", "", secret=True
    )
    malformed: Literal["dead-letter", "fail"] = setting(
        "values that do not fit: dead-letter: into a table of their own; fail: end the job", "dead-letter"
    )
    tidy_every: int = setting("merge small files after so many batches; 0: never", 20, least=0)

    def faults(self) -> list[str]:
        found = super().faults()
        if not self.table and len(self.topics) != 1:
            found.append("table: name the table, since its records are not of one topic")
        try:
            self.place()
        except ValueError as error:
            found.append(f"format: {error}")
        return found

    def place(self) -> Place:
        return Place(Format(self.format), self.to, self.catalog)

    @property
    def name(self) -> str:
        return self.table or self.topics[0]

    @property
    def fixed(self) -> dict[str, str]:
        """The state with which a checkpoint must go on."""
        where, kind = self.place().where(self.name), "fields" if self.registry else "bytes"
        return {**self.subscription, "format": self.format, "table": where, "values": kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(StreamSummary):
    """The result of a run, in records."""

    job: str = "table"
    rows: int
    dead_letters: int

    def describe(self) -> str:
        return f"{self.rows:,} records appended, {self.dead_letters:,} dead letters"


def table(spark: SparkSession, options: TableOptions, control: Control | None = None) -> Summary:
    """Append up to the end of the topics, or until stopped. Raise JobError.

    Restart it with the same checkpoint after any failure; it resumes.
    """
    from raftlog.pipeline.jobs.run import Gate, read_stream, started, wait
    from raftlog.pipeline.jobs.tally import Tally

    control = control or Control()
    began = time.monotonic()
    checkpoint = local_path(options.checkpoint)
    claim_checkpoint(checkpoint, "table", options.fixed)
    with _failures():
        writing = _Table(options)
        gate = Gate(writing.write, control)
        with started(read_stream(spark, options), gate, options, checkpoint / "query") as query:
            wait([(query, gate)], Tally())
    return Summary(
        batches=gate.batches,
        rows=writing.rows,
        dead_letters=writing.dead_letters,
        seconds=time.monotonic() - began,
        stopped=gate.closed,
    )


@contextmanager
def _failures() -> Iterator[None]:
    """Raise JobError for what a table, its place or the registry may raise."""
    try:
        yield
    except ImportError as error:
        raise MissingError(f"{error}: {INSTALL}") from None
    except (TableError, StoreFailed, ValueError) as error:
        raise JobError(str(error)) from error


class _Table:
    """Appends batches; counts what they held."""

    def __init__(self, options: TableOptions) -> None:
        from raftlog.pipeline.table_sink import TableSink

        place, name = options.place(), options.name
        self.rows = self.dead_letters = 0
        self._begun = False
        """Whether a batch was written. Only the first of a run may be a replay."""
        self._fail = options.malformed == "fail"
        self._decoder = _decoder(options) if options.registry else None
        self._rows: TableSink = TableSink(place, name, tidy_every=options.tidy_every)
        self._dead: TableSink = TableSink(place, f"{name}{DEAD_LETTERS}", may_skip=True, tidy_every=0)

    def write(self, frame: DataFrame, batch: int) -> int:
        with _failures():
            records = frame.withColumnsRenamed(RENAMED)
            if self._decoder is None:
                rows = self._rows(records, batch)
            else:
                rows = self._write_decoded(self._decoder.decode(records), batch)
        self.rows += rows
        return rows

    def _write_decoded(self, decoded: DataFrame, batch: int) -> int:
        """Append the dead letters of a batch, then its rows."""
        held = decoded.persist()
        try:
            is_replay, self._begun = not self._begun, True
            if is_replay and self._rows.holding(held, batch) is not None:
                return self._rows(_fitting(held), batch)
            if is_replay and (letters := self._dead.holding(held, batch)) is not None:
                return self._rows(_rest(held, letters), batch)
            unfit = held.where("reason IS NOT NULL")
            if (first := _first(unfit)) is not None:
                if self._fail:
                    raise JobError(f"malformed record {_at(first)}: {first.reason}")
                self.dead_letters += self._dead(unfit.drop("value").withColumnRenamed("raw", "value"), batch)
            return self._rows(_fitting(held), batch)
        finally:
            held.unpersist()


def _rest(held: DataFrame, letters: Table) -> DataFrame:
    """Return the rows of a replayed batch whose dead letters are in their table: all its other records.

    The registry may know other schemas by now. So a record that was a dead letter stays one, and a record that was none
    must fit. Otherwise it would be in both tables, or in neither. Raise JobError.
    """
    least = held.agg({"offset": "min"}).first()
    dead = letters.read(PLACE, least[0] or 0 if least is not None else 0)
    rest = held.join(held.sparkSession.createDataFrame(dead), list(PLACE), "left_anti").select(held.columns)
    if (first := _first(rest.where("reason IS NOT NULL"))) is not None:
        raise JobError(
            f"record {_at(first)} fitted before a crash, and the dead letters of its batch are written; now it does "
            f"not: {first.reason}. Give the registry the schemas back that it had"
        )
    return _fitting(rest)


def _first(unfit: DataFrame) -> Any:
    return unfit.orderBy(*PLACE).first()


def _at(row: Any) -> str:
    return "/".join(str(row[name]) for name in PLACE)


def _fitting(rows: DataFrame) -> DataFrame:
    return _without_empty(rows.where("reason IS NULL").drop("raw", "reason"))


def _without_empty(rows: DataFrame) -> DataFrame:
    """Return rows without a column of values that has no fields yet: no table has such a column."""
    kind: Any = rows.schema["value"].dataType
    return rows.drop("value") if not kind.fields else rows


def _decoder(options: TableOptions) -> Decoder:
    """Return a decoder that knows the columns of the table, if there is one."""
    from raftlog.pipeline.decoding import Decoder
    from raftlog.pipeline.table_sink import columns_of_table

    found = Decoder(options.registry)
    found.check_registry()
    columns = columns_of_table(options.place(), options.name)
    if columns is not None and "value" in columns.names:
        found.begin(columns.field("value").type)
    return found
