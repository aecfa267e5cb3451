"""Spark's Kafka connector at a cluster with TLS, logins and rights: batch, stream, a job, and where passwords go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from raftlog.testing.secure_cluster import ADMIN
from tests.interop_spark.conftest import Said
from tests.kit.secret_forms import forms
from tests.pipeline.processes import finished, started
from tests.pipeline.secured import Secured

VALUES = [b"%d" % number for number in range(50)]


def test_a_stream_logs_in_as_a_reader_and_writes_as_a_writer(
    spark: Any, said: Said, secured: Secured, topic: str, checkpoint: str
) -> None:
    """SASL_SSL with SCRAM. Neither Spark's log nor its history nor the checkpoint has a password."""
    copy = f"{topic}-copy"
    for name in (topic, copy):
        secured.make(name)
    secured.fill(topic, VALUES)
    secured.allow("reader", AclOperation.READ, topic)
    secured.allow("writer", AclOperation.WRITE, copy)
    with said.everything():
        source = spark.readStream.format("kafka").options(**secured.java_options("reader"))
        rows = source.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
        writer = rows.select("key", "value").writeStream.format("kafka")
        writer = writer.options(**secured.java_options("writer"), topic=copy, checkpointLocation=checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        batch = spark.read.format("kafka").options(**secured.java_options(ADMIN), subscribe=copy).load()
        assert sorted(bytes(row.value) for row in batch.collect()) == sorted(VALUES)
    written = {
        path: path.read_bytes() for path in (*said.files(), *Path(checkpoint).rglob("*")) if path.is_file()
    }
    assert any(b"sasl.jaas.config = [hidden]" in content for content in written.values())
    assert any(b"SparkListenerSQLExecutionStart" in content for content in written.values())
    leaks = [
        f"{user}'s password is in {path}"
        for path, content in written.items()
        for user, password in secured.cluster.passwords.items()
        for form in forms(password)
        if form.encode() in content
    ]
    assert not leaks, "\n".join(leaks)


def test_a_refused_login_or_right_is_reported(spark: Any, secured: Secured, topic: str) -> None:
    """By Java's client; a missing right is reported as by Kafka."""
    secured.make(topic)
    right = secured.java_options("reader")
    wrong = right | {
        "kafka.sasl.jaas.config": right["kafka.sasl.jaas.config"].replace(
            secured.cluster.passwords["reader"], "not-the-right-one"
        )
    }
    for options, what in ((wrong, "SaslAuthenticationException"), (right, "TopicAuthorizationException")):
        frame = spark.read.format("kafka").options(**options, subscribe=topic)
        with pytest.raises(Exception, match=what) as caught:
            frame.load().collect()
        assert "not-the-right-one" not in str(caught.value)


def test_a_job_reads_by_it_with_the_file_of_another_clients_login(
    secured: Secured, topic: str, tmp_path: Path
) -> None:
    """`-F` with the names of librdkafka, made Java's for `--connector kafka`."""
    secured.make(topic)
    secured.fill(topic, VALUES)
    secured.allow("reader", AclOperation.READ, topic)
    login = secured.login_file("reader", tmp_path)
    asked = {"topics": [topic], "command-config": login, "master": "local[1]", "connector": "kafka"}
    assert json.loads(finished(started("audit", asked, "--json")))["records"] == len(VALUES)
