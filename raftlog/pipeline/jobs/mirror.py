"""`mirror`: topics of one cluster → another, each record in its original partition, and a map of the offsets.

Every copy carries the header `raftlog.mirror.source`: cluster id/topic/partition/offset of the original. Headers of
that name in originals are removed: any client can write them. Before a task copies, it reads the target's end, and
skips records that exist. So a killed driver or a replayed batch causes no duplicates. Records that a killed task had
sent may still be duplicated, if the target appends them after the next task has checked. There are no transactions
here; the header identifies such duplicates, and `audit` counts them. Two parallel attempts of a task would both send: a
Spark that speculates is refused.

The topic of the map has one record for each run of records whose offsets go side by side, at least once. Its newest
record with a source offset not above a wanted offset has the target's. It can be rebuilt from the headers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.pipeline.deployment import reach_of
from raftlog.pipeline.jobs.common import StreamOptions, local_path, pair_faults, pairs
from raftlog.pipeline.jobs.control import Control, JobError
from raftlog.pipeline.jobs.identity import claim_checkpoint
from raftlog.pipeline.jobs.offset_map import Run
from raftlog.pipeline.jobs.settings import setting
from raftlog.pipeline.jobs.summary import StreamSummary
from raftlog.pipeline.login import ClientSettings, for_librdkafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S: Final = 60.0
SPECULATION: Final = (
    "spark.speculation=true has two attempts of a task run side by side, both of which would send its records; "
    "a mirror needs it false"
)


@dataclass(frozen=True, kw_only=True)
class MirrorOptions(StreamOptions):
    """Topics of one cluster → another, with a map of the offsets."""

    to: str = setting("host:port of any node of the target, or several")
    to_client: tuple[str, ...] = setting("NAME=VALUE for the target's client (librdkafka)", (), secret=True)
    prefix: str = setting("put before each topic's name at the target", "")
    map_topic: str = setting("topic at the target that maps offsets", "raftlog.mirror.offsets")

    def faults(self) -> list[str]:
        found = super().faults()
        found += pair_faults("to_client", self.to_client)
        found += [f"to_client: {name}: {why}" for name, why in for_librdkafka(pairs(self.to_client))[1]]
        reaching = {name: reach_of(name) for name in pairs(self.to_client)}
        found += [f"to_client: {name}: {reach}" for name, reach in reaching.items() if reach]
        if _is_true(pairs(self.conf).get("spark.speculation")):
            found.append(f"conf: {SPECULATION}")
        if self.to and self.to == self.bootstrap and not self.prefix:
            found.append("to: is the very cluster that is read; give a prefix")
        return found

    @property
    def target_settings(self) -> dict[str, str]:
        settings, _faults = for_librdkafka(pairs(self.to_client))
        return ClientSettings({**settings, "bootstrap.servers": self.to})


def _is_true(setting: str | None) -> bool:
    """Read a setting as Spark does."""
    return (setting or "").strip().lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(StreamSummary):
    """The result of a run. `skipped` records were at the target already."""

    job: str = "mirror"
    records: int
    skipped: int

    def describe(self) -> str:
        return f"{self.records:,} records copied, {self.skipped:,} were there already"


def mirror(spark: SparkSession, options: MirrorOptions, control: Control | None = None) -> Summary:
    """Copy up to the end of the topics, or until stopped. Raise JobError.

    Restart it with the same checkpoint after any failure; it resumes.
    """
    from raftlog.pipeline.jobs.run import Gate, read_stream, started, wait
    from raftlog.pipeline.jobs.tally import Tally

    if _is_true(spark.conf.get("spark.speculation", "false")):
        raise JobError(SPECULATION)
    control = control or Control()
    began = time.monotonic()
    checkpoint = local_path(options.checkpoint)
    claim_checkpoint(
        checkpoint, "mirror", {**options.subscription, "to": options.to, "prefix": options.prefix}
    )
    copying = _Mirror(options, prepare_topics(options))
    gate = Gate(copying.write, control)
    with started(read_stream(spark, options), gate, options, checkpoint / "query") as query:
        wait([(query, gate)], Tally())
    return Summary(
        batches=gate.batches,
        records=copying.copied,
        skipped=copying.skipped,
        seconds=time.monotonic() - began,
        stopped=gate.closed,
    )


@dataclass(slots=True)
class _Mirror:
    """Copies batches, and writes the map."""

    options: MirrorOptions
    cluster_id: str
    """The source cluster's id."""
    copied: int = 0
    skipped: int = 0

    def write(self, frame: DataFrame, _batch: int) -> int:
        from raftlog.pipeline.jobs.mirror_task import RUNS_DDL, copy

        task = partial(copy, self.options.target_settings, self.options.prefix, self.cluster_id)
        done = frame.mapInArrow(task, RUNS_DDL).collect()
        self._map([Run(row.topic, row.partition, row.source, row.target, row.records) for row in done])
        skipped = sum(row.records for row in done if row.skipped)
        copied = sum(row.records for row in done) - skipped
        self.copied += copied
        self.skipped += skipped
        return int(copied + skipped)

    def _map(self, done: list[Run]) -> None:
        from raftlog.pipeline.clients import borrow_outbox, return_outbox

        settings, topic = self.options.target_settings, self.options.map_topic
        outbox = borrow_outbox(settings)
        for run in done:
            outbox.producer.produce(topic, json.dumps(asdict(run)), f"{run.topic}/{run.partition}")
        if outbox.producer.flush(PATIENCE_S) or outbox.refused:
            raise JobError(f"map_topic: {[*outbox.refused, f'{topic}: not acknowledged'][0]}")
        return_outbox(outbox, settings)


def prepare_topics(options: MirrorOptions) -> str:
    """Make what is missing at the target, with as many partitions as at the source; return the source's cluster id.

    Raises JobError if they differ.
    """
    from raftlog.pipeline.clients import Administrator
    from raftlog.pipeline.lookup import Lookup, UnknownTopic, listed
    from raftlog.pipeline.options import OptionFaults, read_options

    try:
        source = Lookup(read_options(options.reader_options(), "stream"))
        wanted: dict[str, int] = {options.map_topic: 1}
        for tp in source.partitions():
            name = options.prefix + tp.topic
            wanted[name] = max(wanted.get(name, 0), tp.partition + 1)
        target = Administrator(options.target_settings)
        there = {name: len(each.partitions) for name, each in listed(target).topics.items()}
        if new := {name: count for name, count in wanted.items() if name not in there}:
            target.ask(partial(_create, new), "create topics", doing="create", topics=new)
        cluster_id = source.cluster_id()
    except (OptionFaults, UnknownTopic, RuntimeError) as error:
        raise JobError(f"topics: {error}") from error
    differing = [
        f"{name} has {there[name]} partitions at the target and {count} at the source"
        for name, count in wanted.items()
        if name in there and there[name] != count and name != options.map_topic
    ]
    if differing:
        raise JobError(
            f"topics: {'; '.join(differing)}; records keep their partition, so the partition counts must be equal"
        )
    return cluster_id


def _create(partitions: Mapping[str, int], admin: Any) -> None:
    """Make topics with so many partitions each."""
    from confluent_kafka import admin as kafka

    make: Any = kafka.NewTopic  # type: ignore[attr-defined]
    new = [make(name, num_partitions=count) for name, count in partitions.items()]
    for future in admin.create_topics(new).values():
        future.result(PATIENCE_S)
