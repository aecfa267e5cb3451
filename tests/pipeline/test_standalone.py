"""A job on a standalone Spark master with two workers: driver and executors are separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from raftlog.testing.ports import HeldPorts
from tests.kit.waits import PATIENCE_S, ended, run, until
from tests.pipeline.conftest import ROOT
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.spark

WORKERS = 2


class Process:
    """A process of Spark's; it and its children end with the context."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        import pyspark

        self.log = folder / "log.txt"
        self._command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
        self._environment = {
            **os.environ,
            "SPARK_WORKER_DIR": str(folder),
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        }

    def __enter__(self) -> Process:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        ended(self.process)


@pytest.fixture
def master(java: None, tmp_path: Path) -> Iterator[str]:
    """The address of a Spark master that two workers have joined."""
    held = HeldPorts(2)
    port, ui = held.ports
    address = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        stack.callback(held.release)
        for name in ("master", *(f"worker-{number}" for number in range(WORKERS))):
            (tmp_path / name).mkdir()
        where = ["--host", "127.0.0.1"]
        arguments = [f"{package}.master.Master", *where, "--port", str(port), "--webui-port", str(ui)]
        stack.enter_context(Process(tmp_path / "master", *arguments))
        wait_for_workers(ui, 0)
        for number in range(WORKERS):
            folder = tmp_path / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder)]
            stack.enter_context(Process(folder, f"{package}.worker.Worker", *where, *size, address))
        wait_for_workers(ui, WORKERS)
        yield address


def wait_for_workers(ui: int, count: int) -> None:
    """Wait until the master knows of so many workers."""
    until(lambda: alive(ui) == count, f"{count} workers have joined", seen=lambda: alive(ui))


def alive(ui: int) -> int:
    """Return how many workers the master has; -1 while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{ui}/json/", timeout=PATIENCE_S) as answer:
            workers: int = json.load(answer)["aliveworkers"]
            return workers
    except OSError:
        return -1


PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

master, servers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config(
    "spark.executor.memory", "512m").config("spark.executor.cores", "1").getOrCreate()
servers = {"raftlog.bootstrap.servers": servers}
process = udf(lambda _: str(os.getppid()))
rows = spark.read.format("raftlog").options(subscribe=source, minPartitions="4", **servers).load()
print("EXECUTORS", rows.select(process("offset")).distinct().count())
stream = spark.readStream.format("raftlog").options(
    subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="150", **servers).load()
writer = stream.select("key", "value").writeStream.format("raftlog").trigger(availableNow=True)
writer.options(topic=target, checkpointLocation=checkpoint, **servers).start().awaitTermination()
spark.stop()
"""


def test_a_job_runs_on_a_standalone_master_with_two_workers(
    master: str, topics: Topics, topic: str, tmp_path: Path
):
    """Batch and stream, read and write, with tasks in the processes of both workers."""
    target = f"{topic}-copy"
    topics.make(topic, 2)
    topics.make(target)
    for partition in range(2):
        topics.fill(topic, [b"%d-%d" % (partition, n) for n in range(200)], partition=partition)
    arguments = [master, topics.servers, topic, target, str(tmp_path / "checkpoint")]
    ran = run([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, text=True)
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert "EXECUTORS 2" in ran.stdout
    found = sorted(row.value or b"" for row in topics.read(target))
    assert found == sorted(b"%d-%d" % (partition, n) for partition in range(2) for n in range(200))
