"""`audit`: reads whole topics, all partitions side by side, and judges them: the offline twin of `raftlog check`.

Looked for in each partition: records missing between its first and its end, offsets that come twice or go backwards,
a key's records out of order, batches that fail their checksum. Looked for in each topic: a record that is there twice,
by what it is told by. What is judged are the records below the ends as they were when the audit began.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.pipeline.jobs.common import SourceOptions
from raftlog.pipeline.jobs.control import BatchDone, Control, JobError
from raftlog.pipeline.jobs.settings import setting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EXAMPLES: Final = 5
TELLS: Final = ("header:", "json:")
CORRUPT: Final = ("corruptrecord", "record is corrupt", "crc", "bad_msg", "bad message")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(SourceOptions):
    """Reads whole topics in parallel and judges them."""

    identity: str = setting(
        "what tells records apart: value, header:NAME or json:FIELD (default: not judged)", ""
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
        found += [
            "client: check.crcs=false would blind the audit"
            for each in self.client
            if each.replace(" ", "").lower() == "check.crcs=false"
        ]
        return found


def _tells(text: str) -> bool:
    return any(text.startswith(kind) and len(text) > len(kind) for kind in TELLS)


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition from `first` to `end` (exclusive), and what is wrong with it, in records."""

    topic: str
    partition: int
    first: int
    end: int
    records: int
    missing: int
    repeated: int
    disordered: int
    unnumbered: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict. `doubled`: records that are there again; `straying`: keys in several partitions of a topic."""

    partitions: tuple[PartitionVerdict, ...]
    doubled: int
    straying: int
    corrupt: str
    examples: tuple[str, ...]
    gaps_allowed: bool
    seconds: float
    job: str = "audit"

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def counts(self) -> dict[str, int]:
        """Return what was found, by name; what is allowed is not found."""
        return {
            "missing": 0 if self.gaps_allowed else self._sum("missing"),
            "repeated": self._sum("repeated"),
            "disordered": self._sum("disordered"),
            "unnumbered": self._sum("unnumbered"),
            "doubled": self.doubled,
            "straying": self.straying,
        }

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.partitions)

    @property
    def sound(self) -> bool:
        return not any(self.counts.values()) and not self.corrupt

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "records": self.records, "found": self.counts, "sound": self.sound}

    def as_text(self) -> str:
        lines = [
            f"{each.topic}-{each.partition}  {each.records:,} records in [{each.first}, {each.end}), "
            f"{each.missing} missing, {each.repeated} repeated, {each.disordered} out of order"
            for each in self.partitions
        ]
        lines += [f"  {each}" for each in self.examples]
        if self.corrupt:
            lines.append(f"corrupt: {self.corrupt}")
        found = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        verdict = "sound" if self.sound else f"WRONG: {found or 'corrupt'}"
        lines.append(f"audit: {self.records:,} records in {self.seconds:.1f} s: {verdict}")
        return "\n".join(lines)


def audit(spark: SparkSession, options: AuditOptions, control: Control | None = None) -> Summary:
    """Read whole topics and judge them. Raises JobError when they can't be read for another reason than damage."""
    from pyspark.errors import PySparkException

    control = control or Control()
    began = time.monotonic()
    bounds = _bounds(options)
    frame = _read(spark, options, bounds)
    try:
        verdicts, examples = _judge(frame, bounds, options.order)
        control.hear(BatchDone(0, sum(each.records for each in verdicts), time.monotonic() - began))
        doubled, twice = _doubled(frame, options.identity) if options.identity else (0, [])
        straying = _straying(frame) if options.order else 0
    except PySparkException as error:
        corrupt = _corruption(str(error))
        if not corrupt:
            raise JobError(" | ".join(str(error).strip().splitlines()[:3])) from error
        return Summary((), 0, 0, corrupt, (), options.allow_gaps, time.monotonic() - began)
    return Summary(
        partitions=tuple(verdicts),
        doubled=doubled,
        straying=straying,
        corrupt="",
        examples=(*examples, *twice),
        gaps_allowed=options.allow_gaps,
        seconds=time.monotonic() - began,
    )


Bounds = dict[str, dict[str, tuple[int, int]]]


def _bounds(options: AuditOptions) -> Bounds:
    """Return first and end offset by topic and partition, as the cluster says now. Raises JobError."""
    from raftlog.pipeline.lookup import Lookup, UnknownTopic
    from raftlog.pipeline.options import OptionFaults, read_options

    try:
        lookup = Lookup(read_options(options.reader_options(), "batch"))
        places = lookup.partitions()
        firsts, ends = lookup.earliest(places), lookup.latest(places)
    except (OptionFaults, UnknownTopic, RuntimeError) as error:
        raise JobError(str(error)) from error
    found: Bounds = {}
    for place in places:
        found.setdefault(place.topic, {})[str(place.partition)] = (firsts[place], ends[place])
    return found


def _read(spark: SparkSession, options: AuditOptions, bounds: Bounds) -> DataFrame:
    def side(index: int) -> str:
        return json.dumps(
            {topic: {n: each[index] for n, each in those.items()} for topic, those in bounds.items()}
        )

    asked = {
        **options.reader_options(),
        "startingOffsets": side(0),
        "endingOffsets": side(1),
        "kafka.check.crcs": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format(options.connector).options(**asked).load()


def _judge(frame: DataFrame, bounds: Bounds, order: str) -> tuple[list[PartitionVerdict], list[str]]:
    """Return each partition's verdict, and examples of what is wrong."""
    from raftlog.pipeline.jobs.audit_task import FOUND_DDL, judge

    numbered = frame.select("topic", "partition", "offset", "key", _number(order).alias("number"))
    rows = numbered.mapInArrow(partial(judge, ordered=bool(order)), FOUND_DDL).collect()
    found = {(row.topic, row.partition): row for row in rows}
    if len(found) != len(rows):
        raise JobError("a partition was read by two tasks: it must not be split (minPartitions)")
    verdicts = [
        _verdict(topic, int(number), span, found.get((topic, int(number))))
        for topic, those in sorted(bounds.items())
        for number, span in sorted(those.items(), key=lambda each: int(each[0]))
    ]
    return verdicts, [example for row in rows for example in json.loads(row.examples)]


def _verdict(topic: str, partition: int, span: tuple[int, int], row: Any) -> PartitionVerdict:
    first, end = span
    return PartitionVerdict(
        topic=topic,
        partition=partition,
        first=first,
        end=end,
        records=row.records if row else 0,
        missing=end - first - (row.records - row.repeated if row else 0),
        repeated=row.repeated if row else 0,
        disordered=row.disordered if row else 0,
        unnumbered=row.unnumbered if row else 0,
    )


def _doubled(frame: DataFrame, identity: str) -> tuple[int, list[str]]:
    """Return how many records are there again by what tells them apart, and examples."""
    from pyspark.sql import functions as f

    where = f.concat_ws("/", "topic", "partition", "offset")
    grouped = (
        frame.select("topic", _told_by(identity).alias("identity"), where.alias("place"))
        .where("identity IS NOT NULL")
        .groupBy("topic", "identity")
        .agg(f.count("*").alias("times"), f.min("place").alias("one"), f.max("place").alias("other"))
        .where("times > 1")
    )
    total = grouped.agg(f.sum(f.col("times") - 1)).first()
    doubled = int(total[0] or 0) if total is not None else 0
    if not doubled:
        return 0, []
    return doubled, [
        f"the same record: {row.one} and {row.other}" for row in grouped.limit(EXAMPLES).collect()
    ]


def _straying(frame: DataFrame) -> int:
    """Return how many keys are in several partitions of a topic: nobody keeps their order."""
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


def _corruption(message: str) -> str:
    """Return the line of an error that tells of damage, or nothing."""
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if any(mark in line.lower() for mark in CORRUPT)), "")
