"""One Spark session with the connector's jars and one cluster of three nodes, for all tests that hurt no node.

No node may have logged a traceback or an event that needs a person, whatever a test did.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import run_checked

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/interop_spark/" in str(item.path):
            item.add_marker(pytest.mark.spark_kafka)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from raftlog.pipeline.jobs.jars import find_jars

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, find_jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with run_checked(3, settings={"num.partitions": "4", "default.replication.factor": "3"}) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"spark-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
