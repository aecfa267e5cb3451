"""Spark's Kafka connector, streaming: read, write, restart from a checkpoint, and go on while a leader is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import leader_of, restore_nodes, run_checked
from tests.interop_spark.records import create, cut, fill, grow, trickling
from tests.kit.waits import until


def stream(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()


def to_parquet(frame: Any, folder: Path, checkpoint: str) -> Any:
    writer = frame.selectExpr("CAST(value AS STRING) AS value", "partition", "offset").writeStream
    return writer.format("parquet").option("path", str(folder)).option("checkpointLocation", checkpoint)


def run(writer: Any) -> Any:
    """Read what there is, and return the query."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()
    return query


def numbers(spark: Any, folder: Path) -> list[int]:
    return sorted(int(row.value) for row in spark.read.parquet(str(folder)).collect())


def test_a_restarted_query_reads_on_where_its_checkpoint_says(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, checkpoint: str
) -> None:
    """Rate-limited batches, then a second life: each record once over both."""
    create(cluster, topic)
    fill(cluster, topic, range(1_000))
    first = run(
        to_parquet(stream(spark, cluster, topic, maxOffsetsPerTrigger="400"), tmp_path / "t", checkpoint)
    )
    assert sum(each["numInputRows"] for each in first.recentProgress) == 1_000
    assert max(each["numInputRows"] for each in first.recentProgress) <= 404
    fill(cluster, topic, range(1_000, 1_100))
    second = run(to_parquet(stream(spark, cluster, topic), tmp_path / "t", checkpoint))
    assert sum(each["numInputRows"] for each in second.recentProgress) == 100
    assert numbers(spark, tmp_path / "t") == [*range(1_100)]


def test_a_topic_streams_into_another(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, checkpoint: str
) -> None:
    """The streaming sink: idempotent Java producers on the executors."""
    create(cluster, topic)
    create(cluster, f"{topic}-copy")
    fill(cluster, topic, range(500))
    frame = stream(spark, cluster, topic, includeHeaders="true").select(
        "key", "value", "headers", "partition"
    )
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    run(writer.option("topic", f"{topic}-copy").option("checkpointLocation", checkpoint))
    run(to_parquet(stream(spark, cluster, f"{topic}-copy"), tmp_path / "t", f"{checkpoint}-2"))
    assert numbers(spark, tmp_path / "t") == [*range(500)]


def test_partitions_added_meanwhile_are_read_from_their_beginning(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, checkpoint: str
) -> None:
    """The driver asks for the partitions at every trigger."""
    create(cluster, topic, partitions=1)
    fill(cluster, topic, range(10))
    query = to_parquet(stream(spark, cluster, topic), tmp_path / "t", checkpoint).start()
    try:
        query.processAllAvailable()
        grow(cluster, topic, 3)
        fill(cluster, topic, range(10, 20), partition=2)
        until(lambda: len(numbers(spark, tmp_path / "t")) == 20, "the new partition is read")
        query.processAllAvailable()  # the report of a batch comes after its files
    finally:
        query.stop()
    assert numbers(spark, tmp_path / "t") == [*range(20)]
    assert json.loads(query.lastProgress.sources[0].endOffset)[topic]["2"] == 10


def test_what_retention_took_between_two_lives_stops_the_query_or_is_skipped(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, checkpoint: str
) -> None:
    """failOnDataLoss both ways, from a checkpoint."""
    create(cluster, topic, partitions=1)
    fill(cluster, topic, range(10))
    run(to_parquet(stream(spark, cluster, topic), tmp_path / "t", checkpoint))
    fill(cluster, topic, range(10, 30))
    cut(cluster, topic, 0, 20)
    with pytest.raises(Exception, match="failOnDataLoss"):
        run(to_parquet(stream(spark, cluster, topic, failOnDataLoss="true"), tmp_path / "t", checkpoint))
    run(to_parquet(stream(spark, cluster, topic, failOnDataLoss="false"), tmp_path / "t", checkpoint))
    assert numbers(spark, tmp_path / "t") == [*range(10), *range(20, 30)]


def test_reading_and_writing_go_on_while_leaders_are_killed(
    spark: Any, topic: str, tmp_path: Path, checkpoint: str
) -> None:
    """Two leaders in turn die under a query that reads a topic and writes another: every record arrives."""
    with run_checked(3) as cluster:
        create(cluster, topic, partitions=3)
        create(cluster, f"{topic}-copy", partitions=3)
        frame = stream(spark, cluster, topic).select("key", "value", "partition")
        writer = frame.writeStream.format("kafka").option(
            "kafka.bootstrap.servers", cluster.bootstrap_servers
        )
        query = writer.option("topic", f"{topic}-copy").option("checkpointLocation", checkpoint).start()
        try:
            with trickling(cluster, topic, per_second=500) as acked:
                for name in (topic, f"{topic}-copy"):
                    until(lambda: bool(query.lastProgress), "the query moves")
                    cluster.kill(leader_of(cluster, name))
                    reached = len(acked) + 500
                    until(lambda reached=reached: len(acked) > reached, "the producer goes on")
                    restore_nodes(cluster, topic, f"{topic}-copy")
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
        run(to_parquet(stream(spark, cluster, topic), tmp_path / "in", f"{checkpoint}-in"))
        run(to_parquet(stream(spark, cluster, f"{topic}-copy"), tmp_path / "out", f"{checkpoint}-out"))
        sent, copied = numbers(spark, tmp_path / "in"), numbers(spark, tmp_path / "out")
        assert set(acked) <= set(sent)
        assert len(sent) == len(set(sent)), "the idempotent producer's records are there once"
        assert set(copied) == set(sent)
