"""Spark's Kafka connector, batch: what is written is read back, from where and to where one says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.interop_spark.records import create, cut, fill


def read(spark: Any, cluster: Cluster, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(**options).load()


def values(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select(frame.value.cast("string")).collect())


@pytest.mark.taste
def test_rows_written_come_back_with_key_value_headers_and_partition(
    spark: Any, cluster: Cluster, topic: str
) -> None:
    """Null keys and values, repeated headers, and a partition chosen by the row, all survive."""
    create(cluster, topic)
    began = time.time()
    headers = [("trace", b"\x00\xff"), ("trace", b"two")]
    rows = [(b"k", b"v", headers, 2), (None, b"", None, 0), (b"gone", None, None, 3)]
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"
    frame = spark.createDataFrame(rows, schema)
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    writer.option("topic", topic).save()
    back = read(spark, cluster, subscribe=topic, includeHeaders="true").orderBy("partition").collect()
    assert [row.partition for row in back] == [0, 2, 3]
    assert [(row.key, row.value) for row in back] == [
        (None, bytearray()),
        (bytearray(b"k"), bytearray(b"v")),
        (bytearray(b"gone"), None),
    ]
    assert [(each.key, bytes(each.value)) for each in back[1].headers] == headers
    assert [row.offset for row in back] == [0, 0, 0]
    assert all(
        began - 1 < row.timestamp.timestamp() < time.time() + 1 and row.timestampType == 0 for row in back
    )


def test_a_hundred_thousand_rows_come_back_once_each(spark: Any, cluster: Cluster, topic: str) -> None:
    """Many fetches and batches; more Spark tasks than partitions with minPartitions."""
    from pyspark.sql import functions as f

    create(cluster, topic)
    numbers = spark.range(100_000)
    frame = numbers.select(f.col("id").cast("string").alias("key"), f.col("id").cast("string").alias("value"))
    frame.write.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers).option(
        "topic", topic
    ).option("kafka.compression.type", "zstd").save()
    back = read(spark, cluster, subscribe=topic, minPartitions="8")
    assert back.rdd.getNumPartitions() >= 8
    found = back.agg(
        f.count("*"), f.countDistinct("value"), f.sum(f.col("value").cast("string").cast("long"))
    )
    assert tuple(found.first()) == (100_000, 100_000, sum(range(100_000)))


def test_offsets_bound_what_is_read(spark: Any, cluster: Cluster, topic: str) -> None:
    """startingOffsets and endingOffsets as JSON, with -2 for the earliest and -1 for the latest."""
    create(cluster, topic, partitions=2)
    fill(cluster, topic, range(0, 100), partition=0)
    fill(cluster, topic, range(100, 200), partition=1)
    starts = json.dumps({topic: {"0": 90, "1": -2}})
    ends = json.dumps({topic: {"0": -1, "1": 10}})
    frame = read(spark, cluster, subscribe=topic, startingOffsets=starts, endingOffsets=ends)
    assert values(frame) == [*range(90, 110)]


def test_a_timestamp_says_where_to_begin(spark: Any, cluster: Cluster, topic: str) -> None:
    """startingTimestamp goes to ListOffsets with a time."""
    create(cluster, topic, partitions=1)
    fill(cluster, topic, range(10))
    last = max(row.timestamp for row in read(spark, cluster, subscribe=topic).collect())
    after_ms = int(last.timestamp() * 1000) + 1
    while time.time() * 1000 <= after_ms:
        time.sleep(0.001)
    fill(cluster, topic, range(10, 20))
    assert values(read(spark, cluster, subscribe=topic, startingTimestamp=str(after_ms))) == [*range(10, 20)]


def test_topics_by_pattern_and_partitions_by_name(spark: Any, cluster: Cluster, topic: str) -> None:
    """subscribePattern lists all topics, assign takes partitions."""
    for name, numbers in ((f"{topic}-a", range(5)), (f"{topic}-b", range(5, 10))):
        create(cluster, name, partitions=2)
        fill(cluster, name, numbers, partition=1)
    assert values(read(spark, cluster, subscribePattern=f"{topic}-.*")) == [*range(10)]
    assert values(read(spark, cluster, assign=json.dumps({f"{topic}-a": [1]}))) == [*range(5)]
    assert values(read(spark, cluster, assign=json.dumps({f"{topic}-a": [0]}))) == []


def test_records_that_retention_took_are_an_error_or_left_out(
    spark: Any, cluster: Cluster, topic: str
) -> None:
    """failOnDataLoss both ways, with DeleteRecords for retention."""
    create(cluster, topic, partitions=1)
    fill(cluster, topic, range(100))
    cut(cluster, topic, 0, 40)
    starts = json.dumps({topic: {"0": 10}})
    options = {"subscribe": topic, "startingOffsets": starts}
    with pytest.raises(Exception, match="failOnDataLoss"):
        read(spark, cluster, **options, failOnDataLoss="true").collect()
    assert values(read(spark, cluster, **options, failOnDataLoss="false")) == [*range(40, 100)]


def test_an_unknown_topic_is_named(spark: Any, cluster: Cluster) -> None:
    """The broker's code reaches the user."""
    with pytest.raises(Exception, match=r"UnknownTopicOrPartition|does not host this topic"):
        read(spark, cluster, subscribe="nobody-made-this").collect()


def test_committed_records_are_all_that_read_committed_shows(
    spark: Any, cluster: Cluster, topic: str
) -> None:
    """isolation.level goes to Fetch and ListOffsets."""
    create(cluster, topic)
    fill(cluster, topic, range(100))
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    assert values(read(spark, cluster, **options)) == [*range(100)]
