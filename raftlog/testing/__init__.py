"""Tools for tests, the demo and measurements: a real cluster in processes on loopback, and how to ask and hurt it.

`Cluster`, `InProcessCluster` and `KafkaContainer` can be imported from here; nothing is loaded before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.testing.cluster import Cluster
    from raftlog.testing.in_process import InProcessCluster
    from raftlog.testing.kafka_container import KafkaContainer

__all__ = ["Cluster", "InProcessCluster", "KafkaContainer"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from raftlog.testing.cluster import Cluster

        return Cluster
    if name == "InProcessCluster":
        from raftlog.testing.in_process import InProcessCluster

        return InProcessCluster
    if name == "KafkaContainer":
        from raftlog.testing.kafka_container import KafkaContainer

        return KafkaContainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
