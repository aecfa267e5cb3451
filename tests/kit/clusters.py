"""The cluster that tests of commands and of clients share, and names in it that no other test has."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from raftlog.testing.cluster import AdminCluster, Cluster
from tests.clients.nodes import checked_logs
from tests.kit.settings import QUICK, SMALL

_numbers = count(1)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """Three nodes with HTTP APIs, for tests of several folders that stop no node."""
    with AdminCluster(3, settings={"num.partitions": "4", **SMALL, **QUICK}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The nodes that modules share (`shared_cluster`); at the end of each module their logs are checked."""
    with checked_logs(shared_cluster) as cluster:
        yield cluster


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a cluster that is to have its data there, with other clusters' (tests/kit/in_memory.py)."""
    with tempfile.TemporaryDirectory(prefix="raftlog-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_numbers)}"
