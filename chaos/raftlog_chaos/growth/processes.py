"""Counts what real processes do: calls of raftlog's functions, and bytes through files and sockets.

Each node's Python counts its own calls between two signals (`counted/sitecustomize.py`). A real second contains a
varying number of periodic tasks, so these counts vary more than the simulator's.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from raftlog.testing.cluster import Cluster
from raftlog.testing.progress import wait_until
from raftlog_chaos.growth.whole_nodes import PER_TOPIC, SETTINGS, SETTLED_S, TOPICS_AT_ONCE

COUNTED: Final = str(Path(__file__).parent / "counted")
VOTERS: Final = 3
REST_S: Final = 10.0
RECORDS: Final = 100
REQUEST_S: Final = 600.0


class ProcessCounts(NamedTuple):
    """Counts per idle node and second, and for all nodes per record with acks=all, without the idle part."""

    idle_calls: float
    idle_bytes: float
    record_calls: float


def count_processes(*, partitions: int, nodes: int = 3) -> ProcessCounts:
    """Count on a new cluster of processes; takes a minute or more."""
    with _counting_python() as counts, Cluster(nodes, voters=VOTERS, settings=SETTINGS) as cluster:
        _create_topics(cluster, partitions // PER_TOPIC)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        _produce(producer, 1)
        time.sleep(SETTLED_S)
        before = _io_bytes(cluster)
        with _Count(cluster, counts) as rest:
            time.sleep(REST_S)
        idle_bytes = (_io_bytes(cluster) - before) / REST_S
        with _Count(cluster, counts) as work:
            _produce(producer, RECORDS)
        idle = rest.calls / rest.seconds
        return ProcessCounts(idle / nodes, idle_bytes / nodes, (work.calls - idle * work.seconds) / RECORDS)


@contextmanager
def _counting_python() -> Iterator[Path]:
    """Have nodes that start meanwhile load `sitecustomize` from here; yield the folder of their counts."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="raftlog-growth-") as folder:
        os.environ["GROWTH_COUNTS"] = folder
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (COUNTED, before.get("PYTHONPATH"))))
        try:
            yield Path(folder)
        finally:
            os.environ.clear()
            os.environ.update(before)


class _Count:
    """The calls of all nodes while it is entered."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.calls = 0
        self.seconds = 0.0

    def __enter__(self) -> _Count:
        self._began_at = time.monotonic()
        self._signal(signal.SIGUSR1)
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGUSR2)
        self.seconds = time.monotonic() - self._began_at
        files = [self._folder / str(node.pid) for node in self._cluster.nodes.values()]
        wait_until(lambda: all(each.exists() for each in files), "the counts of every node")
        for file in files:
            self.calls += int(file.read_text())
            file.unlink()

    def _signal(self, number: signal.Signals) -> None:
        for node in self._cluster.nodes.values():
            os.kill(node.pid, number)


def _create_topics(cluster: Cluster, topics: int) -> None:
    """Make topics with three replicas each, and wait until all are in sync.

    However many nodes there are, each follows two others: the idle work of a node is in its fetches.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    ring = [*cluster.nodes, *cluster.nodes]
    replicas = [
        ring[first : first + VOTERS] for first in (each % len(cluster.nodes) for each in range(PER_TOPIC))
    ]
    for first in range(0, topics, TOPICS_AT_ONCE):
        names = [f"topic-{each}" for each in range(first, min(first + TOPICS_AT_ONCE, topics))]
        wanted = [NewTopic(name, num_partitions=PER_TOPIC, replica_assignment=replicas) for name in names]
        for made in admin.create_topics(wanted, request_timeout=REQUEST_S).values():
            made.result()

    def in_sync() -> bool:
        found = admin.list_topics(timeout=REQUEST_S).topics
        states = [state for topic in found.values() for state in topic.partitions.values()]
        return len(states) >= topics * PER_TOPIC and all(len(each.isrs) == VOTERS for each in states)

    wait_until(in_sync, "every replica in sync")


def _produce(producer: Producer, records: int) -> None:
    """Produce records one by one, each acknowledged before the next."""
    for number in range(records):
        producer.produce("topic-0", b"%d" % number, partition=0)
        left = producer.flush(REQUEST_S)
        assert left == 0, "a record was not acknowledged"


def _io_bytes(cluster: Cluster) -> int:
    """Return the bytes that all nodes have read and written by system calls until now (Linux)."""
    total = 0
    for node in cluster.nodes.values():
        counts = dict(line.split(": ") for line in Path(f"/proc/{node.pid}/io").read_text().splitlines())
        total += int(counts["rchar"]) + int(counts["wchar"])
    return total
