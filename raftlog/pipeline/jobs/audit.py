"""`audit`: reads whole topics, all partitions in parallel, and checks them: the offline twin of `raftlog check`.

In each partition it finds missing records, repeated or decreasing offsets, a key's records out of order, and batches
with a wrong checksum. In each topic it finds duplicate records, by their identity, and keys in several partitions. The
audit covers the records below the partitions' ends at its start. A partition cannot be read past a damaged batch: it is
reported, without other findings.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.pipeline.jobs.audit_verdict import PartitionVerdict, Summary, Twice
from raftlog.pipeline.jobs.common import SourceOptions, pairs
from raftlog.pipeline.jobs.control import BatchDone, Control, JobError
from raftlog.pipeline.jobs.failures import job_error, spark_errors
from raftlog.pipeline.jobs.settings import setting
from raftlog.pipeline.offsets import TopicPartition, to_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EXAMPLES: Final = 5
TELLS: Final = ("header:", "json:")
DAMAGE: Final = ("code=_BAD_MSG", "code=INVALID_MSG", "CorruptRecordException", "Record is corrupt")
"""The error of the clients of the two connectors for a batch with a wrong checksum."""

Spans = dict[TopicPartition, tuple[int, int]]
"""The first and the end offset (exclusive) of each partition."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions(SourceOptions):
    """Reads whole topics in parallel and judges them."""

    identity: str = setting(
        "identity of a record: value, header:NAME or json:FIELD (default: duplicates are not checked)",
        "",
    )
    order: str = setting(
        "a whole number that must not fall from one record of a key to the next: header:NAME (digits) or json:FIELD",
        "",
    )
    allow_gaps: bool = setting("missing offsets are no fault: compacted or transactional topics", False)

    def faults(self) -> list[str]:
        found = super().faults()
        if self.identity not in ("", "value") and not _tells(self.identity):
            found.append(f"identity: {self.identity!r} is none of value, header:NAME, json:FIELD")
        if self.order and not _tells(self.order):
            found.append(f"order: {self.order!r} is neither header:NAME nor json:FIELD")
        client = pairs(self.client)
        if client.get("check.crcs", "true").lower() != "true":
            found.append("client: check.crcs=false would blind the audit")
        return found


def _tells(text: str) -> bool:
    return any(text.startswith(kind) and len(text) > len(kind) for kind in TELLS)


def audit(spark: SparkSession, options: AuditOptions, control: Control | None = None) -> Summary:
    """Read whole topics and judge them. Raises JobError when they can't be read for another reason than damage."""
    control = control or Control()
    began = time.monotonic()
    spans = _spans(options)
    try:
        verdicts, examples = _judge_all(spark, options, spans)
        control.on_batch(BatchDone(0, sum(each.records for each in verdicts), time.monotonic() - began))
        corrupt = {TopicPartition(each.topic, each.partition) for each in verdicts if each.corrupt}
        frame = _read(spark, options, {at: span for at, span in spans.items() if at not in corrupt})
        twice = _twice(frame, options.identity) if options.identity and frame is not None else Twice()
        straying = _straying(frame) if options.order and frame is not None else 0
    except spark_errors() as error:
        raise job_error(error) from error
    return Summary(
        partitions=tuple(verdicts),
        doubled=twice.doubled,
        nameless=twice.nameless,
        straying=straying,
        examples=(*examples, *twice.examples),
        gaps_allowed=options.allow_gaps,
        seconds=time.monotonic() - began,
    )


def _spans(options: AuditOptions) -> Spans:
    """Return what there is to judge, as the cluster says now. Raises JobError."""
    from raftlog.pipeline.lookup import Lookup, UnknownTopic
    from raftlog.pipeline.options import OptionFaults, read_options

    try:
        lookup = Lookup(read_options(options.reader_options(), "batch"))
        topic_partitions = sorted(lookup.partitions())
        firsts, ends = lookup.earliest(topic_partitions), lookup.latest(topic_partitions)
    except (OptionFaults, UnknownTopic, RuntimeError) as error:
        raise JobError(str(error)) from error
    if not topic_partitions:
        raise JobError(
            f"topic_pattern: no topic matches {options.topic_pattern}, so there is nothing to check"
        )
    return {at: (firsts[at], ends[at]) for at in topic_partitions}


def _read(spark: SparkSession, options: AuditOptions, spans: Spans) -> DataFrame | None:
    """Return the records of these spans; None if there is no span."""
    if not spans:
        return None
    assigned: dict[str, list[int]] = {}
    for at in spans:
        assigned.setdefault(at.topic, []).append(at.partition)
    asked = {
        name: value for name, value in options.reader_options().items() if name not in options.subscription
    }
    asked |= {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_json({at: first for at, (first, _end) in spans.items()})),
        "endingOffsets": json.dumps(to_json({at: end for at, (_first, end) in spans.items()})),
        "kafka.check.crcs": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format(options.connector).options(**asked).load()


Judged = tuple[list[PartitionVerdict], list[str]]
"""Verdicts, and examples of what is wrong."""


def _judge_all(spark: SparkSession, options: AuditOptions, spans: Spans) -> Judged:
    """Judge all partitions side by side; once one turns out to be damaged, each by itself."""
    try:
        return _judge(_read(spark, options, spans), spans, options.order)
    except spark_errors() as error:
        if not _damage(error):
            raise
    verdicts, examples = list[PartitionVerdict](), list[str]()
    for at, span in spans.items():
        try:
            found, more = _judge(_read(spark, options, {at: span}), {at: span}, options.order)
        except spark_errors() as error:
            if not (damage := _damage(error)):
                raise
            found, more = [PartitionVerdict(*at, *span, corrupt=damage)], []
        verdicts += found
        examples += more
    return verdicts, examples


def _judge(frame: DataFrame | None, spans: Spans, order: str) -> Judged:
    from raftlog.pipeline.jobs.audit_task import FOUND_DDL, judge

    if frame is None:
        return [], []
    numbered = frame.select("topic", "partition", "offset", "key", _number(order).alias("number"))
    rows = numbered.mapInArrow(partial(judge, ordered=bool(order)), FOUND_DDL).collect()
    found = {TopicPartition(row.topic, row.partition): row for row in rows}
    if len(found) != len(rows):
        raise JobError("a partition was read by two tasks: it must not be split (minPartitions)")
    verdicts = [_verdict(at, span, found.get(at)) for at, span in spans.items()]
    return verdicts, [example for row in rows for example in json.loads(row.examples)]


def _verdict(at: TopicPartition, span: tuple[int, int], row: Any) -> PartitionVerdict:
    first, end = span
    if row is None:
        return PartitionVerdict(*at, first, end, missing=end - first)
    return PartitionVerdict(
        *at,
        first,
        end,
        records=row.records,
        missing=end - first - (row.records - row.repeated),
        repeated=row.repeated,
        disordered=row.disordered,
        unnumbered=row.unnumbered,
    )


def _twice(frame: DataFrame, identity: str) -> Twice:
    """Count the duplicate records, and the records without an identity; none of the latter if the value is the
    identity.
    """
    from pyspark.sql import functions as f

    where = f.concat_ws("/", "topic", "partition", "offset")
    grouped = (
        frame.select("topic", _told_by(identity).alias("identity"), where.alias("place"))
        .groupBy("topic", "identity")
        .agg(f.count("*").alias("times"), f.min("place").alias("one"), f.max("place").alias("other"))
    )
    again = f.when(f.col("identity").isNotNull(), f.col("times") - 1)
    without = f.when(f.col("identity").isNull(), f.col("times"))
    total = grouped.agg(f.sum(again).alias("doubled"), f.sum(without).alias("nameless")).first()
    doubled, nameless = (total.doubled or 0, total.nameless or 0) if total else (0, 0)
    several = grouped.where("identity IS NOT NULL AND times > 1").limit(EXAMPLES)
    examples = [
        f"the same record: {row.one} and {row.other}" for row in (several.collect() if doubled else ())
    ]
    # a record without a value is no duplicate of another, and only the value identifies records
    return Twice(doubled, 0 if identity == "value" else nameless, tuple(examples))


def _straying(frame: DataFrame) -> int:
    """Return how many keys are in several partitions of a topic, which loses their order."""
    from pyspark.sql import functions as f

    homes = frame.where("key IS NOT NULL").groupBy("topic", "key").agg(f.min("partition"), f.max("partition"))
    return int(homes.toDF("topic", "key", "lowest", "highest").where("lowest < highest").count())


def _told_by(identity: str) -> Column:
    from pyspark.sql import functions as f

    kind, _, name = identity.partition(":")
    if kind == "value":
        return f.col("value")
    if kind == "json":
        return f.get_json_object(f.col("value").cast("string"), f"$['{name}']")
    return f.try_element_at(f.filter("headers", lambda each: each["key"] == name), f.lit(-1))["value"]


def _number(order: str) -> Column:
    from pyspark.sql import functions as f

    return _told_by(order).cast("string").try_cast("long") if order else f.lit(None).cast("long")


def _damage(error: Exception) -> str:
    """Return the line of an error about a damaged batch, or an empty text."""
    lines = (line.strip().removeprefix("Caused by: ") for line in str(error).splitlines())
    return next((line for line in lines if any(mark in line for mark in DAMAGE)), "")
