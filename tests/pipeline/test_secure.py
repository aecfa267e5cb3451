"""Claims about `format("raftlog")` at a cluster with TLS, logins and rights."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.testing.secure_cluster import ADMIN, SecureCluster
from tests.kit.waits import PATIENCE_S
from tests.pipeline.processes import finished, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def secure(java: None) -> Iterator[SecureCluster]:
    with SecureCluster(3, settings={"auto.create.topics.enable": "false"}) as nodes:
        yield nodes


def make(cluster: SecureCluster, topic: str, partitions: int) -> None:
    admin = AdminClient(cluster.client_settings(ADMIN))
    new = NewTopic(topic, partitions, 3)
    for future in admin.create_topics([new]).values():
        future.result(PATIENCE_S)


def options(cluster: SecureCluster, user: str, **changed: str) -> dict[str, str]:
    settings = cluster.client_settings(user) | changed
    settings["ssl.ca.pem"] = cluster.certificates.ca.read_text()
    del settings["ssl.ca.location"]
    return {f"kafka.{name}": value for name, value in settings.items()}


def write(spark: SparkSession, given: dict[str, str], topic: str) -> None:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("raftlog").mode("append").options(**given).option("topic", topic).save()


def read(spark: SparkSession, given: dict[str, str], topic: str) -> Any:
    return spark.read.format("raftlog").options(**given).option("subscribe", topic).load()


def test_a_batch_read_is_what_was_written_and_its_plan_has_no_secret(
    spark: SparkSession, secure: SecureCluster, topic: str
):
    """Written with a password, read with the same one as Java's client has it."""
    make(secure, topic, 3)
    write(spark, options(secure, ADMIN), topic)
    java = {f"kafka.{name}": value for name, value in secure.java_settings(ADMIN).items()}
    del java["kafka.ssl.truststore.location"]
    java["kafka.ssl.truststore.certificates"] = secure.certificates.ca.read_text()
    frame = read(spark, java, topic)
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain(extended=True)
    assert "raftlog" in said.getvalue()
    assert secure.passwords[ADMIN] not in said.getvalue()


def test_who_may_not_read_or_write_or_log_in_is_told_so_in_a_sentence(
    spark: SparkSession, secure: SecureCluster, topic: str
):
    """And not told the password."""
    make(secure, topic, 1)
    wrong = options(secure, ADMIN, **{"sasl.password": "not-the-right-one"})
    for attempt, said in (
        (lambda: read(spark, options(secure, "reader"), topic).collect(), "right DESCRIBE on it"),
        (lambda: write(spark, options(secure, "reader"), topic), "user reader needs the right WRITE"),
        (lambda: read(spark, wrong, topic).collect(), f"does not let user {ADMIN} in"),
        (lambda: write(spark, wrong, topic), f"does not let user {ADMIN} in"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            attempt()
        assert "not-the-right-one" not in str(caught.value)
        assert secure.passwords["reader"] not in str(caught.value)


def test_a_job_logs_in_by_a_file(spark: SparkSession, secure: SecureCluster, topic: str, tmp_path: Path):
    """As other commands do; the file names the servers and the authority, too."""
    make(secure, topic, 1)
    write(spark, options(secure, ADMIN), topic)
    login = tmp_path / "login.properties"
    login.write_text("".join(f"{name}={value}\n" for name, value in secure.client_settings(ADMIN).items()))
    asked = {"topics": [topic], "command-config": str(login), "master": "local[1]"}
    found = json.loads(finished(started("audit", asked, "--json")))
    assert found["records"] == 100, found
