"""Commands at the shared cluster."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine


@pytest.fixture
def raftlog(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture
def name(topic: str) -> str:
    """The name of a topic that no other test has."""
    return topic


@pytest.fixture
def ten(raftlog: CommandLine, name: str) -> str:
    """A topic with ten records in partition 1 of 2."""
    raftlog("topic", "create", name, "-p", "2")
    raftlog("produce", "-t", name, "-p", "1", stdin=b"".join(b"%d\n" % number for number in range(10)))
    return name
