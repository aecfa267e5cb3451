"""The shared cluster for the client tests that stop no node, and the stock libraries.

No node may have logged a traceback or an event that needs a person, whatever a test did.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/clients/" in str(item.path):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka], ids=lambda each: each.name)
def stock(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[StockClient]:
    """Each of the three libraries, at the shared cluster."""
    client: StockClient = request.param(cluster.bootstrap_servers)
    yield client
    client.close()
