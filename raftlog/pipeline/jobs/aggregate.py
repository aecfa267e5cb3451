"""`aggregate`: JSON records → measures by event-time window, into a topic or a folder of Parquet.

A window is written once, when the watermark has passed its end; later records are too late, and counted. A record that
does not fit the schema goes to a dead-letter topic with the reason. A separate query over the same topics does that.
With no such topic it ends the job before its batch is written. Into Parquet each window is written once, whatever is
killed. Into a topic at least once, as by Spark's sinks, and a repeated window has the same key and value. With
`exactly_once` topics get each window and each dead letter once, in transactions.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from raftlog.pipeline.jobs.common import StreamOptions, local_path, path_faults
from raftlog.pipeline.jobs.control import Control
from raftlog.pipeline.jobs.identity import claim_checkpoint, claim_results, has_batches
from raftlog.pipeline.jobs.settings import setting
from raftlog.pipeline.jobs.summary import StreamSummary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(StreamOptions):
    """JSON records → measures by event-time window."""

    schema: str = setting(
        'columns of the JSON values as Spark writes them: "zone INT, fare DOUBLE, at TIMESTAMP"'
    )
    event_time: str = setting("column, or SQL expression of columns, that says when it happened")
    window: str = setting('length of a window: "15 minutes"')
    slide: str = setting("a window begins every so often (default: one after the other)", "")
    watermark: str = setting(
        "how much later than the latest a record may come: older windows are final", "10 minutes"
    )
    by: tuple[str, ...] = setting("columns to group by, besides the window", ())
    measures: tuple[str, ...] = setting(
        'what to compute: "sum(fare) AS fares"; records are always counted', ()
    )
    to_topic: str = setting("topic for the windows, keyed by window and group", "")
    to_path: str = setting("or folder of Parquet for them, on a disk that driver and executors share", "")
    dead_letter: str = setting("topic for malformed records (default: the first one ends the job)", "")
    exactly_once: bool = setting("write to topics in transactions, so that nothing is there twice", False)

    def faults(self) -> list[str]:
        found = super().faults() + path_faults("to_path", self.to_path)
        if bool(self.to_topic) == bool(self.to_path):
            found.append("to_topic: give either to_topic or to_path")
        read = set(self.topics)
        found += [
            f"{name}: {topic} is read by this very job"
            for name, topic in (("to_topic", self.to_topic), ("dead_letter", self.dead_letter))
            if topic in read
        ]
        return found

    @property
    def fixed(self) -> dict[str, str]:
        """The state with which a checkpoint must go on."""
        return {
            **self.subscription,
            "schema": self.schema,
            "event_time": self.event_time,
            "window": self.window,
            "slide": self.slide,
            "by": ",".join(self.by),
            "measures": ",".join(self.measures),
            "to": self.to_topic or str(local_path(self.to_path)),
            "dead_letter": self.dead_letter,
            **(
                {"exactly_once": "true"} if self.exactly_once else {}
            ),  # checkpoints before this option lack it
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(StreamSummary):
    """The result of a run, in records except for `windows`. `open` are in windows that are not final.

    records read = counted in written windows + open now - open when it began + late + malformed. `watermark`: windows
    that ended by then are final.
    """

    job: str = "aggregate"
    records: int
    windows: int
    counted: int
    open: int
    late: int
    malformed: int
    watermark: str

    def describe(self) -> str:
        return (
            f"{self.records:,} records, {self.windows:,} windows of {self.counted:,} records, "
            f"{self.open:,} in windows still open at {self.watermark or 'no watermark yet'}, {self.late:,} too late, "
            f"{self.malformed:,} malformed"
        )


def aggregate(spark: SparkSession, options: AggregateOptions, control: Control | None = None) -> Summary:
    """Aggregate up to the end of the topics, or until stopped. Raise JobError.

    Restart it with the same checkpoint after any failure; it resumes.
    """
    from raftlog.pipeline.jobs.parquet import STAGING
    from raftlog.pipeline.jobs.run import Gate, started, wait
    from raftlog.pipeline.jobs.state import open_records
    from raftlog.pipeline.jobs.tally import Tally

    control = control or Control()
    began = time.monotonic()
    checkpoint = local_path(options.checkpoint)
    identity = claim_checkpoint(checkpoint, "aggregate", options.fixed)
    if options.to_path:
        root = local_path(options.to_path)
        claim_results(root, identity, begun=has_batches(checkpoint / "query"))
        shutil.rmtree(root / STAGING, ignore_errors=True)
    parsed = parse(spark, options)
    open_before = open_records(spark, checkpoint / "query")
    writing = _Windows(options, identity)
    gate, tally = Gate(writing.write, control), Tally()
    dead = Gate(partial(_write_dead, options), Control(control.stopping))
    with ExitStack() as queries:
        running = [
            (
                queries.enter_context(
                    started(_windows(parsed, options), gate, options, checkpoint / "query")
                ),
                gate,
            )
        ]
        if options.dead_letter:
            letters = _dead_letters(parsed)
            query = started(letters, dead, options, checkpoint / "dead-letters")
            running.append((queries.enter_context(query), dead))
        wait(running, tally)
    open_after = open_records(spark, checkpoint / "query")
    late = tally.rows - tally.malformed - writing.counted - (open_after - open_before)
    return Summary(
        batches=gate.batches,
        records=tally.rows,
        windows=writing.windows,
        counted=writing.counted,
        open=open_after,
        late=late,
        malformed=tally.malformed,
        watermark=tally.watermark,
        seconds=time.monotonic() - began,
        stopped=gate.closed,
    )


@dataclass(slots=True)
class _Windows:
    """Writes final windows; counts them and the records in them."""

    options: AggregateOptions
    identity: str
    windows: int = 0
    counted: int = 0

    def write(self, frame: DataFrame, batch: int) -> int:
        rows, records = self._to_table(frame, batch) if self.options.to_path else self._to_topic(frame, batch)
        self.windows += rows
        self.counted += records
        return records

    def _to_table(self, frame: DataFrame, batch: int) -> tuple[int, int]:
        from raftlog.pipeline.jobs.parquet import Target
        from raftlog.pipeline.jobs.table import COUNTED_DDL, write_rows

        target = Target(str(local_path(self.options.to_path)), self.identity, batch)
        done = frame.mapInArrow(partial(write_rows, target), COUNTED_DDL).collect()
        return sum(row.rows for row in done), sum(row.records for row in done)

    def _to_topic(self, frame: DataFrame, batch: int) -> tuple[int, int]:
        from pyspark.sql import functions as f

        keyed = ["window_start", "window_end", *self.options.by]
        records = frame.select(
            f.to_json(f.struct(*keyed)).alias("key"), f.to_json(f.struct("*")).alias("value"), "records"
        )
        counted = (f.count("*"), f.sum("records"))
        windows, within = _write_to_topic(self.options, self.options.to_topic, records, batch, *counted)
        return windows, within


def _write_to_topic(
    options: AggregateOptions, topic: str, frame: DataFrame, batch: int, *counted: Column
) -> list[int]:
    """Write rows and return sums over them. They are held meanwhile: what Spark observes is lost in its Kafka sink."""
    from raftlog.pipeline.exactly_once import ExactlyOnce

    columns = [name for name in ("key", "value", "headers") if name in frame.columns]
    settings = {name: value for name, value in options.reader_options().items() if name.startswith("kafka.")}
    held = frame.persist()
    try:
        found = held.agg(*counted).first()
        if options.exactly_once:
            ExactlyOnce({**settings, "topic": topic})(held.select(*columns), batch)
        else:
            writer = held.select(*columns).write.format(options.connector).mode("append")
            writer.options(**settings).option("topic", topic).save()
        return [each or 0 for each in found or ()]
    finally:
        held.unpersist()


def _write_dead(options: AggregateOptions, frame: DataFrame, batch: int) -> int:
    from pyspark.sql import functions as f

    return _write_to_topic(options, options.dead_letter, frame, batch, f.count("*"))[0]


def parse(spark: SparkSession, options: AggregateOptions) -> DataFrame:
    """Return the stream of records with their values parsed as `_row`, and the `reason` if malformed, or null."""
    from raftlog.pipeline.jobs.json_rows import parse_rows
    from raftlog.pipeline.jobs.run import read_stream

    return parse_rows(read_stream(spark, options), options.schema, options.event_time)


def _windows(parsed: DataFrame, options: AggregateOptions) -> DataFrame:
    """Return final windows as rows."""
    from pyspark.sql import functions as f

    from raftlog.pipeline.jobs.tally import OBSERVED

    seen = parsed.observe(OBSERVED, f.count("*").alias("rows"), f.count("reason").alias("malformed"))
    if not options.dead_letter:
        where = f.concat_ws("/", "topic", "partition", "offset")
        complaint = f.concat(f.lit("malformed record "), where, f.lit(": "), "reason")
        seen = seen.withColumn("reason", f.when(f.col("reason").isNotNull(), f.raise_error(complaint)))
    window = f.window("_event_time", options.window, options.slide or None)
    measures = [f.count("*").alias("records"), *(f.expr(each) for each in options.measures)]
    grouped = (
        seen.where("reason IS NULL")
        .select("_row.*", "_event_time")
        .withWatermark("_event_time", options.watermark)
        .groupBy(window.alias("window"), *options.by)
        .agg(*measures)
    )
    bounds = (f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))
    return grouped.select(*bounds, *(name for name in grouped.columns if name != "window"))


def _dead_letters(parsed: DataFrame) -> DataFrame:
    """Return malformed records as they came, with the reason and where they were in headers."""
    from pyspark.sql import functions as f

    def header(name: str, value: Column) -> Column:
        return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))

    where = f.concat_ws("/", "topic", "partition", "offset")
    reasons = f.array(header("raftlog.error.reason", f.col("reason")), header("raftlog.error.source", where))
    none = f.array().cast("array<struct<key:string,value:binary>>")
    headers = f.concat(f.coalesce("headers", none), reasons)
    return parsed.where("reason IS NOT NULL").select("key", "value", headers.alias("headers"))
