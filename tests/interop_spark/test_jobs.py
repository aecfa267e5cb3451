"""The jobs of `raftlog pipeline` on Spark's own Kafka connector: each promises what it does on raftlog's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.pipeline.jobs.archive import ArchiveOptions, archive
from raftlog.pipeline.jobs.audit import AuditOptions, audit
from raftlog.pipeline.jobs.settings import build
from raftlog.testing.cluster import Cluster
from tests.pipeline.damage import check_audit_of_damage
from tests.pipeline.processes import finished, given, started
from tests.pipeline.topics import Topics
from tests.pipeline.two_clusters import check_mirror_across_a_crash


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster.bootstrap_servers)


def test_an_archive_has_one_copy_of_each_record(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Over two runs from one checkpoint."""
    ds = pytest.importorskip("pyarrow.dataset")
    topics.make(topic, 2)
    topics.fill(topic, [f"0-{n}".encode() for n in range(300)])
    options = given(
        topics, topic, tmp_path, path=str(tmp_path / "archive"), connector="kafka", max_records=100
    )
    assert archive(spark, build(ArchiveOptions, options)).rows == 300
    topics.fill(topic, [f"1-{n}".encode() for n in range(50)], partition=1)
    assert archive(spark, build(ArchiveOptions, options)).rows == 50
    table = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table()
    values = sorted(value.decode() for value in table["value"].to_pylist())
    assert values == sorted([f"0-{n}" for n in range(300)] + [f"1-{n}" for n in range(50)])


def test_windows_go_to_a_topic_and_malformed_records_to_another(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """As a process of its own, in two runs; its books balance."""
    for name in (topic, f"{topic}-windows", f"{topic}-dead"):
        topics.make(name, 2)
    options = given(
        topics,
        topic,
        tmp_path,
        connector="kafka",
        master="local[2]",
        schema="zone INT, at TIMESTAMP",
        event_time="at",
        window="1 hour",
        watermark="0 seconds",
        by=["zone"],
        to_topic=f"{topic}-windows",
        dead_letter=f"{topic}-dead",
    )
    told: list[dict[str, Any]] = []
    for hour in (1, 3):
        trips = [json.dumps({"zone": n % 3, "at": f"2026-01-01T0{hour}:{n:02}:00Z"}) for n in range(60)]
        topics.fill(topic, [*map(str.encode, trips), b"nope"])
        told.append(json.loads(finished(started("aggregate", options, "--json"))))
    assert [(each["records"], each["malformed"], each["late"]) for each in told] == [(61, 1, 0), (61, 1, 0)]
    assert [(each["counted"], each["open"]) for each in told] == [(0, 60), (60, 60)]
    windows = [json.loads(row.value or b"") for row in topics.read(f"{topic}-windows", 2)]
    assert sorted((each["zone"], each["records"]) for each in windows) == [(0, 20), (1, 20), (2, 20)]
    letters = topics.read(f"{topic}-dead", 2)
    assert [row.value for row in letters] == [b"nope", b"nope"]
    sources = {dict(row.headers or ())["raftlog.error.source"] for row in letters}
    assert sources == {f"{topic}/0/60".encode(), f"{topic}/0/121".encode()}


def test_a_mirror_that_is_killed_amid_a_batch_loses_and_doubles_nothing(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Read by Spark's connector, written to another cluster of three nodes by the job itself."""
    with Cluster(3, settings={"default.replication.factor": "3"}) as target:
        there = Topics(target.bootstrap_servers)
        check_mirror_across_a_crash(topics, there, topic, tmp_path, connector="kafka")


def test_an_audit_is_sound_until_something_is_wrong(spark: Any, topics: Topics, topic: str) -> None:
    """Doubles and disorder by a header, keys that stray: reported as by raftlog's own source."""
    topics.make(topic, 2)
    for n in range(40):
        topics.fill(topic, [b"{}"], partition=n % 2, key=b"%d" % (n % 4), headers=[("n", b"%d" % n)])
    asked = {"topics": [topic], "bootstrap": topics.servers, "connector": "kafka"}
    options = build(AuditOptions, asked, {"identity": "header:n", "order": "header:n"})
    sound = audit(spark, options)
    assert sound.sound, sound.as_text()
    assert [(each.records, each.end) for each in sound.partitions] == [(20, 20), (20, 20)]
    topics.fill(topic, [b"{}"], partition=1, key=b"0", headers=[("n", b"8")])
    topics.fill(topic, [b"{}"], partition=0, key=b"0", headers=[("n", b"8")])
    found = audit(spark, options).counts
    assert {name: count for name, count in found.items() if count} == {
        "disordered": 1,
        "doubled": 2,
        "straying": 1,
    }


def test_an_audit_finds_a_damaged_batch_and_judges_the_other_partitions(spark: Any) -> None:
    """The Java client checks CRCs too, and says it in other words."""
    check_audit_of_damage(spark, connector="kafka")
