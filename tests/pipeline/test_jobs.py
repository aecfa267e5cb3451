"""Jobs on a real Spark and a real cluster: killed drivers and executors, replayed batches, what each job promises."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from raftlog.pipeline.jobs.aggregate import AggregateOptions, aggregate
from raftlog.pipeline.jobs.archive import ArchiveOptions, archive
from raftlog.pipeline.jobs.audit import AuditOptions, audit
from raftlog.pipeline.jobs.control import BatchDone, Control, JobError
from raftlog.pipeline.jobs.mirror import MirrorOptions, mirror
from raftlog.pipeline.jobs.offset_map import Run, translate
from raftlog.pipeline.jobs.settings import build
from tests.kit import waits
from tests.pipeline.damage import check_audit_of_damage
from tests.pipeline.processes import finished, given, started, wait_for
from tests.pipeline.test_standalone import master  # noqa: F401 - a fixture
from tests.pipeline.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 4_000


def archived(folder: Path) -> list[tuple[int, int, str]]:
    """Return partition, offset and value of all records of an archive, as any reader of Parquet sees them."""
    import pyarrow.dataset as ds

    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    columns = (table[name].to_pylist() for name in ("partition", "offset", "value"))
    return sorted((p, o, bytes(v).decode()) for p, o, v in zip(*columns, strict=True))


def fill(
    topics: Topics, topic: str, records: int = RECORDS, partitions: int = 2
) -> list[tuple[int, int, str]]:
    """Make and fill a topic; returns what an archive of it must hold."""
    topics.make(topic, partitions)
    each = records // partitions
    for partition in range(partitions):
        topics.fill(topic, [f"{partition}-{n}".encode() for n in range(each)], partition=partition)
    return [(p, n, f"{p}-{n}") for p in range(partitions) for n in range(each)]


def forget_last_batch(checkpoint: Path, query: str = "query") -> None:
    """Take back Spark's note that the last batch was done, as a crash just before it would have."""
    commits = checkpoint / query / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_an_archive_has_one_copy_of_each_record_after_its_driver_was_killed(
    java: None, topics: Topics, topic: str, tmp_path: Path
):
    """SIGKILL between two batches or within a batch; then a run to the end."""
    held = fill(topics, topic)
    options = given(
        topics, topic, tmp_path, path=str(tmp_path / "archive"), max_records=400, master="local[2]"
    )
    process = started("archive", options)
    wait_for(lambda: len([*(tmp_path / "archive").rglob("*-*.parquet")]) > 3, process)
    os.kill(process.pid, signal.SIGKILL)
    waits.finished(process)
    seen = archived(tmp_path / "archive")
    assert len(seen) == len(set(seen)) < len(held)
    finished(started("archive", options))
    assert archived(tmp_path / "archive") == held


def test_an_archive_has_one_copy_of_each_record_after_an_executor_was_killed(
    master: str,  # noqa: F811
    topics: Topics,
    topic: str,
    tmp_path: Path,
):
    """On a standalone master with two workers; the executor's tasks are run again elsewhere."""
    held = fill(topics, topic)
    options = given(topics, topic, tmp_path, path=str(tmp_path / "archive"), max_records=200, master=master)
    process = started("archive", options | {"conf": "spark.executor.memory=512m"})
    wait_for(lambda: [*(tmp_path / "archive").rglob("*-*.parquet")], process)
    executors = [each for each in psutil.process_iter() if _is_executor(each, tmp_path)]
    assert executors, "no executor of this test's workers was found"
    os.kill(executors[0].pid, signal.SIGKILL)
    finished(process)
    assert archived(tmp_path / "archive") == held


def _is_executor(process: psutil.Process, folder: Path) -> bool:
    """Whether a process is an executor that works in a folder of this test."""
    try:
        command = " ".join(process.cmdline())
        return "CoarseGrainedExecutorBackend" in command and process.cwd().startswith(str(folder))
    except psutil.Error:
        return False


def test_a_replayed_batch_is_archived_once(spark: Any, topics: Topics, topic: str, tmp_path: Path):
    """The crash between the files and Spark's note; and headers, keys and dates are kept."""
    held = fill(topics, topic, 300)
    options = build(
        ArchiveOptions, given(topics, topic, tmp_path, path=str(tmp_path / "archive"), max_records=100)
    )
    first = archive(spark, options)
    assert (first.rows, archived(tmp_path / "archive")) == (300, held)
    forget_last_batch(tmp_path / "checkpoint")
    assert archive(spark, options).rows == 100
    assert archived(tmp_path / "archive") == held
    seen = spark.read.parquet(str(tmp_path / "archive"))
    assert seen.count() == 300
    assert {*seen.columns} >= {"key", "value", "headers", "partition", "offset", "timestamp", "topic", "date"}


def test_a_checkpoint_of_another_query_is_refused_before_anything_is_written(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """Spark itself would go on from whatever offsets are in it."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    options = build(ArchiveOptions, given(topics, topic, tmp_path, path=str(tmp_path / "archive")))
    with pytest.raises(JobError, match="not a raftlog job's"):
        archive(spark, options)
    assert not (tmp_path / "archive").exists()


def test_a_stop_waits_for_the_batch_and_a_restart_goes_on(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """A signal during the first batch: that batch is whole, the next is not begun."""
    held = fill(topics, topic, 600)
    options = build(
        ArchiveOptions, given(topics, topic, tmp_path, path=str(tmp_path / "archive"), max_records=200)
    )
    control = Control()

    def on_batch(_done: BatchDone) -> None:
        control.stopping.set()

    control.on_batch = on_batch
    first = archive(spark, options, control)
    assert (first.batches, first.stopped, len(archived(tmp_path / "archive"))) == (1, True, first.rows)
    second = archive(spark, options)
    assert (first.rows + second.rows, second.stopped) == (600, False)
    assert archived(tmp_path / "archive") == held


def test_sigterm_ends_a_running_job_with_code_0_and_sigint_with_130(
    java: None, topics: Topics, topic: str, tmp_path: Path
):
    """A job that would run for ever, stopped while it is idle."""
    held = fill(topics, topic, 200)
    options = given(topics, topic, tmp_path, path=str(tmp_path / "archive"), every=0.5, master="local[2]")
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        process = started("archive", options)
        assert process.stderr is not None
        for line in process.stderr:
            if "batch" in line:
                break
        process.send_signal(number)
        _output, errors = waits.finished(process)
        assert process.returncode == code, errors
        topics.fill(topic, [f"0-{n}".encode() for n in range(100, 110)])
    assert archived(tmp_path / "archive")[:100] == held[:100]


# --- aggregate


def trip(at: str, zone: Any = 1, fare: float = 2.0) -> bytes:
    return json.dumps({"zone": zone, "fare": fare, "at": f"2026-01-01T{at}Z"}).encode()


SHAPE: dict[str, Any] = {
    "schema": "zone INT, fare DOUBLE, at TIMESTAMP",
    "event_time": "at",
    "window": "1 hour",
    "watermark": "1 hour",
    "by": ["zone"],
    "measures": ["sum(fare) AS fares"],
}


def test_windows_late_and_malformed_records_add_up(spark: Any, topics: Topics, topic: str, tmp_path: Path):
    """Two runs: windows in Parquet once each, late records counted, malformed records with their reason in a topic."""
    import pyarrow.dataset as ds

    topics.make(topic)
    topics.make(f"{topic}-dead")
    options = build(
        AggregateOptions,
        given(topics, topic, tmp_path, to_path=str(tmp_path / "table"), dead_letter=f"{topic}-dead", **SHAPE),
    )
    malformed = [b"nope", trip("01:00:00", zone="x"), b'{"zone": 1}', None]
    topics.fill(
        topic, [trip("00:10:00"), trip("00:20:00"), trip("01:10:00", 2), *malformed, trip("05:00:00")]
    )
    first = aggregate(spark, options)
    assert (first.records, first.windows, first.counted, first.open) == (8, 2, 3, 1)
    assert (first.malformed, first.late) == (4, 0)
    topics.fill(topic, [trip("00:30:00"), trip("00:40:00"), trip("05:10:00"), trip("09:00:00", 3)])
    second = aggregate(spark, options)
    assert (second.records, second.counted, second.open, second.late) == (4, 2, 1, 2)
    rows = ds.dataset(tmp_path / "table", format="parquet").to_table().to_pylist()
    told = sorted((row["window_start"].hour, row["zone"], row["records"], row["fares"]) for row in rows)
    assert told == [(0, 1, 2, 4.0), (1, 2, 1, 2.0), (5, 1, 2, 4.0)]
    letters = topics.read(f"{topic}-dead")
    reasons = [dict(each.headers or ())["raftlog.error.reason"] for each in letters]
    assert reasons == [b"not a JSON object", b"zone is not int", b"no event time (at)", b"no value"]
    assert dict(letters[0].headers or ())["raftlog.error.source"] == f"{topic}/0/3".encode()
    assert [each.value for each in letters] == malformed


def test_without_a_dead_letter_topic_a_malformed_record_ends_the_job(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """Named with its place and the reason; no record of its batch is written."""
    topics.make(topic)
    topics.make(f"{topic}-windows")
    topics.fill(topic, [trip("00:10:00"), b"nope", trip("09:00:00")])
    options = build(AggregateOptions, given(topics, topic, tmp_path, to_topic=f"{topic}-windows", **SHAPE))
    with pytest.raises(JobError, match=rf"malformed record {topic}/0/1: not a JSON object"):
        aggregate(spark, options)
    assert topics.read(f"{topic}-windows") == []


def test_a_restart_in_a_process_of_its_own_knows_what_was_in_open_windows(
    java: None, topics: Topics, topic: str, tmp_path: Path
):
    """A Spark that has run no query yet must read the state that another left."""
    topics.make(topic)
    options = given(topics, topic, tmp_path, to_path=str(tmp_path / "table"), master="local[2]", **SHAPE)
    topics.fill(topic, [trip("00:10:00"), trip("00:20:00")])
    first = json.loads(finished(started("aggregate", options, "--json")))
    topics.fill(topic, [trip("09:00:00")])
    second = json.loads(finished(started("aggregate", options, "--json")))
    assert [(each["records"], each["counted"], each["open"]) for each in (first, second)] == [
        (2, 0, 2),
        (1, 2, 1),
    ]
    assert (first["late"], second["late"]) == (0, 0)


# --- mirror and audit


def test_a_replayed_batch_is_mirrored_once_and_offsets_are_mapped(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
):
    """Partitions, keys, headers and times are kept; the target's offsets begin elsewhere."""
    topics.make(topic, 2)
    topics.make(f"copy.{topic}", 2)
    topics.fill(f"copy.{topic}", [b"not of the mirror"] * 3)
    for partition in range(2):
        topics.fill(
            topic,
            [f"{partition}-{n}".encode() for n in range(50)],
            partition=partition,
            timestamp_ms=1_700_000_000_123,
            headers=[("h", b"x"), ("raftlog.mirror.source", b"forged/0/1")],
        )
    options = build(
        MirrorOptions,
        given(
            topics,
            topic,
            tmp_path,
            to=topics.servers,
            prefix="copy.",
            map_topic=f"{topic}-map",
            max_records=40,
        ),
    )
    assert mirror(spark, options).records == 100
    forget_last_batch(tmp_path / "checkpoint")
    again = mirror(spark, options)
    assert again.records == 0
    assert again.skipped > 0
    copies = [row for row in topics.read(f"copy.{topic}", 2) if row.value != b"not of the mirror"]
    assert [(row.partition, row.value) for row in copies] == [
        (p, f"{p}-{n}".encode()) for p in range(2) for n in range(50)
    ]
    source = f"{topics.cluster_id}/{topic}/0/0".encode()
    assert copies[0].headers == [("h", b"x"), ("raftlog.mirror.source", source)]
    assert {row.timestamp_ms for row in copies} == {1_700_000_000_123}
    known = [Run(**json.loads(row.value or b"")) for row in topics.read(f"{topic}-map")]
    assert [translate(known, topic, 0, offset=n + 1) for n in range(50)] == [n + 4 for n in range(50)]
    assert [translate(known, topic, 1, offset=n + 1) for n in range(50)] == [n + 1 for n in range(50)]


def test_an_audit_is_sound_until_something_is_wrong(spark: Any, topics: Topics, topic: str, tmp_path: Path):
    """Order by key, doubles by a header, missing records by the offsets; each is named where it is."""
    topics.make(topic, 2)
    for n in range(100):
        topics.fill(
            topic, [b"{}"], partition=n % 2, key=str(n % 4).encode(), headers=[("n", str(n).encode())]
        )
    options = build(
        AuditOptions,
        {"topics": [topic], "bootstrap": topics.servers, "identity": "header:n", "order": "header:n"},
    )
    sound = audit(spark, options)
    assert sound.sound, sound.as_text()
    assert [(each.records, each.end) for each in sound.partitions] == [(50, 50), (50, 50)]
    topics.fill(topic, [b"{}"], partition=0, key=b"0", headers=[("n", b"8")])
    topics.fill(topic, [b"{}"], partition=1, key=b"0", headers=[("n", b"200")])
    wrong = audit(spark, options)
    assert wrong.counts == {
        "missing": 0,
        "repeated": 0,
        "disordered": 1,
        "unnumbered": 0,
        "doubled": 1,
        "nameless": 0,
        "straying": 1,
        "corrupt": 0,
    }
    assert f"{topic}-0: offset 50: 8 after 96 of key b'0'" in wrong.examples
    topics.forget(topic, 0, 20)
    assert audit(spark, options).partitions[0].missing == 0


def test_an_audit_finds_a_damaged_batch_and_judges_the_other_partitions(spark: Any):
    """A bit flipped in the only replica's segment: by the checksum alone, for the value is a value as before."""
    check_audit_of_damage(spark, connector="raftlog")


def test_an_audit_is_not_sound_when_records_have_no_identity(spark: Any, topics: Topics, topic: str):
    """With a misspelt header's name it would find no doubles; a record without a value may have none."""
    topics.make(topic)
    topics.fill(topic, [b"a", None, None], headers=[("n", b"1")])
    asked = {"topics": [topic], "bootstrap": topics.servers}
    misspelt = audit(spark, build(AuditOptions, asked, {"identity": "header:m"}))
    assert (misspelt.counts["nameless"], misspelt.counts["doubled"], misspelt.sound) == (3, 0, False)
    assert audit(spark, build(AuditOptions, asked, {"identity": "value"})).sound


def test_an_audit_of_no_topic_at_all_is_refused(spark: Any, topics: Topics):
    """It would have found no fault."""
    with pytest.raises(JobError, match="topic_pattern: no topic matches none-"):
        audit(spark, build(AuditOptions, {"topic_pattern": "none-.*", "bootstrap": topics.servers}))


def test_the_verdict_of_an_audit_is_its_exit_code(java: None, topics: Topics, topic: str, tmp_path: Path):
    """8 for wrong, with the verdict as JSON; 1 for a topic that is not there."""
    topics.make(topic)
    topics.fill(topic, [b"a", b"a"])
    process = started("audit", {"topics": [topic], "bootstrap": topics.servers, "identity": "value"})
    output, errors = waits.finished(process)
    assert process.returncode == 8, errors
    assert "1 doubled" in output
