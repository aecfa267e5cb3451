"""Claims about `format("raftlog")` and jobs at a cluster with TLS, logins and rights."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation

from raftlog.pipeline.jobs.control import JobError
from raftlog.pipeline.jobs.mirror import MirrorOptions, mirror
from raftlog.pipeline.jobs.settings import build
from raftlog.pipeline.login import Refused
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.pipeline.options import read_options
from raftlog.testing.secure_cluster import ADMIN
from tests.kit.waits import until
from tests.pipeline.processes import finished, started
from tests.pipeline.secured import Secured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write(spark: SparkSession, given: dict[str, str], topic: str) -> None:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("raftlog").mode("append").options(**given).option("topic", topic).save()


def read(spark: SparkSession, given: dict[str, str], topic: str) -> Any:
    return spark.read.format("raftlog").options(**given).option("subscribe", topic).load()


def test_exactly_once_needs_the_rights_that_its_documentation_names(java: None, secured: Secured, topic: str):
    """Without them the error names the transactional id. New rights are not known to every broker at once."""
    import pyarrow as pa

    from raftlog.pipeline.exactly_once import write_batch
    from raftlog.pipeline.options import write_options
    from raftlog.pipeline.sink import NotWritten

    secured.make(topic)
    options = write_options({**secured.options("writer"), "topic": topic})

    def write_once() -> list[pa.RecordBatch]:
        rows = [pa.RecordBatch.from_pydict({"value": [b"v"]})]
        return [*write_batch(options, frozenset({"value"}), topic, 0, 0, iter(rows))]

    with pytest.raises(NotWritten, match=f"transactional id raftlog-spark-{topic}: .*[Aa]uthorization"):
        write_once()
    for operation in (AclOperation.READ, AclOperation.WRITE):
        secured.allow("writer", operation, topic)
    secured.allow_transactions("writer", "raftlog-spark-")

    def is_written() -> bool:
        with contextlib.suppress(NotWritten):
            return bool(write_once())
        return False

    until(is_written, "the rights are known to every broker")
    assert secured.read(topic) == [b"v"]


def test_a_batch_read_is_what_was_written_and_its_plan_has_no_secret(
    spark: SparkSession, secured: Secured, topic: str
):
    """Written with a password, read with the same password as Java's client has it."""
    secured.make(topic, 3)
    write(spark, secured.options(ADMIN), topic)
    frame = read(spark, secured.java_options(ADMIN), topic)
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain(extended=True)
    assert "raftlog" in said.getvalue()
    assert secured.cluster.passwords[ADMIN] not in said.getvalue()


def test_a_stream_needs_no_right_but_to_read_the_one_topic_and_to_write_the_other(
    spark: SparkSession, secured: Secured, topic: str, tmp_path: Path
):
    """None on a group: offsets are Spark's. Source and sink log in as users of their own."""
    copy = f"{topic}-copy"
    for name in (topic, copy):
        secured.make(name)
    secured.allow("reader", AclOperation.READ, topic)
    secured.allow("writer", AclOperation.WRITE, copy)
    values = [b"%d" % number for number in range(50)]
    secured.fill(topic, values)
    source = spark.readStream.format("raftlog").options(**secured.options("reader"))
    rows = source.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
    writer = rows.select("key", "value").writeStream.format("raftlog").options(**secured.options("writer"))
    writer = writer.options(topic=copy, checkpointLocation=str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert secured.read(copy) == values


def test_a_refused_read_write_or_login_is_reported_in_one_sentence(
    spark: SparkSession, secured: Secured, topic: str
):
    """The message does not have the password."""
    secured.make(topic)
    secured.make(f"{topic}-seen")
    secured.fill(f"{topic}-seen", [b"x"])
    secured.allow("reader", AclOperation.DESCRIBE, f"{topic}-seen")
    reader, wrong = (
        secured.options("reader"),
        secured.options(ADMIN, **{"sasl.password": "not-the-right-one"}),
    )
    may_not = f"user reader may not read topic {topic}-seen: this needs the right READ"
    for attempt, said in (
        (lambda: read(spark, reader, topic).collect(), "right DESCRIBE on it"),
        (lambda: read(spark, reader, f"{topic}-seen").collect(), may_not),
        (lambda: write(spark, reader, topic), "user reader needs the right WRITE"),
        (lambda: read(spark, wrong, topic).collect(), f"does not let user {ADMIN} in"),
        (lambda: write(spark, wrong, topic), f"does not let user {ADMIN} in"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            attempt()
        assert "not-the-right-one" not in str(caught.value)
        assert secured.cluster.passwords["reader"] not in str(caught.value)


def test_a_task_that_is_not_let_in_says_so_and_does_not_wait(secured: Secured, topic: str):
    """The password may have changed since the driver planned: waiting for kafkaConsumer.pollTimeoutMs is in vain."""
    from raftlog.pipeline.fetch import read_range

    wrong = secured.options(ADMIN, **{"sasl.password": "not-the-right-one"})
    planned = Range(TopicPartition(topic, 0), 0, 10)
    with pytest.raises(Refused, match=f"does not let user {ADMIN} in"):
        list(read_range(read_options({**wrong, "subscribe": topic}), planned))


def test_a_job_logs_in_by_a_file(spark: SparkSession, secured: Secured, topic: str, tmp_path: Path):
    """As other commands do; the file names the servers and the authority, too."""
    secured.make(topic)
    write(spark, secured.options(ADMIN), topic)
    asked = {
        "topics": [topic],
        "command-config": secured.login_file(ADMIN, tmp_path),
        "master": "local[1]",
    }
    found = json.loads(finished(started("audit", asked, "--json")))
    assert found["records"] == 100, found


@pytest.mark.parametrize("names", ["librdkafka", "java"])
def test_a_mirror_logs_in_at_its_target_as_another_user(
    spark: SparkSession, secured: Secured, topic: str, tmp_path: Path, names: str
):
    """With `--client` here and `--to-client` there; either client's names will do."""
    copied, offsets = f"copy.{topic}", f"map.{topic}"
    secured.make(topic)
    secured.fill(topic, [b"%d" % number for number in range(30)])
    secured.allow("reader", AclOperation.READ, topic)
    for name, operations in (
        (copied, (AclOperation.READ, AclOperation.WRITE)),
        (offsets, (AclOperation.WRITE,)),
    ):
        secured.make(name)
        for operation in operations:
            secured.allow("writer", operation, name)
    there = secured.options("writer") if names == "librdkafka" else secured.java_options("writer")
    given = {
        "topics": [topic],
        "bootstrap": secured.cluster.bootstrap_servers,
        "client": pairs(secured.options("reader")),
        "to": secured.cluster.bootstrap_servers,
        "to_client": pairs(there),
        "prefix": "copy.",
        "map_topic": offsets,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    options = build(MirrorOptions, given)
    assert mirror(spark, options).records == 30
    assert secured.read(copied) == [b"%d" % number for number in range(30)]
    assert len(secured.read(offsets)) == 1
    assert secured.cluster.passwords["writer"] not in repr(options)


def test_a_mirror_that_may_not_do_its_work_at_the_target_says_so(secured: Secured, topic: str):
    """Topics that it may not create, and copies that it may not read to the end: it does not wait for a right."""
    pa = pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.mirror import prepare_topics
    from raftlog.pipeline.jobs.mirror_task import NotCopied, copy

    secured.make(topic)
    secured.fill(topic, [b"x"])
    secured.allow("reader", AclOperation.DESCRIBE, topic)
    servers = secured.cluster.bootstrap_servers
    given = {"topics": [topic], "bootstrap": servers, "to": servers, "prefix": "new.", "checkpoint": "/none"}
    logins = {"client": pairs(secured.options(ADMIN)), "to_client": pairs(secured.options("reader"))}
    options = build(MirrorOptions, given, logins)
    with pytest.raises(
        JobError, match=f"user reader may not create topic new.{topic}, raftlog.mirror.offsets"
    ):
        prepare_topics(options)
    row = {"topic": topic, "partition": 0, "offset": 0, "value": b"x", "key": None, "headers": None}
    rows = pa.RecordBatch.from_pylist([row | {"timestamp": None}])
    with pytest.raises(NotCopied, match=f"user reader may not read topic {topic}"):
        list(copy(options.target_settings, "", "cluster", [rows]))


def pairs(options: dict[str, str]) -> list[str]:
    """Return options of a query as `--client` has them."""
    return [
        f"{name.removeprefix('kafka.')}={value}"
        for name, value in options.items()
        if not name.endswith("bootstrap.servers")
    ]
