"""Tools for tests, the demo and measurements: a real cluster in processes on loopback, with queries and faults.

The clusters can be imported from here, and are loaded only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from raftlog.testing.cluster import AdminCluster, Cluster
    from raftlog.testing.in_process import InProcessCluster
    from raftlog.testing.kafka_container import KafkaContainer
    from raftlog.testing.network_cluster import NetworkCluster
    from raftlog.testing.secure_cluster import SecureCluster

__all__ = ["AdminCluster", "Cluster", "InProcessCluster", "KafkaContainer", "NetworkCluster", "SecureCluster"]

_MODULES: Final = {
    "AdminCluster": "cluster",
    "Cluster": "cluster",
    "InProcessCluster": "in_process",
    "KafkaContainer": "kafka_container",
    "NetworkCluster": "network_cluster",
    "SecureCluster": "secure_cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
