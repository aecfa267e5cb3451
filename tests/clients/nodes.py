"""Clusters whose logs are looked through, and what lies on a node's disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raftlog.records.header import BatchHeader, iter_headers
from raftlog.testing.cluster import Cluster


@contextmanager
def watched(
    nodes: int, *, errors: Callable[[dict[str, Any]], bool] | None = None, **layout: Any
) -> Iterator[Cluster]:
    """Run a cluster, and fail at its end if a node logged a traceback, or an error that `errors` does not expect."""
    with Cluster(nodes, **layout) as cluster:
        yield cluster
        found = scandals(cluster, errors)
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


def scandals(
    cluster: Cluster, expected: Callable[[dict[str, Any]], bool] | None = None
) -> list[dict[str, Any]]:
    """Return the logged events that tell of a bug, or need a person and were not expected."""
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
