"""A cluster with nodes that can become voters: they have a controller, and no node's config names them as voters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raftlog.testing.cluster import AdminCluster


class Joining(AdminCluster):
    """The first `voters` nodes are the voters of the config."""

    def __init__(self, nodes: int, *, voters: int, **more: Any) -> None:
        self._configured = voters
        super().__init__(nodes, voters=voters, **more)

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        host, port, controller_port, *_ = self.addresses[node_id]
        if node_id <= self._configured:
            return {}
        return {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        }

    def controller_of(self, node_id: int) -> str:
        """Return the address of a node's controller listener."""
        address = self.addresses[node_id]
        return f"{address.host}:{address.controller_port}"
