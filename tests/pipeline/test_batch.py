"""Batches: topics as tables, read and written by Spark as any format."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from raftlog.pipeline.offsets import DataLoss, Range, TopicPartition
from raftlog.pipeline.options import read_options
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# as in Spark's rows: naive, in the session's zone
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000)  # noqa: DTZ001


def table(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("raftlog").option("kafka.bootstrap.servers", topics.servers)
    return reader.options(**{"subscribe": topic, **options}).load()


def write(rows: DataFrame, topics: Topics, **options: str) -> None:
    writer = rows.write.format("raftlog").option("kafka.bootstrap.servers", topics.servers)
    writer.options(**options).mode("append").save()


def offsets(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows.select("partition", "offset").collect())


@pytest.mark.taste
def test_what_spark_writes_spark_and_stock_clients_read(spark: SparkSession, topics: Topics, topic: str):
    """Keys, values, headers, nulls and times go through unchanged, to the partition that is asked for."""
    topics.make(topic, 2)
    rows = [
        (b"k", b"v", 0, [("h", b"1"), ("h", None)], MOMENT),
        (None, b"", 1, None, MOMENT + timedelta(hours=1)),
        (b"gone", None, 1, [], MOMENT + timedelta(days=1)),
    ]
    headers = "headers array<struct<key:string,value:binary>>"
    schema = f"key binary, value binary, partition int, {headers}, timestamp timestamp"
    write(spark.createDataFrame(rows, schema).coalesce(1), topics, topic=topic, includeTimestamp="true")

    times = [int(each[4].replace(tzinfo=UTC).timestamp() * 1_000) for each in rows]
    assert topics.read(topic, 2) == [
        (0, 0, b"k", b"v", [("h", b"1"), ("h", None)], times[0]),
        (1, 0, None, b"", None, times[1]),
        (1, 1, b"gone", None, None, times[2]),
    ]
    read = table(spark, topics, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(r["topic"], r["partition"], r["offset"]) for r in read] == [
        (topic, 0, 0),
        (topic, 1, 0),
        (topic, 1, 1),
    ]
    assert [(r["key"], r["value"]) for r in read] == [(b"k", b"v"), (None, b""), (b"gone", None)]
    assert [r["headers"] and [tuple(h) for h in r["headers"]] for r in read] == [
        [("h", b"1"), ("h", None)],
        None,
        None,
    ]
    assert [r["timestamp"] for r in read] == [each[4] for each in rows]
    assert {r["timestampType"] for r in read} == {0}


def test_strings_are_written_as_utf8_and_a_column_names_the_topic(
    spark: SparkSession, topics: Topics, topic: str
):
    """Column names have no case, as everywhere in Spark."""
    topics.make(topic)
    write(spark.createDataFrame([("ä", topic)], "Value string, TOPIC string"), topics)
    assert [row.value for row in topics.read(topic)] == ["ä".encode()]


@pytest.mark.parametrize("client", [{}, {"kafka.check.crcs": "true"}])
def test_a_schema_chooses_columns(spark: SparkSession, topics: Topics, topic: str, client: dict[str, str]):
    """Any of them, in any order; both from the leader and by librdkafka. Other columns are refused."""
    topics.make(topic)
    topics.fill(topic, [b"a", b"b"], key=b"k")
    servers = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic, **client}
    reader = spark.read.format("raftlog").options(**servers)
    rows = reader.schema("offset BIGINT, value BINARY").load().orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, b"a"), (1, b"b")]
    counted = reader.schema("partition INT").load()
    assert [tuple(row) for row in counted.groupBy("partition").count().collect()] == [(0, 2)]
    for wrong in ("offset INT", "colour STRING", "headers STRING"):
        with pytest.raises(Exception, match="schema: "):
            reader.schema(wrong).load().collect()


def test_sql_makes_a_view_of_a_topic(spark: SparkSession, topics: Topics, topic: str):
    """Without registration, and with more tasks than partitions if asked for."""
    topics.make(topic)
    topics.fill(topic, [b"%d" % n for n in range(100)])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW numbers USING raftlog OPTIONS"
        f" (`raftlog.bootstrap.servers` '{topics.servers}', subscribe '{topic}', minPartitions '7')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, sum(int(string(value))) AS total FROM numbers").collect()
    assert (row["n"], row["total"]) == (100, 4950)
    assert spark.table("numbers").rdd.getNumPartitions() == 7


def test_a_batch_reads_exactly_the_offsets_that_are_asked_for(
    spark: SparkSession, topics: Topics, topic: str
):
    """[start, end) of each partition, -2 and -1 included."""
    topics.make(topic, 2)
    for partition in (0, 1):
        topics.fill(topic, [b"x"] * 10, partition=partition)
    start, end = json.dumps({topic: {"0": 4, "1": -2}}), json.dumps({topic: {"0": -1, "1": 3}})
    found = offsets(table(spark, topics, topic, startingOffsets=start, endingOffsets=end))
    assert found == [*((0, n) for n in range(4, 10)), *((1, n) for n in range(3))]


def test_a_start_that_turns_out_beyond_the_end_fails_the_batch(
    spark: SparkSession, topics: Topics, topic: str
):
    """Only the log can compare a time with an offset. The other partition's rows alone would look like success."""
    topics.make(topic, 2)
    for partition in (0, 1):
        for number in range(5):
            topics.fill(topic, [b"x"], partition=partition, timestamp_ms=1_000 * (number + 1))
    start, end = json.dumps({topic: {"0": 4000, "1": 1000}}), json.dumps({topic: {"0": 2, "1": 5}})
    for fail in ("true", "false"):
        wrong = table(
            spark,
            topics,
            topic,
            startingOffsetsByTimestamp=start,
            endingOffsets=end,
            failOnDataLoss=fail,
        )
        with pytest.raises(Exception, match=rf"{topic}-0 \[3, 2\): the starting offset is greater"):
            wrong.collect()


def test_times_choose_where_a_batch_begins_and_ends(spark: SparkSession, topics: Topics, topic: str):
    """The first record not before the time; a batch ends at the end where there is none, and begins there if it may."""
    topics.make(topic)
    for number in range(5):
        topics.fill(topic, [b"x"], timestamp_ms=1_000 * (number + 1))
    assert offsets(table(spark, topics, topic, startingTimestamp="2500", endingTimestamp="4000")) == [(0, 2)]
    own = json.dumps({topic: {"0": 3000}})
    assert offsets(table(spark, topics, topic, startingOffsetsByTimestamp=own)) == [(0, 2), (0, 3), (0, 4)]
    with pytest.raises(Exception, match=f"startingTimestamp: {topic}-0 has no records since 9000"):
        table(spark, topics, topic, startingTimestamp="9000").collect()
    late = table(spark, topics, topic, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest")
    assert offsets(late) == []


def test_a_pattern_and_an_assignment_choose_topics_and_partitions(
    spark: SparkSession, topics: Topics, topic: str
):
    """Whole names; single partitions."""
    for name in (f"{topic}-a", f"{topic}-b", f"x-{topic}-a"):
        topics.make(name, 2)
        topics.fill(name, [b"x"], partition=1)
    servers = {"kafka.bootstrap.servers": topics.servers}
    pattern = spark.read.format("raftlog").options(subscribePattern=f"{topic}-.*", **servers).load()
    assert {row["topic"] for row in pattern.collect()} == {f"{topic}-a", f"{topic}-b"}
    assigned = spark.read.format("raftlog").options(assign=json.dumps({f"{topic}-a": [0]}), **servers).load()
    assert assigned.collect() == []


def test_records_that_are_gone_fail_a_batch_or_are_passed_over(
    spark: SparkSession, topics: Topics, topic: str
):
    """failOnDataLoss both ways, with topic, partition and offsets named."""
    topics.make(topic)
    topics.fill(topic, [b"x"] * 10)
    topics.forget(topic, 0, 6)
    start = json.dumps({topic: {"0": 2}})
    with pytest.raises(Exception, match=rf"{topic}-0: offset 2 is not in the log, which has \[6, 10\)"):
        table(spark, topics, topic, startingOffsets=start).collect()
    with pytest.raises(Exception, match=rf"{topic}-0: offset 11 is not in the log, which has \[6, 10\)"):
        table(spark, topics, topic, endingOffsets=json.dumps({topic: {"0": 11}})).collect()
    found = table(spark, topics, topic, startingOffsets=start, failOnDataLoss="false")
    assert offsets(found) == [(0, n) for n in range(6, 10)]


def test_the_task_reports_records_that_go_between_planning_and_reading(
    java: None, topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
):
    """A plan may be old when its tasks run."""
    from raftlog.pipeline.fetch import read_range

    topics.make(topic)
    topics.fill(topic, [b"x"] * 10)
    topics.forget(topic, 0, 4)
    planned = Range(TopicPartition(topic, 0), 0, 10)
    options = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic}
    with pytest.raises(DataLoss, match=rf"{topic}-0: offset 0 of {topic}-0 \[0, 10\) is not in the log"):
        list(read_range(read_options(options), planned))
    (batch,) = read_range(read_options({**options, "failOnDataLoss": "false"}), planned)
    assert batch.column("offset").to_pylist() == list(range(4, 10))
    assert "going on" in caplog.text


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"subscribe": "never-made"}, "topic never-made does not exist"),
        ({"subscribe": "a", "startingOffsets": "x"}, "startingOffsets: 'x' is none of"),
        ({"subscribe": "a", "kafka.no.such.thing": "1"}, "No such configuration property"),
    ],
)
def test_bad_input_is_reported_by_name(
    spark: SparkSession, topics: Topics, options: dict[str, str], what: str
):
    """Before anything is read."""
    with pytest.raises(Exception, match=what):
        table(spark, topics, **{"topic": options.pop("subscribe"), **options}).collect()


def test_columns_that_do_not_fit_are_reported_together(spark: SparkSession, topics: Topics):
    """Before anything is written."""
    rows = spark.createDataFrame([(1, 2)], "key int, partition bigint")
    with pytest.raises(Exception, match=r"column key: .*string") as found:
        write(rows, topics)
    for what in ("column partition: is bigint", "column value: is missing", "topic: give the option topic"):
        assert what in str(found.value)


def test_rows_that_no_topic_takes_fail_the_write(spark: SparkSession, topics: Topics, topic: str):
    """A topic that is not there, a partition that is not there, a null topic: the write fails and says so."""
    topics.make(topic)
    rows = spark.createDataFrame([("x", None, 7)], "value string, topic string, partition int")
    with pytest.raises(Exception, match="column topic: "):
        write(rows.drop("partition"), topics)
    with pytest.raises(Exception, match=rf"1 rows were refused, first {topic}-7: .*[Uu]nknown partition"):
        write(rows.drop("topic"), topics, topic=topic)
    with pytest.raises(Exception, match=r"mode: .*append"):
        rows.write.format("raftlog").options(topic=topic, **{"kafka.bootstrap.servers": topics.servers}).mode(
            "overwrite"
        ).save()
    assert topics.read(topic) == []
