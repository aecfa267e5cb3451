"""The pytest plugin: a real cluster for tests of programs that use Kafka. pytest finds it by its entry point.

Fixtures:

- `raftlog`: the session's cluster, which all workers of pytest-xdist share, and names that no other test has
- `bootstrap_servers`: the address of that cluster, as text; of the whole session, so other fixtures can use it
- `raftlog_cluster`: a cluster of this test alone, with nodes that may be killed, paused, cut off and slowed

Only what pytest has loaded anyway is imported before a fixture is used.
"""

from __future__ import annotations

import inspect
import re
import socket
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from raftlog.testing.cluster import AdminCluster, Cluster
    from raftlog.testing.evidence import NodeAddress
    from raftlog.testing.reading import ConsumedRecord

MAX_NODES: Final = 9
CONNECT_S: Final = 5.0
"""How long to try each address of a cluster that is not started here."""
IN_PROCESS: Final = "in-process"
MARKER: Final = (
    "raftlog(nodes=3, settings=None, faults=False, network=False): the cluster that raftlog_cluster gives; "
    "faults: its disks can be slowed; network: nodes can be cut off, which needs root"
)
OPTIONS: Final = {
    "nodes": ("3", "how many nodes the session's cluster has; in-process: one, in the process of the tests"),
    "bootstrap": ("", "use the cluster at host:port,... and start none"),
    "keep": ("", "keep the folders of the clusters, below this one"),
}
"""Each with its default and what it does."""

OWN_PACKAGES: Final = {"raftlog", "raftlog_chaos", "pyspark_raftlog"}

_watches: Final = pytest.StashKey[list[Any]]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Have pytest import raftlog as it is.

    pytest rewrites the assertions of each module of a distribution that has a plugin. A node in the process of the
    tests would start twice as slowly for that. The name is private to pytest: where it is another one, all still works.
    """
    marked = getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked -= OWN_PACKAGES


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with an ini setting of the same name."""
    group = parser.getgroup("raftlog", "a real cluster for tests")
    for name, (default, what) in OPTIONS.items():
        group.addoption(f"--raftlog-{name}", metavar=name.upper(), help=what)
        parser.addini(f"raftlog_{name}", what, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker. Raises UsageError for an option that cannot be."""
    config.addinivalue_line("markers", MARKER)
    nodes = _option(config, "nodes")
    if nodes != IN_PROCESS:
        _number_of_nodes(nodes)
    _addresses(config)


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"--raftlog-{name}")
    return str(config.getini(f"raftlog_{name}") if given is None else given)


def _number_of_nodes(given: object) -> int:
    text = str(given)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_NODES:
        raise pytest.UsageError(
            f"raftlog: the number of nodes is 1 to {MAX_NODES}, or {IN_PROCESS}, not {text!r}"
        )
    return int(text)


def _make_session_cluster(config: pytest.Config) -> AdminCluster:
    from raftlog.testing.cluster import AdminCluster
    from raftlog.testing.in_process import InProcessCluster

    nodes, directory = _option(config, "nodes"), _folder_to_keep(config, "session")
    if nodes == IN_PROCESS:
        return InProcessCluster(directory=directory)
    return AdminCluster(_number_of_nodes(nodes), directory=directory)


def _addresses(config: pytest.Config) -> list[str]:
    """Return the addresses of an external cluster; empty: start a cluster. Raise UsageError."""
    given = _option(config, "bootstrap")
    addresses = [each.strip() for each in given.split(",")] if given else []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise pytest.UsageError(f"raftlog: an address is host:port, not {address!r}")
    return addresses


def _check_that_one_answers(addresses: Sequence[str]) -> None:
    """End the session, with the addresses and the reason, if no node accepts a connection."""
    reason: object = ""
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except OSError as error:
            reason = error.strerror or error
    pytest.exit(
        f"raftlog: no node answers at {', '.join(addresses)} ({reason}): start the cluster, or leave out "
        "--raftlog-bootstrap (raftlog_bootstrap), and one is started",
        returncode=pytest.ExitCode.USAGE_ERROR,
    )


def _folder_to_keep(config: pytest.Config, name: str) -> Path | None:
    keep = _option(config, "keep")
    return Path(keep) / f"{name}-{uuid.uuid4().hex[:8]}" if keep else None


class Raftlog:
    """The session's cluster, as one test sees it. It has no `kill`, since others share it: see `raftlog_cluster`."""

    def __init__(self, nodes: Sequence[NodeAddress], test_name: str) -> None:
        self._nodes = nodes
        self.prefix = f"{re.sub('[^A-Za-z0-9._-]+', '-', test_name)[:100].strip('-')}-{uuid.uuid4().hex[:8]}"
        """The beginning of all names of this test."""
        self.topic = self.name("topic")
        """A topic name that no other test has. The topic is created by its first use, or by `create_topic`."""
        self.group_id = self.name("group")
        """A group id that no other test has."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for Kafka clients, host:port,..."""
        return _bootstrap_servers(self._nodes)

    @property
    def servers(self) -> list[str]:
        """The same as a list, for clients that take a text as a single server, such as FastStream and aiokafka."""
        return [each.address for each in self._nodes]

    def name(self, base: str) -> str:
        """Return another name that no other test has, for a topic, a group or a transactional id."""
        return f"{self.prefix}-{base}"

    def create_topic(
        self,
        name: str = "",
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, by default `topic`, and return its name once it has leaders.

        A replication factor of -1 is three, or as many as there are nodes. Raises TopicRefused with the reason.
        """
        from raftlog.testing.probe import NewTopic
        from raftlog.testing.topics import create

        topic = NewTopic(name or self.topic, partitions, replication_factor, settings or {})
        create([each.host_and_port for each in self._nodes], topic)
        return topic.name

    def read(self, topic: str = "", count: int = 0, *, timeout: float | None = None) -> list[ConsumedRecord]:
        """Return the committed records of a topic, by default of `topic`, once there are at least `count`.

        They come by partition and offset, each with its key, value and headers. Raises Stalled if they do not come:
        within `timeout` seconds, or without one once nothing progresses. Raises CannotRead for a missing topic.
        """
        from raftlog.testing.reading import read

        addresses = [each.host_and_port for each in self._nodes]
        return read(addresses, topic or self.topic, count=count, timeout_s=timeout)


def _bootstrap_servers(nodes: Sequence[NodeAddress]) -> str:
    return ",".join(each.address for each in nodes)


@pytest.fixture(scope="session")
def raftlog_nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[NodeAddress]]:
    """Give the nodes of the session's cluster: started here, by another worker, or externally."""
    from raftlog.testing.evidence import NodeAddress
    from raftlog.testing.shared_cluster import shared_cluster

    config = request.config
    if elsewhere := _addresses(config):
        _check_that_one_answers(elsewhere)
        yield [NodeAddress(number, address) for number, address in enumerate(elsewhere, 1)]
        return
    base = tmp_path_factory.getbasetemp()
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist, with workers' folders side by side
    with shared_cluster(
        (base.parent if is_worker else base) / "raftlog", lambda: _make_session_cluster(config)
    ) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def bootstrap_servers(raftlog_nodes: Sequence[NodeAddress]) -> str:
    """Return the addresses of the session's cluster, host:port,..."""
    return _bootstrap_servers(raftlog_nodes)


@pytest.fixture
def raftlog(request: pytest.FixtureRequest, raftlog_nodes: Sequence[NodeAddress]) -> Raftlog:
    """Return the session's cluster, with a topic name and a group id that no other test has."""
    cluster = Raftlog(raftlog_nodes, request.node.name)
    _watch(request, raftlog_nodes, cluster.prefix)
    return cluster


@pytest.fixture
def raftlog_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a cluster of this test alone; the marker `raftlog` says which kind."""
    marker = request.node.get_closest_marker("raftlog")
    cluster = _make_cluster(
        **_arguments(marker), directory=_folder_to_keep(request.config, request.node.name)
    )
    with cluster:
        _watch(request, cluster.node_addresses(), faults=cluster.fault_log)
        cluster.errors_have_logs = False
        yield cluster


def _make_cluster(
    nodes: int = 3,
    settings: Mapping[str, str] | None = None,
    *,
    faults: bool = False,
    network: bool = False,
    directory: Path | None = None,
) -> Cluster:
    from raftlog.testing.cluster import AdminCluster
    from raftlog.testing.network_cluster import NetworkCluster

    kind = NetworkCluster if network else AdminCluster
    try:
        return kind(_number_of_nodes(nodes), settings=settings, faults=faults, directory=directory)
    except OSError as error:
        if not network:
            raise
        pytest.skip(f"raftlog: nodes can't be cut off here: {error}")


def _arguments(marker: pytest.Mark | None) -> dict[str, Any]:
    """Return the marker's arguments by name. Raises UsageError for what is none."""
    if marker is None:
        return {}
    try:
        return inspect.signature(_make_cluster).bind(*marker.args, **marker.kwargs).arguments
    except TypeError as error:
        raise pytest.UsageError(f"raftlog: the marker's arguments: {error}; it is {MARKER}") from None


def _watch(
    request: pytest.FixtureRequest,
    nodes: Sequence[NodeAddress],
    prefix: str = "",
    *,
    faults: Sequence[str] = (),
) -> None:
    from raftlog.testing.evidence import Watch

    is_kept = bool(_option(request.config, "keep"))
    watch = Watch(nodes, prefix, faults=faults, is_kept=is_kept)
    request.node.stash.setdefault(_watches, []).append(watch)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add to the report of a failed test what the nodes logged, and why partitions moved."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and report.when == "call":
        for watch in item.stash.get(_watches, ()):
            report.sections += watch.sections()
