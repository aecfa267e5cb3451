"""`raftlog pipeline demo`: trips of taxis through a cluster and two Spark jobs while a leader dies, and a verdict.

The sequence: make the file; start the nodes and Spark; stream the file while `archive` and `aggregate` run. Kill the
leader of a partition, and restart it; stop both jobs; restart them, up to the end. Then compare the files on the disk
with a plain computation over the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftlog.base.disk import write_file
from raftlog.cli import exits
from raftlog.cli.demo.command import terminated_like_interrupted
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.pipeline.screen import Screen
from raftlog.cli.spark_log import SparkLog
from raftlog.pipeline.jobs.aggregate import AggregateOptions, aggregate
from raftlog.pipeline.jobs.archive import ArchiveOptions, archive
from raftlog.pipeline.jobs.control import BatchDone, Control, JobError, MissingError
from raftlog.pipeline.jobs.session import NO_JAVA, java, make_session
from raftlog.pipeline.jobs.settings import build
from raftlog.pipeline.jobs.trips import SCHEMA, count_demand, trips
from raftlog.testing.cluster import Cluster, ClusterError
from raftlog.testing.progress import Stalled, patient, wait_until

if TYPE_CHECKING:
    from raftlog.pipeline.jobs.trips_check import ArchiveVerdict, WindowVerdict

TOPIC, DEAD = "trips", "trips-malformed"
PARTITIONS = 3
CHUNKS = 150
"""The file goes in so many pieces, each acknowledged before the next: no partition runs ahead of another by days."""
STREAM_S = 15.0
EVERY_S = 1.0
FLUSH_S = 0.2
REQUEST_S = 120.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The number of trips, the seed, the connector that reads them, and the Spark master."""

    trips: int
    seed: int
    connector: str
    master: str
    json: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the run."""

    sent: int
    malformed: int
    killed: int
    open: int
    late: int
    dead: int
    archive: ArchiveVerdict
    windows: WindowVerdict
    seconds: float

    @property
    def clean(self) -> bool:
        return self.archive.clean and self.windows.clean and self.dead == self.malformed

    def as_json(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "malformed": self.malformed,
            "killed_leader": self.killed,
            "open": self.open,
            "late": self.late,
            "dead_letters": self.dead,
            "archive": self.archive.as_json(),
            "windows": self.windows.as_json(),
            "seconds": round(self.seconds, 1),
            "clean": self.clean,
        }

    def as_text(self) -> Iterator[str]:
        kept, windows = self.archive, self.windows
        yield f"streamed     {self.sent:,} records, {self.malformed} of them malformed; leader {self.killed} killed"
        yield (
            f"archive      {kept.archived:,} records in Parquet: {kept.missing} missing, {kept.doubled} doubled, "
            f"{kept.foreign} foreign"
        )
        yield (
            f"aggregate    {windows.windows:,} windows by zone and hour, {windows.trips:,} trips, "
            f"{windows.fare_cents / 100:,.2f} paid: {windows.wrong} wrong, {windows.doubled} doubled"
        )
        yield (
            f"not told     {self.open:,} trips in windows still open, {self.late} late, "
            f"{self.dead} dead letters, {windows.unaccounted} unaccounted for"
        )
        verdict = (
            "clean: counts and sums agree with a plain computation from the file" if self.clean else "FAILED"
        )
        yield f"verdict      {verdict} ({self.seconds:.0f} s)"


def run(options: DemoOptions) -> int:
    """Run the demo; returns the exit code. The nodes and Spark are taken down whatever happens."""
    try:
        confluent_kafka()  # before trips are made and nodes start
        if not java():
            raise MissingError(NO_JAVA)
        with (
            terminated_like_interrupted(),
            tempfile.TemporaryDirectory(prefix="raftlog-pipeline-") as folder,
            closing(Cluster(3)) as cluster,
        ):
            report = _run(cluster, Path(folder), options)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except MissingError as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.NOT_RUN
    except (JobError, ClusterError, Stalled, OSError, ImportError) as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.FAILED
    print(json.dumps(report.as_json(), indent=2) if options.json else "\n".join(report.as_text()))
    return 0 if report.clean else exits.VERIFICATION_FAILED


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The two jobs, to be run once and again."""

    spark: Any
    folder: Path
    bootstrap: str
    options: DemoOptions

    def archive(self, every: float, control: Control) -> Any:
        own = {"checkpoint": str(self.folder / "archive-checkpoint"), "path": str(self.folder / "archive")}
        return archive(self.spark, build(ArchiveOptions, self._common(every), own), control)

    def aggregate(self, every: float, control: Control) -> Any:
        own = {
            "checkpoint": str(self.folder / "aggregate-checkpoint"),
            "to_path": str(self.folder / "demand"),
            "schema": SCHEMA,
            "event_time": "picked_up",
            "window": "1 hour",
            "watermark": "12 hours",
            "by": ["zone"],
            "measures": ["sum(fare_cents) AS fare_cents"],
            "dead_letter": DEAD,
        }
        return aggregate(self.spark, build(AggregateOptions, self._common(every), own), control)

    def _common(self, every: float) -> dict[str, Any]:
        connector, master = self.options.connector, self.options.master
        return {
            "topics": [TOPIC],
            "bootstrap": self.bootstrap,
            "connector": connector,
            "master": master,
            "every": every,
            "client": ["log_level=0"] if connector == "raftlog" else [],  # a killed leader is no news here
        }


def _run(cluster: Cluster, folder: Path, options: DemoOptions) -> Report:
    with Screen("demo") as screen:
        began = time.monotonic()
        file = folder / "trips.jsonl"
        write_file(file, "".join(f"{line}\n" for line in trips(options.trips, options.seed)))
        lines = file.read_text().splitlines()
        screen.say(f"{len(lines):,} trips of two weeks in {file}")
        screen.say(f"three nodes ready in {cluster.start():.1f} s at {cluster.bootstrap_servers}")
        _create_topics(cluster)
        jobs = _start_spark(cluster, folder, options, screen)
        try:
            killed, first = _stream(cluster, lines, jobs, screen)
            screen.say("both jobs once more, from their checkpoints, up to the end")
            second = _both(jobs, 0.0, Control(on_batch=screen.on_batch), lambda: None)
        finally:
            jobs.spark.stop()
        return _judge(folder, lines, [first, second], killed=killed, seconds=time.monotonic() - began)


def _start_spark(cluster: Cluster, folder: Path, options: DemoOptions, screen: Screen) -> _Jobs:
    screen.say("starting Spark")
    jobs = _Jobs(None, folder, cluster.bootstrap_servers, options)
    asked = build(ArchiveOptions, jobs._common(0), {"checkpoint": str(folder), "path": str(folder)})
    log = SparkLog()
    with log.inherited():
        spark = make_session(asked, "demo")
    log.drop()
    return _Jobs(spark, folder, cluster.bootstrap_servers, options)


def _stream(cluster: Cluster, lines: list[str], jobs: _Jobs, screen: Screen) -> tuple[int, dict[str, Any]]:
    """Stream the file under running jobs, and kill a leader when both have begun; return the killed node and the
    summaries.
    """
    started = threading.Event()
    killed: list[int] = []

    def on_batch(done: BatchDone) -> None:
        started.set()
        screen.on_batch(done)

    control = Control(on_batch=on_batch)

    def meanwhile() -> None:
        sender = threading.Thread(target=_send, args=(cluster.bootstrap_servers, lines, started), daemon=True)
        sender.start()
        _wait_for(started.is_set, "a job has read something", control)
        leader = cluster.kill_leader(TOPIC)
        killed.append(leader)
        screen.say(f"killed node {leader}, which led {TOPIC}-0")
        time.sleep(STREAM_S / 3)
        cluster.restart(leader)
        screen.say(f"node {leader} is back")
        _wait_for(lambda: not sender.is_alive(), "the file is acknowledged", control)
        control.stopping.set()

    summaries = _both(jobs, EVERY_S, control, meanwhile)
    return killed[0], summaries


def _both(jobs: _Jobs, every: float, control: Control, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """Run both jobs side by side; returns their summaries, or raise the first failure."""
    done: dict[str, Any] = {}

    def one(name: str, job: Callable[[float, Control], Any]) -> None:
        try:
            done[name] = job(every, control)
        except BaseException as error:
            done[name] = error
            control.stopping.set()

    threads = [
        threading.Thread(target=one, args=("archive", jobs.archive)),
        threading.Thread(target=one, args=("aggregate", jobs.aggregate)),
    ]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
    except BaseException:
        control.stopping.set()
        raise
    finally:
        wait_until(lambda: not any(each.is_alive() for each in threads), "both jobs end")
    for result in done.values():
        if isinstance(result, BaseException):
            raise result
    return done


def _wait_for(holds: Callable[[], bool], what: str, control: Control) -> None:
    """Wait for something that a job which failed will not bring about. Raises Stalled."""
    wait_until(lambda: holds() or control.stopping.is_set(), what)


def _send(bootstrap: str, lines: list[str], started: threading.Event) -> None:
    """Send the file in pieces, each acknowledged by all before the next, most of it once the jobs have `started`."""
    producer = confluent_kafka().Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,
            "socket.timeout.ms": 5_000,
        }
    )
    size = -(-len(lines) // CHUNKS)
    for number, start in enumerate(range(0, len(lines), size)):
        if number == CHUNKS // 5:
            started.wait()
        time.sleep(STREAM_S / CHUNKS)
        for index, line in enumerate(lines[start : start + size], start):
            producer.produce(TOPIC, line.encode(), key=str(index).encode())
            producer.poll(0)
        wait_until(lambda: producer.flush(FLUSH_S) == 0, "the records are acknowledged")


def _create_topics(cluster: Cluster) -> None:
    client = confluent_kafka()
    admin = client.admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    durable = {"min.insync.replicas": "2"}
    topics = [
        client.admin.NewTopic(name, num_partitions=count, replication_factor=3, config=durable)
        for name, count in ((TOPIC, PARTITIONS), (DEAD, 1))
    ]
    limit_s = patient(REQUEST_S)
    for future in admin.create_topics(topics, operation_timeout=limit_s, request_timeout=limit_s).values():
        future.result(2 * limit_s)


def _judge(
    folder: Path, lines: list[str], runs: list[dict[str, Any]], *, killed: int, seconds: float
) -> Report:
    from raftlog.pipeline.jobs.trips_check import check_archive, check_windows

    expected, malformed = count_demand(lines)
    summaries = [run["aggregate"] for run in runs]
    late = sum(each.late for each in summaries)
    return Report(
        sent=len(lines),
        malformed=malformed,
        killed=killed,
        open=summaries[-1].open,
        late=late,
        dead=sum(each.malformed for each in summaries),
        archive=check_archive(folder / "archive", lines),
        windows=check_windows(folder / "demand", expected, summaries[-1].open + late),
        seconds=seconds,
    )
