"""One cluster for all tests of commands that talk to one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from raftlog.testing.cluster import AdminCluster, Cluster
from tests.cli.live import CommandLine

_numbers = count(1)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with AdminCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three(shared_cluster: Cluster) -> Cluster:
    """Three nodes that no test hurts."""
    return shared_cluster


@pytest.fixture
def raftlog(three: Cluster) -> CommandLine:
    return CommandLine(three.bootstrap_servers)


@pytest.fixture
def name() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def ten(raftlog: CommandLine, name: str) -> str:
    """A topic with ten records in partition 1 of 2."""
    raftlog("topic", "create", name, "-p", "2")
    raftlog("produce", "-t", name, "-p", "1", stdin=b"".join(b"%d\n" % number for number in range(10)))
    return name
