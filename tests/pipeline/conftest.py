"""One Spark session, a cluster of three nodes and a cluster with logins for all Spark tests, made on first use."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from raftlog.testing.cluster import Cluster
from raftlog.testing.secure_cluster import SecureCluster
from tests.pipeline.secured import Secured
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
_numbers = count(1)


@pytest.fixture(scope="session")
def java() -> None:
    """Spark's environment: this tree's code, this interpreter, loopback."""
    pytest.importorskip("pyspark", reason="pip install raftlog[spark]")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip(
            "Spark needs a Java runtime of 17 or newer: there is no java on the PATH and no JAVA_HOME"
        )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores. The source is not registered: Spark is to find it by itself."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("raftlog-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(3, settings={"num.partitions": "4", "auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def topics(java: None, shared_cluster: Cluster) -> Topics:
    """A stock client, to make topics and to see what Spark wrote."""
    return Topics(shared_cluster.bootstrap_servers)


@pytest.fixture(scope="session")
def secured(java: None) -> Iterator[Secured]:
    """A cluster with TLS, logins and rights."""
    with SecureCluster(3, settings={"auto.create.topics.enable": "false"}) as nodes:
        yield Secured(nodes)


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_numbers)}"
