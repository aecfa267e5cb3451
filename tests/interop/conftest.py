"""One cluster for stock clients that `pip` does not bring, and for what takes longer than the default tests may.

No node may have logged a traceback or an event that needs a person, whatever a test did.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.interop.member_kinds import GO_LIBRARIES, JAVA, JAVASCRIPT, go_command
from tests.interop.scripts import KafkaScripts
from tests.kit.settings import SMALL

_numbers = count(1)

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "raftlog.controller.anonymous.clients": "true",
}
"""The last setting admits Kafka's tools to the controllers (--bootstrap-controller). The others are the timeouts that
members of the classic protocol choose themselves. librdkafka abandons a heartbeat when the next is due.
On a busy machine the response comes later, so librdkafka might never receive its assignment.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/interop/" in str(item.path):
            item.add_marker(pytest.mark.interop)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("kafkajs") and not has_kafkajs():
        pytest.skip("KafkaJS is not there: make interop-groups installs it where there is Node.js")
    if item.get_closest_marker("go") and not all(
        Path(go_command(each)[0]).is_file() for each in GO_LIBRARIES
    ):
        pytest.skip("the Go programs are not built: make interop-go does it where there is Go")
    if item.get_closest_marker("java") and not (JAVA / "target" / "classpath").is_file():
        pytest.fail("the Java programs are not compiled: make interop-java does it")


def has_kafkajs() -> bool:
    return shutil.which("node") is not None and (JAVASCRIPT / "node_modules" / "kafkajs").is_dir()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(3, settings={**SMALL, **SETTINGS}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def scripts() -> Iterator[KafkaScripts]:
    """One JVM for all tests of a process."""
    found = KafkaScripts()
    yield found
    found.kill()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Confluent]:
    """A client that makes topics and writes."""
    client = Confluent(cluster.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"interop-{next(_numbers)}"
