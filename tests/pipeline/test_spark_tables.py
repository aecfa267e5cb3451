"""Spark reads the tables of `raftlog table run`, by Delta's and Iceberg's own jars."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.live import CommandLine
from tests.house.source import ROOT
from tests.kit.waits import run
from tests.pipeline.topics import Topics
from tests.tables.topics import assert_same, produce, produce_in_transactions, read_log

pytestmark = pytest.mark.spark

EXAMPLE = ROOT / "deploy" / "examples" / "tables" / "read_spark.py"
OWN = ROOT / "build" / "spark-tables"
"""A Spark that the jars are made for, which is older than the newest, in an environment of its own."""
DUMP = """
import json
for table in (orders, payments):
    rows = (row.asDict(recursive=True) for row in table.collect())
    print(json.dumps(list(rows), default=lambda each: each.hex() if hasattr(each, "hex") else each.timestamp()))
"""


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its bytes and its time."""

    def bytes_of(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    headers = [{"key": each["key"], "value": bytes_of(each["value"])} for each in found["headers"]]
    time = datetime.fromtimestamp(found["timestamp"], UTC)
    key, value = (bytes_of(found[name]) for name in ("key", "value"))
    return {**found, "timestamp": time, "key": key, "value": value, "headers": headers}


def test_spark_reads_each_record_byte_for_byte(topics: Topics, tmp_path: Path):
    """The example of the documentation counts both tables, and their rows are the records of the log."""
    if not (OWN / "jars").is_dir():
        pytest.skip("`make test-spark` makes build/spark-tables")
    raftlog = CommandLine(topics.servers)
    for topic, format_ in (("orders", "delta"), ("payments", "iceberg")):
        topics.make(topic, 3)
        for _ in range(2):  # two commits
            produce(topics.servers, topic, 300)
            produce_in_transactions(topics.servers, topic, 4)
            to = ("--to", str(tmp_path / "lake"), "--format", format_)
            ran = raftlog("table", "run", topic, *to, "--until-end")
            assert ran.returncode == 0, ran.stderr
    (tmp_path / "jars").symlink_to(OWN / "jars")
    program = tmp_path / "read.py"
    program.write_text(EXAMPLE.read_text() + DUMP)
    python = str(OWN / "bin" / "python")
    small = ("ui.enabled=false", "sql.shuffle.partitions=2", "databricks.delta.snapshotPartitions=2")
    conf = " ".join(f"--conf spark.{each}" for each in small)
    arguments = f"--master local[2] --driver-memory 1g {conf} pyspark-shell"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYSPARK_SUBMIT_ARGS": arguments,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    done = run([python, str(program)], cwd=tmp_path, env=environment, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    counts, *tables = done.stdout.splitlines()
    logs = [read_log(topics.servers, topic) for topic in ("orders", "payments")]
    assert counts == " ".join(str(len(log)) for log in logs)
    assert len(logs[0]) == 2 * (300 + 10)
    for found, log in zip(tables, logs, strict=True):
        assert_same([_row(each) for each in json.loads(found)], log)
