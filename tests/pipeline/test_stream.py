"""Streams: they resume, keep to their limits, and report every lost record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raftlog.pipeline.offsets import DataLoss
from raftlog.testing.cluster import Cluster
from tests.kit.waits import until
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.1

pytestmark = pytest.mark.spark


class Stream:
    """A query from a topic into Parquet files, started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, **options: str) -> None:
        self.spark = spark
        self.folder = folder
        self.options = {
            "kafka.bootstrap.servers": topics.servers,
            "startingOffsets": "earliest",
            **options,
        }

    def start(self, **options: str) -> StreamingQuery:
        rows = self.spark.readStream.format("raftlog").options(**{**self.options, **options}).load()
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        return (
            writer.option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Read what is there, and return Spark's report of each trigger that read something."""
        query = self.start(**options)
        until(lambda: query.awaitTermination(LOOK_S), "the query ends", seen=lambda: query.lastProgress)
        return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]

    def offsets(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.folder / "rows"))
        return sorted((row["partition"], row["offset"]) for row in rows.collect())


@pytest.mark.taste
def test_a_stream_takes_what_is_there_in_portions_and_goes_on_where_it_was(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
):
    """AvailableNow with maxOffsetsPerTrigger; a restart reads from exactly the checkpoint's offsets."""
    topics.make(topic, 2)
    topics.fill(topic, [b"x"] * 30, partition=0)
    topics.fill(topic, [b"x"] * 10, partition=1)
    stream = Stream(spark, topics, tmp_path, subscribe=topic, maxOffsetsPerTrigger="20")

    first = stream.run()
    assert [each["numInputRows"] for each in first] == [20, 20]
    assert first[0]["sources"][0]["endOffset"] == {topic: {"0": 15, "1": 5}}

    topics.fill(topic, [b"y"] * 5, partition=1)
    second = stream.run()
    assert second[0]["sources"][0]["startOffset"] == {topic: {"0": 30, "1": 10}}
    assert sum(each["numInputRows"] for each in second) == 5
    assert stream.offsets() == [*((0, n) for n in range(30)), *((1, n) for n in range(15))]
    assert stream.run() == []


def test_new_partitions_are_read_from_their_first_record(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
):
    """A topic that grows meanwhile loses no record."""
    topics.make(topic)
    topics.fill(topic, [b"x"] * 3)
    stream = Stream(spark, topics, tmp_path, subscribe=topic, maxOffsetsPerTrigger="100")
    stream.run()
    topics.grow(topic, 3)
    topics.fill(topic, [b"x"] * 2, partition=2)
    stream.run()
    assert stream.offsets() == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


def test_a_stream_that_fell_behind_retention_fails_or_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
):
    """failOnDataLoss both ways; what is still there is read once."""
    topics.make(topic)
    topics.fill(topic, [b"x"] * 5)
    stream = Stream(spark, topics, tmp_path, subscribe=topic)
    stream.run()
    topics.fill(topic, [b"x"] * 5)
    topics.forget(topic, 0, 8)
    with pytest.raises(Exception, match=rf"{topic}-0: offset 5 of {topic}-0 \[5, 10\) is not in the log"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.offsets() == [*((0, n) for n in range(5)), (0, 8), (0, 9)]


def test_a_topic_that_was_made_anew_is_another_log(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
):
    """Its end is before our offset: reported, or read on from there."""
    topics.make(topic)
    topics.fill(topic, [b"x"] * 5)
    stream = Stream(spark, topics, tmp_path, subscribe=topic)
    stream.run()
    topics.delete(topic)
    with pytest.raises(Exception, match=rf"{topic}-0 \(read up to 5\) is gone"):
        stream.run()
    topics.make(topic)
    topics.fill(topic, [b"x"] * 2)
    with pytest.raises(Exception, match=f"{topic}-0: the log ends at offset 2, before 5"):
        stream.run()


def test_a_partition_that_went_backwards_is_left_out_only_where_loss_is_accepted(
    java: None, caplog: pytest.LogCaptureFixture
):
    """Spark hands back the offsets of a batch that it planned before; the loss is logged, the others are read."""
    from raftlog.pipeline.options import read_options
    from raftlog.pipeline.stream import PlainStreamReader

    start, end = {"t": {"0": 50, "1": 0}}, {"t": {"0": 10, "1": 5}}
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(DataLoss, match="t-0: the log ends at offset 10, before 50"):
        PlainStreamReader(read_options(options, "stream")).partitions(start, end)
    lenient = PlainStreamReader(read_options({**options, "failOnDataLoss": "false"}, "stream"))
    assert [str(each.value) for each in lenient.partitions(start, end)] == ["t-1 [0, 5)"]
    assert "t-0: the log ends at offset 10, before 50" in caplog.text


def test_the_checkpoint_of_another_query_is_refused(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
):
    """The message names the topics of the checkpoint, the query's topics, and the way out."""
    for name in (topic, f"{topic}-other"):
        topics.make(name)
        topics.fill(name, [b"x"])
    stream = Stream(spark, topics, tmp_path, subscribe=topic)
    stream.run()
    with pytest.raises(Exception, match=f"offsets of {topic}, which this query does not read") as found:
        stream.run(subscribe=f"{topic}-other")
    assert "new checkpointLocation" in str(found.value)
    assert stream.offsets() == [(0, 0)]


def test_a_stream_waits_for_enough_rows(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path):
    """minOffsetsPerTrigger holds small batches back, and maxTriggerDelay lets them go."""
    topics.make(topic)
    options = {"subscribe": topic, "minOffsetsPerTrigger": "10", "kafka.bootstrap.servers": topics.servers}
    topics.fill(topic, [b"x"] * 5)
    rows = spark.readStream.format("raftlog").options(startingOffsets="earliest", **options).load()
    writer = rows.writeStream.format("memory").queryName("waited").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        until_rows(query, 5)
        topics.fill(topic, [b"x"] * 6)
        topics.fill(topic, [b"x"] * 6)
        until_rows(query, 17)
        sizes = [each.numInputRows for each in query.recentProgress if each.numInputRows]
        assert sizes == [5, 12]
    finally:
        query.stop()


def until_rows(query: StreamingQuery, count: int) -> None:
    """Wait until a query has taken so many rows, or fail with what stopped it."""

    def taken() -> bool:
        if query.exception() is not None:
            raise AssertionError(query.exception())
        query.awaitTermination(LOOK_S)
        return sum(each.numInputRows for each in query.recentProgress) >= count

    until(taken, f"{count} rows are taken", seen=lambda: query.lastProgress)


def test_nothing_is_lost_when_the_leader_is_killed_under_a_stream(
    spark: SparkSession, topics: Topics, cluster: Cluster, topic: str, tmp_path: Path
):
    """Topic to topic, while the leader of both dies: every record arrives (at least once)."""
    for name in (topic, f"{topic}-copy"):
        topics.make(name)
    topics.fill(topic, [b"%d" % n for n in range(2_000)])
    servers = {"kafka.bootstrap.servers": topics.servers}
    rows = spark.readStream.format("raftlog").options(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="500", **servers
    )
    writer = rows.load().select("key", "value").writeStream.format("raftlog")
    query = writer.options(
        topic=f"{topic}-copy", checkpointLocation=str(tmp_path / "checkpoint"), **servers
    ).start()
    victim = cluster.leader(topic)
    try:
        until_rows(query, 1_000)
        cluster.kill(victim)
        topics.fill(topic, [b"%d" % n for n in range(2_000, 4_000)])
        until_rows(query, 4_000)
        query.processAllAvailable()
    finally:
        query.stop()
        cluster.restart(victim)
    copied = [int(row.value or b"-1") for row in topics.read(f"{topic}-copy")]
    assert sorted(set(copied)) == list(range(4_000))
