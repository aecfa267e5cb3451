"""Claims about secrets: queries that log in leave no password where Spark writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.secure_cluster import ADMIN
from tests.kit.secret_forms import forms
from tests.kit.waits import run
from tests.pipeline.conftest import ROOT
from tests.pipeline.secured import Secured
from tests.pipeline.test_standalone import master  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark

WRONG = "canary-wrong-password-4Lp6"
LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
logger.source.name = org.apache.spark.sql.execution.datasources.v2.python
logger.source.level = debug
logger.python.name = org.apache.spark.api.python
logger.python.level = debug
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""
"""Log4j's settings: all of Spark's messages, and more of the parts that handle our options.

With more, its parser repeats whole statements of SQL, also a password in them.
"""
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

asked = json.load(sys.stdin)
builder = SparkSession.builder.master(asked["master"])
for name, value in asked["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
stream = spark.readStream.format("raftlog").options(**asked["source"]).load()
writer = stream.select("key", "value").writeStream.format("raftlog").trigger(availableNow=True)
writer.options(**asked["sink"]).start().awaitTermination()
batch = spark.read.format("raftlog").options(**asked["java"]).load()
batch.explain(extended=True)
batch.createTempView("copied")
given = ", ".join(f"`{name}` '{value}'" for name, value in asked["source"].items())
spark.sql(f"CREATE TEMPORARY VIEW named USING raftlog OPTIONS ({given})")
print("ROWS", batch.count(), spark.sql("SELECT * FROM named JOIN copied USING (value)").count())
for query in (
    lambda: spark.read.format("raftlog").options(**asked["wrong"]).load().collect(),
    lambda: batch.select("value").write.format("raftlog").mode("append").options(**asked["wrong sink"]).save(),
):
    try:
        query()
    except Exception as error:
        print("REFUSED", error)
spark.stop()
"""


def test_queries_leave_no_password_in_checkpoints_logs_or_events(
    master: str,  # noqa: F811 - a fixture
    secured: Secured,
    topic: str,
    tmp_path: Path,
):
    """Stream and batch, either client's names, SQL, and logins that fail: by driver, executors and Spark's history."""
    copy, checkpoint, events = f"{topic}-copy", tmp_path / "checkpoint", tmp_path / "events"
    for name in (topic, copy):
        secured.make(name)
    secured.fill(topic, [b"%d" % number for number in range(30)])
    events.mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG)
    wrong = secured.options(ADMIN, **{"sasl.password": WRONG})
    asked = {
        "master": master,
        "conf": conf(tmp_path, events),
        "source": {**secured.options(ADMIN), "subscribe": topic, "startingOffsets": "earliest"},
        "sink": {**secured.options(ADMIN), "topic": copy, "checkpointLocation": str(checkpoint)},
        "java": {**secured.java_options(ADMIN), "subscribe": copy},
        "wrong": {**wrong, "subscribe": topic},
        "wrong sink": {**wrong, "topic": copy},
    }
    ran = run([sys.executable, "-c", PROGRAM], stdin=json.dumps(asked), cwd=ROOT, text=True)
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert "ROWS 30 30" in ran.stdout
    assert ran.stdout.count(f"does not let user {ADMIN} in") >= 2, ran.stdout
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert_all_is_there(written, checkpoint, events)
    written |= {"the driver's output": ran.stdout.encode(), "the driver's log": ran.stderr.encode()}
    secrets = {"the password": secured.cluster.passwords[ADMIN], "a wrong password": WRONG}
    leaks = [
        f"{name} is in {where}: {around(content, form.encode())!r}"
        for where, content in written.items()
        for name, secret in secrets.items()
        for form in forms(secret)
        if form.encode() in content
    ]
    assert not leaks, "\n".join(leaks)


def conf(folder: Path, events: Path) -> dict[str, Any]:
    """Return settings of Spark under which it says as much as it can."""
    log = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}"
    return {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file:{events}",
        "spark.driver.extraJavaOptions": log,
        "spark.executor.extraJavaOptions": log,
    }


def assert_all_is_there(written: dict[str, bytes], checkpoint: Path, events: Path) -> None:
    """Fail if a place that may contain a password has not been written to: the search would find none there."""
    assert any(where.startswith(f"{checkpoint}/offsets/") for where in written)
    history = b"".join(content for where, content in written.items() if where.startswith(str(events)))
    assert b"SparkListenerSQLExecutionStart" in history and b"raftlog" in history
    executors = [content for where, content in written.items() if where.endswith("/stderr")]
    assert any(b"org.apache.spark.executor.Executor" in each for each in executors), written.keys()


def around(content: bytes, found: bytes) -> bytes:
    """Return what stands before something that was found."""
    at = content.index(found)
    return content[max(0, at - 200) : at]
