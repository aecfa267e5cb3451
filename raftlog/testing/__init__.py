"""Tools for tests, the demo and measurements: a real cluster in processes on loopback, and how to ask and hurt it.

`Cluster` and `KafkaContainer` can be imported from here; nothing is loaded before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.testing.cluster import Cluster
    from raftlog.testing.kafka_container import KafkaContainer

__all__ = ["Cluster", "KafkaContainer"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from raftlog.testing.cluster import Cluster

        return Cluster
    if name == "KafkaContainer":
        from raftlog.testing.kafka_container import KafkaContainer

        return KafkaContainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
