"""`python -m tests.pipeline.bench [rows] [--repeat N]`: rows/s of read, write, stream and archive, all in one run.

Each way is compared with Spark's own generators. If the jars are on this machine (`raftlog pipeline jars`), it is also
compared with Spark's own Kafka connector on the same cluster. All ways take turns, round by round, and the median is
reported. `--only read columns count stream` measures only these ways, of both connectors.

The time on a clock means little on a shared machine; so the processor time of Spark and the nodes is reported as well.
On cores that are all busy, as with `local[2]` on two cores, the rates are in inverse ratio to it.
"""

from __future__ import annotations

import argparse
import operator
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from raftlog.pipeline.jobs.archive import ArchiveOptions, archive
from raftlog.pipeline.jobs.jars import JarsMissingError, find_jars
from raftlog.pipeline.jobs.settings import build
from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
ROWS = 5_000_000
WARM_ROWS = 50_000
"""The load that each way is tried with before anything is measured."""
ROWS_PER_TRIGGER = 500_000
LABELS = ("write", "read", "columns", "count", "count-column", "stream", "copy", "archive")
KAFKA = "kafka"
"""The name that Spark knows its own connector by."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The material of one way for one turn: a filled topic to read, an empty topic to write, a folder that does not
    exist yet.
    """

    rows: int
    filled: str
    empty: str
    folder: Path

    @property
    def rows_per_trigger(self) -> int:
        return min(self.rows, ROWS_PER_TRIGGER)

    @property
    def checkpoint(self) -> str:
        return f"{self.folder}-checkpoint"


@dataclass(frozen=True, slots=True)
class Way:
    """A way that rows go, and the ways that its rate is compared with."""

    name: str
    go: Callable[[Turn], object]
    beside: tuple[str, ...] = ()
    label: str = ""
    """The word of `--only` that chooses it."""


class Pace(NamedTuple):
    """How many rows move in a second of the clock, and in a second of one core."""

    per_second: float
    per_cpu_second: float

    def __str__(self) -> str:
        return f"{self.per_second:,.0f} rows/s, {self.per_cpu_second:,.0f} rows/s of CPU"


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it: Spark's JVM, Python's workers, the nodes."""
    own = psutil.Process()
    total = 0.0
    for each in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class Generated:
    """Spark's own generators: what this machine does without a log."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def ways(self) -> Iterator[Way]:
        yield Way("range → noop", self._range_to_noop)
        yield Way("range → Parquet", self._range_to_parquet)
        yield Way("rate → noop", self._rate_to_noop)
        yield Way("rate → Parquet", self._rate_to_parquet)

    def _range_to_noop(self, turn: Turn) -> None:
        to_noop(numbered(self._spark.range(turn.rows), "id"))

    def _range_to_parquet(self, turn: Turn) -> None:
        rows = numbered(self._spark.range(turn.rows), "id")
        rows.write.option("compression", "zstd").parquet(str(turn.folder))

    def _rate_to_noop(self, turn: Turn) -> None:
        _run_to(turn, self._rate(turn).writeStream.format("noop"))

    def _rate_to_parquet(self, turn: Turn) -> None:
        rows = numbered(self._rate(turn), "value", "timestamp")
        _run_to(turn, rows.writeStream.format("parquet").options(compression="zstd", path=str(turn.folder)))

    def _rate(self, turn: Turn) -> DataFrame:
        options = {"rowsPerBatch": str(turn.rows_per_trigger), "numPartitions": str(PARTITIONS)}
        return self._spark.readStream.format("rate-micro-batch").options(**options).load()


class Logged:
    """One connector: what it writes to the cluster and reads from it."""

    def __init__(self, spark: SparkSession, servers: str, connector: str) -> None:
        self._spark = spark
        self._servers = servers
        self._there = {"kafka.bootstrap.servers": servers}
        self.connector = connector

    def ways(self, other: str) -> Iterator[Way]:
        """Yield what it does, each beside a generator and beside the same by another connector ("": there is none)."""
        for label, name, go, generated in (
            ("write", "range → {}", self.write, ["range → noop"]),
            ("read", "{} → noop", self._read, ["range → noop"]),
            ("columns", "{} key, value → noop", self._read_columns, ["range → noop"]),
            ("count", "{} → count", self._count, ["range → noop"]),
            ("count-column", "{} partition → count", self._count_by_column, ["range → noop"]),
            ("stream", "{} stream → noop", self._stream, ["rate → noop"]),
            ("copy", "{} stream → topic", self._copy, ["rate → noop"]),
            ("archive", "{} archive", self._archive, ["range → Parquet", "rate → Parquet"]),
        ):
            beside = (*generated, name.format(other)) if other else tuple(generated)
            yield Way(name.format(self.connector), go, beside, label)
        if self.connector != KAFKA:  # whose sink is at least once
            beside = tuple(f"{each} stream → topic" for each in (self.connector, other) if each)
            yield Way(f"{self.connector} stream → topic once", self._copy_once, beside, "copy")

    def write(self, turn: Turn) -> None:
        rows = numbered(self._spark.range(turn.rows), "id")
        rows.write.format(self.connector).mode("append").options(topic=turn.empty, **self._there).save()

    def _read(self, turn: Turn) -> None:
        to_noop(self._table(turn))

    def _read_columns(self, turn: Turn) -> None:
        to_noop(self._table(turn, "key BINARY, value BINARY").select("key", "value"))

    def _count(self, turn: Turn) -> None:
        self._table(turn).groupBy("partition").count().collect()

    def _count_by_column(self, turn: Turn) -> None:
        self._table(turn, "partition INT").groupBy("partition").count().collect()

    def _table(self, turn: Turn, schema: str = "") -> DataFrame:
        """Return a topic; a schema names the needed columns, where the connector supports it."""
        reader = self._spark.read.format(self.connector).options(subscribe=turn.filled, **self._there)
        return reader.schema(schema).load() if schema and self.connector != KAFKA else reader.load()

    def _stream(self, turn: Turn) -> None:
        self._run(turn, self._streamed(turn).writeStream.format("noop"))

    def _copy(self, turn: Turn) -> None:
        writer = self._streamed(turn).select("key", "value").writeStream.format(self.connector)
        self._run(turn, writer.options(topic=turn.empty, **self._there))

    def _copy_once(self, turn: Turn) -> None:
        from raftlog.pipeline.exactly_once import ExactlyOnce

        once = ExactlyOnce({"topic": turn.empty, **self._there})
        self._run(turn, self._streamed(turn).select("key", "value").writeStream.foreachBatch(once))

    def _streamed(self, turn: Turn) -> DataFrame:
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(turn.rows_per_trigger)}
        reader = self._spark.readStream.format(self.connector).options(**limits, **self._there)
        return reader.option("subscribe", turn.filled).load()

    def _run(self, turn: Turn, writer: Any) -> None:
        """Run a query over what is there."""
        writer = writer.option("checkpointLocation", turn.checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()

    def _archive(self, turn: Turn) -> None:
        options = {
            "topics": [turn.filled],
            "bootstrap": self._servers,
            "connector": self.connector,
            "checkpoint": turn.checkpoint,
            "path": str(turn.folder),
            "max_records": turn.rows_per_trigger,
        }
        done = archive(self._spark, build(ArchiveOptions, options))
        assert done.rows == turn.rows, done.as_text()


def numbered(frame: DataFrame, number: str, *more: str) -> DataFrame:
    """Return rows with a short key and a value of 100 bytes."""
    return frame.selectExpr(
        f"cast(cast({number} as string) as binary) as key",
        f"cast(lpad(cast({number} as string), 100, 'x') as binary) as value",
        *more,
    )


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("append").save()


def _run_to(turn: Turn, writer: Any) -> None:
    """Run a query on an endless source until it has made a turn's rows."""
    query = writer.option("checkpointLocation", turn.checkpoint).start()
    while sum(each.numInputRows for each in query.recentProgress) < turn.rows:
        query.awaitTermination(0.05)
    query.stop()


class Rounds:
    """Has the ways take turns, and keeps how long each turn took."""

    def __init__(self, topics: Topics, folder: Path, filler: Logged) -> None:
        self._topics = topics
        self._folder = folder
        self._filler = filler
        self._turns = 0

    def filled(self, rows: int) -> str:
        """Return the name of a new topic with so many rows."""
        turn = self._turn(rows, "")
        self._filler.write(turn)
        return turn.empty

    def time(self, way: Way, rows: int, filled: str) -> Pace:
        """Return how fast a way moved the rows."""
        turn = self._turn(rows, filled)
        began, cpu_before = time.perf_counter(), cpu_seconds()
        way.go(turn)
        elapsed_s, cpu_s = time.perf_counter() - began, cpu_seconds() - cpu_before
        pace = Pace(rows / elapsed_s, rows / cpu_s)
        print(f"  {way.name:28} {rows:,} rows, {pace}", file=sys.stderr, flush=True)
        shutil.rmtree(turn.folder, ignore_errors=True)
        self._topics.delete(turn.empty)
        return pace

    def _turn(self, rows: int, filled: str) -> Turn:
        self._turns += 1
        empty = f"bench-{self._turns}"
        self._topics.make(empty, PARTITIONS)
        return Turn(rows, filled, empty, self._folder / empty)


def main() -> None:
    """Let all ways take turns, and print a line for each."""
    arguments = parsed()
    jars = kafka_jars()
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    with Cluster(3) as cluster, tempfile.TemporaryDirectory() as folder:
        spark = session(jars)
        raftlog = Logged(spark, cluster.bootstrap_servers, "raftlog")
        ways = [*Generated(spark).ways(), *raftlog.ways(KAFKA if jars else "")]
        if jars:
            ways += Logged(spark, cluster.bootstrap_servers, KAFKA).ways("")
        if arguments.only:
            ways = [way for way in ways if way.label in arguments.only]
        rounds = Rounds(Topics(cluster.bootstrap_servers), Path(folder), raftlog)
        warm = rounds.filled(WARM_ROWS)
        for way in ways:
            rounds.time(way, WARM_ROWS, warm)
        filled = rounds.filled(arguments.rows)
        paces: dict[str, list[Pace]] = {way.name: [] for way in ways}
        for _ in range(arguments.repeat):
            for way in ways:
                paces[way.name].append(rounds.time(way, arguments.rows, filled))
        spark.stop()
    tell(ways, paces)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.bench", description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=ROWS)
    parser.add_argument("--repeat", type=int, default=1, help="rounds; the median counts")
    parser.add_argument("--only", nargs="+", choices=LABELS, default=[], help="measure these ways only")
    arguments = parser.parse_args()
    if arguments.rows < 1 or arguments.rows % min(arguments.rows, ROWS_PER_TRIGGER):
        parser.error(f"rows: up to {ROWS_PER_TRIGGER:,}, or a multiple of it, as Spark makes them in batches")
    if arguments.repeat < 1:
        parser.error("--repeat: at least 1")
    return arguments


def kafka_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka connector; none, and a line that says so, where they are not."""
    try:
        return find_jars()
    except JarsMissingError as error:
        print(f"without Spark's Kafka connector: {error}", file=sys.stderr)
        return []


def session(jars: list[Path]) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(map(str, jars)),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def tell(ways: list[Way], paces: dict[str, list[Pace]]) -> None:
    """Print how fast each way is, and how many times as fast as the ways beside it: the medians over the rounds."""
    for way in ways:
        own = paces[way.name]
        print(f"{way.name:28} {middle(own)}")
        for name in way.beside:
            if name in paces:
                ratio = middle(
                    [Pace(*map(operator.truediv, *pair)) for pair in zip(own, paces[name], strict=True)]
                )
                print(f"{'':28} {ratio.per_second:.2f}, by CPU time {ratio.per_cpu_second:.2f} of {name}")


def middle(paces: list[Pace]) -> Pace:
    return Pace(*map(statistics.median, zip(*paces, strict=True)))


if __name__ == "__main__":
    main()
