"""Claims about nodes in the tests' own process: ready, restarted, failed in words, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from confluent_kafka import Consumer, Producer

from raftlog.testing import InProcessCluster
from raftlog.testing.cluster import Cluster, ClusterError
from tests.kit.waits import PATIENCE_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CYCLES = int(os.environ.get("RAFTLOG_CYCLES", "20"))
"""Clusters of each kind that are started and closed in sequence, by `make nightly`."""


@pytest.fixture
def own_cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster() as running:
        yield running


def send(cluster: Cluster, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def read_one(cluster: Cluster, topic: str) -> bytes:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def test_stock_clients_write_and_read_and_a_restart_keeps_it(own_cluster: InProcessCluster) -> None:
    """The node is real: real sockets, real files."""
    own_cluster.create_topic("orders", partitions=2)
    assert len(own_cluster.partitions("orders")) == 2
    send(own_cluster, "fruit", "pear")
    own_cluster.restart(1)
    assert read_one(own_cluster, "fruit") == b"pear"
    assert own_cluster.stop(1) == 0
    assert "node_stopped" in own_cluster.nodes[1].log_tail()


def test_several_nodes_in_one_process_are_a_cluster() -> None:
    """Each has its thread, its log and its voice."""
    with InProcessCluster(3) as cluster:
        assert cluster.view(2).broker_ids == {1, 2, 3}
        cluster.create_topic("orders")
        leader = cluster.kill_leader("orders")
        assert cluster.leader("orders") != leader
        assert all(
            f'"node_id": {each}' not in cluster.nodes[leader].log_tail() for each in {1, 2, 3} - {leader}
        )


async def test_the_loop_of_an_async_test_goes_on_meanwhile() -> None:
    """As an async context manager; the node has a loop of its own."""
    async with InProcessCluster() as cluster:
        view = await asyncio.to_thread(cluster.view, 1)
        assert view.broker_ids == {1}


def test_what_a_thread_cannot_do_is_refused_in_words(own_cluster: InProcessCluster) -> None:
    """It cannot be paused, and has no faults."""
    with pytest.raises(ValueError, match="cannot receive SIGSTOP: use a Cluster"):
        own_cluster.pause(1)
    assert own_cluster.running_ids() == {1}
    with pytest.raises(ValueError):
        InProcessCluster(faults=True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"num.partitions": "-3"}, "num.partitions"), ({"log.dirs": "/proc/nowhere"}, "/proc/nowhere")],
)
def test_a_node_that_cannot_start_says_why(settings: dict[str, str], reason: str) -> None:
    """As a node in a process does."""
    cluster = InProcessCluster(settings=settings)
    with pytest.raises(ClusterError, match="node 1 ended while starting") as caught:
        cluster.start()
    cluster.close()
    assert reason in str(caught.value)


def test_a_node_that_has_ended_before_anybody_looks_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster waits for the nodes that run: without any, it would be ready at once."""
    cluster = InProcessCluster(settings={"num.partitions": "-3"})
    monkeypatch.setattr(cluster, "wait_ready", cluster.nodes[1].wait)
    with pytest.raises(ClusterError, match="node 1 ended while starting"):
        cluster.start()
    cluster.close()


@pytest.fixture
def programs_events() -> Iterator[list[str]]:
    """The events that a program's own structlog sees."""
    seen: list[str] = []

    def take(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
        seen.append(str(event["event"]))
        raise structlog.DropEvent

    was_configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(processors=[take])
    try:
        yield seen
    finally:
        structlog.configure(**before)
        if not was_configured:
            structlog.reset_defaults()


def test_a_node_logs_to_its_file_whatever_the_program_does_with_structlog(
    programs_events: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Before, meanwhile and afterwards; the program's own events still go to its own log, and to no other."""
    with structlog.testing.capture_logs() as captured, InProcessCluster() as cluster:
        structlog.get_logger().info("captured_by_the_program")
        cluster.create_topic("orders")
    assert [each["event"] for each in captured] == ["captured_by_the_program"]
    with InProcessCluster() as cluster:
        structlog.get_logger().info("logged_by_the_program")
        structlog.reset_defaults()
        cluster.create_topic("orders", partitions=20)  # their files are made by other threads
        send(cluster, "orders", "tea")
        assert cluster.stop(1) == 0
        lines = cluster.nodes[1].log_path.read_text()
    assert programs_events == ["logged_by_the_program"]
    assert all(each in lines for each in ("node_ready", "topic_created", "node_stopped"))
    assert "by_the_program" not in lines
    printed = capfd.readouterr()
    assert "node_id" not in printed.out + printed.err


class Left:
    """Everything of this process that a cluster could leave behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.before = self.now = self._look()

    def _look(self) -> Counter[str]:
        return Counter(
            [
                *(f"thread {each.name}" for each in threading.enumerate()),
                *(f"child {each}" for each in _children()),
                *(f"file {each}" for each in _open_files()),
                *(f"folder {each.name}" for each in self._folder.iterdir()),
            ]
        )

    def nothing(self) -> bool:
        """Return whether no new resource is there; resources of earlier tests' clients may go meanwhile."""
        self.now = self._look()
        return self.now <= self.before


def _open_files() -> Iterator[str]:
    """Yield what each descriptor leads to: a path, or the kind of what has none."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            yield re.sub(r"\d+", "N", str(each.readlink()))


def _children() -> list[str]:
    pids = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [pid for each in pids for pid in each.read_text().split()]


def _take(port: int) -> None:
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", port))
        taker.listen()


@pytest.mark.parametrize(
    "cycles",
    [pytest.param(2, id="taste"), pytest.param(CYCLES, id="many", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("kind", [Cluster, InProcessCluster])
def test_cycles_leave_nothing_behind(
    kind: type[Cluster], cycles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither process, thread, descriptor, port nor folder, whatever clients did meanwhile. RAFTLOG_CYCLES=100."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with kind(1):
        pass  # what the first one brings stays: the fork server, modules
    left = Left(tmp_path)
    for _ in range(cycles):
        with kind(1) as cluster:
            cluster.create_topic("orders")
            send(cluster, "orders", "tea")
            ports = [each for address in cluster.addresses.values() for each in address[1:]]
        for port in ports:
            _take(port)
    until(left.nothing, "nothing is left", seen=lambda: left.now - left.before)
