"""Clusters with checks of their logs, and the files on a node's disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raftlog.records.header import BatchHeader, iter_headers
from raftlog.testing.cluster import Cluster
from tests.clients.raw_client import ConnectionClosed, PartitionView, view_topic
from tests.kit.settings import SMALL


@contextmanager
def run_checked(
    nodes: int, *, errors: Callable[[dict[str, Any]], bool] | None = None, **layout: Any
) -> Iterator[Cluster]:
    """Run a cluster, and fail at its end if a node logged a traceback, or an error that `errors` does not expect."""
    settings = {**SMALL, **layout.pop("settings", {})}
    with Cluster(nodes, settings=settings, **layout) as cluster:
        yield cluster
        found = violations(cluster, errors)
        assert not found, told(found)


@contextmanager
def checked_logs(cluster: Cluster) -> Iterator[Cluster]:
    """Fail at the end if a node has ended, or logged a traceback or an error since the beginning."""
    before = len(violations(cluster))
    yield cluster
    assert cluster.running_ids() == set(cluster.nodes)
    found = violations(cluster)[before:]
    assert not found, told(found)


def events(cluster: Cluster, node_id: int) -> list[dict[str, Any]]:
    """Return what a node logged; a line that is no event is the event `line`."""
    found = []
    path = cluster.nodes[node_id].log_path
    text = path.read_text(errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"event": "line", "level": "error", "text": line})
    return found


def violations(
    cluster: Cluster, expected: Callable[[dict[str, Any]], bool] | None = None
) -> list[dict[str, Any]]:
    """Return the logged events that indicate a bug, or need an operator and were not expected."""
    return [
        event
        for node_id in cluster.nodes
        for event in events(cluster, node_id)
        if "Traceback" in str(event)
        or (event.get("level") == "error" and not (expected is not None and expected(event)))
    ]


def told(found: list[dict[str, Any]]) -> str:
    """Say what was found so that a traceback can be read."""
    return "\n".join(f"{name}: {text}" for event in found for name, text in event.items())


def batches_on_disk(cluster: Cluster, node_id: int, topic: str, partition: int = 0) -> list[BatchHeader]:
    """Return the headers of all batches of a replica."""
    return [header for _, header in iter_headers(bytes_on_disk(cluster, node_id, topic, partition))]


def bytes_on_disk(cluster: Cluster, node_id: int, topic: str, partition: int = 0) -> bytes:
    """Return a replica's log as it lies on disk, segment after segment."""
    return b"".join(
        path.read_bytes() for path in sorted(folder(cluster, node_id, topic, partition).glob("*.log"))
    )


def folder(cluster: Cluster, node_id: int, topic: str, partition: int = 0) -> Path:
    return cluster.nodes[node_id].directory / "data" / f"{topic}-{partition}"


def view(cluster: Cluster, topic: str, partition: int = 0) -> PartitionView | None:
    """Return a partition as the first running node knows it, None if none does."""
    for node_id in sorted(cluster.running_ids()):
        try:
            partitions = view_topic(cluster.nodes[node_id].address, topic)
        except (OSError, ConnectionClosed):
            continue
        if partitions is not None:
            return partitions[partition]
    return None


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """Return the leader of a partition, as soon as it runs."""
    found: list[int] = []

    def known() -> bool:
        seen = view(cluster, topic, partition)
        if seen is None or seen.leader not in cluster.running_ids():
            return False
        found.append(seen.leader)
        return True

    cluster.wait_until(known, f"{topic}-{partition} has a leader")
    return found[-1]


def wait_isr(cluster: Cluster, topic: str, isr: Iterable[int], partition: int = 0) -> None:
    """Wait until a partition's in-sync replicas are exactly these, as every running node knows them."""

    def reached() -> bool:
        try:
            views = [view_topic(cluster.nodes[node_id].address, topic) for node_id in cluster.running_ids()]
        except (OSError, ConnectionClosed):
            return False  # a node that has just been started
        return all(each is not None and each[partition].isr == frozenset(isr) for each in views)

    cluster.wait_until(reached, f"the ISR of {topic}-{partition} is {sorted(isr)}")


def restore_nodes(cluster: Cluster, *topics: str) -> None:
    """Start what does not run, resume what is paused, and wait until every replica of these topics is in sync."""
    for node_id, node in cluster.nodes.items():
        if node.paused:
            cluster.resume(node_id)
        if not node.running:
            node.start()
    cluster.wait_ready()
    for topic in topics:
        cluster.wait_until(lambda topic=topic: view(cluster, topic) is not None, f"{topic} is known")  # type: ignore[misc]
        partitions = view_topic(cluster.nodes[1].address, topic)
        assert partitions is not None, f"node 1 does not know {topic}"
        for index, partition in enumerate(partitions):
            wait_isr(cluster, topic, partition.replicas, index)
