"""One Spark session with the connector's jars, and two clusters for all tests that hurt no node; one wants a login.

No node of the other may have logged a traceback or an event that needs a person, whatever a test did.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from raftlog.testing.secure_cluster import SecureCluster
from tests.kit.settings import SMALL
from tests.pipeline.secured import Secured

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/interop_spark/" in str(item.path):
            item.add_marker(pytest.mark.spark_kafka)
            item.add_marker(pytest.mark.timeout(900))


class Said:
    """The log of Spark's driver, which is the executor too, and its history."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._context = spark.sparkContext
        self._folder = folder

    @contextmanager
    def everything(self) -> Iterator[None]:
        """Have Spark write down more than errors meanwhile."""
        self._context.setLogLevel("INFO")
        try:
            yield
        finally:
            self._context.setLogLevel("ERROR")

    def files(self) -> Iterator[Path]:
        return self._folder.rglob("*")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place where Spark writes its log and its history."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def said(spark: Any, folder: Path) -> Said:
    return Said(spark, folder)


@pytest.fixture(scope="session")
def spark(folder: Path) -> Iterator[Any]:
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
        .config("spark.driver.log.localDir", str(folder))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file:{folder}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(3, settings={"num.partitions": "4", "default.replication.factor": "3", **SMALL}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured() -> Iterator[Secured]:
    with SecureCluster(3, settings={"auto.create.topics.enable": "false"}) as nodes:
        yield Secured(nodes)


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"spark-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
