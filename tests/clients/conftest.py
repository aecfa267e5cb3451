"""Clusters for the client tests: one of three nodes for all that hurts no node, own ones for the rest.

No node may have logged a traceback or an event that needs a person, whatever a test did.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import told, violations
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/clients/" in str(item.path):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(3, settings={"num.partitions": "4"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes that all modules share; at the end of each module their logs are looked through."""
    before = len(violations(shared_cluster))
    yield shared_cluster
    assert shared_cluster.running_ids() == set(shared_cluster.nodes)
    found = violations(shared_cluster)[before:]
    assert not found, told(found)


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka], ids=lambda each: each.name)
def stock(request: pytest.FixtureRequest, three: Cluster) -> Iterator[StockClient]:
    """Each of the three libraries, at the shared cluster."""
    client: StockClient = request.param(three.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_numbers)}"
