"""`mirror` between two clusters of three nodes each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.kit import waits
from tests.pipeline.processes import given, started
from tests.pipeline.topics import Topics
from tests.pipeline.two_clusters import check_mirror_across_a_crash

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def target(java: None) -> Iterator[Topics]:
    """The topics of another cluster."""
    with Cluster(3, settings={"default.replication.factor": "3"}) as cluster:
        yield Topics(cluster.bootstrap_servers)


def test_a_mirror_that_is_killed_amid_a_batch_loses_and_doubles_nothing(
    topics: Topics, target: Topics, topic: str, tmp_path: Path
):
    """Also its map of offsets is that of what lies at the target."""
    check_mirror_across_a_crash(topics, target, topic, tmp_path, connector="raftlog")


def test_a_mirror_refuses_a_spark_whose_own_defaults_speculate(
    topics: Topics, target: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Not by the job's options but by Spark's file of defaults; no output is made or claimed."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.speculation true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    topics.make(topic)
    process = started("mirror", given(topics, topic, tmp_path, to=target.servers, master="local[1]"))
    _output, errors = waits.finished(process)
    assert process.returncode == 1, errors
    assert "mirror: spark.speculation=true" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "checkpoint").exists()
