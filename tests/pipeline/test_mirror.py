"""`mirror` between two clusters of three nodes each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics
from tests.pipeline.two_clusters import check_mirror_across_a_crash

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


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
