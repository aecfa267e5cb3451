"""One cluster for the tests that kill, pause and restart nodes. Each test leaves all of its nodes running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.testing.cluster import Cluster
from tests.kit.settings import SMALL

SETTINGS = {
    "auto.create.topics.enable": "false",  # a producer that still asks for a deleted topic would create it again
    **SMALL,
    "transaction.state.log.num.partitions": "1",  # so that each transaction has the coordinator that is killed
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
}


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS) as cluster:
        yield cluster
