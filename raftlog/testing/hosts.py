"""The addresses of a cluster's nodes, the settings that follow, and how a process gets there.

Loopback by default.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from raftlog.testing.ports import LOOPBACK, HeldPorts


class Addresses(NamedTuple):
    """The address of a node."""

    host: str
    port: int
    """For clients and brokers."""
    controller_port: int
    admin_port: int
    schema_port: int = 0
    """Of the schema registry; 0: none."""


class Hosts(Protocol):
    """The hosts of nodes 1 to n."""

    @property
    def addresses(self) -> Mapping[int, Addresses]:
        """The address of each node."""

    def inside(self, node_id: int) -> AbstractContextManager[object]:
        """Return a context in which this thread starts processes on that node's host."""

    def release(self) -> None:
        """Give everything back, once no node runs; may be called again."""


class Loopback:
    """All on this machine's loopback, with different ports."""

    def __init__(self, nodes: int) -> None:
        self._ports = HeldPorts(4 * nodes)
        ports = iter(self._ports.ports)
        self.addresses = {
            node_id: Addresses(LOOPBACK, next(ports), next(ports), next(ports), next(ports))
            for node_id in range(1, nodes + 1)
        }

    def inside(self, node_id: int) -> AbstractContextManager[object]:
        """Return an empty context: every process runs on this host already."""
        assert node_id in self.addresses
        return nullcontext()

    def release(self) -> None:
        self._ports.release()


def own_settings(
    addresses: Mapping[int, Addresses], voters: int, *, admin: bool, listener: str
) -> dict[int, dict[str, str]]:
    """Return the settings of each node that follow from its place; the first `voters` nodes vote."""
    secret = secrets.token_hex(16)
    quorum = ",".join(
        f"{node_id}@{each.host}:{each.controller_port}"
        for node_id, each in addresses.items()
        if node_id <= voters
    )
    layout = {}
    for node_id, (host, port, controller_port, admin_port, schema_port) in addresses.items():
        listeners = f"{listener}://{host}:{port}"
        votes = node_id <= voters
        layout[node_id] = {
            "process.roles": "broker,controller" if votes else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": quorum,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": listener,
            "listeners": f"{listeners},CONTROLLER://{host}:{controller_port}" if votes else listeners,
            "advertised.listeners": listeners,
            "raftlog.cluster.secret": secret,
            "raftlog.admin.listener": f"{host}:{admin_port}" if admin else "",
            "raftlog.schema.registry.listener": f"{host}:{schema_port}" if admin and schema_port else "",
            "default.replication.factor": str(min(3, len(addresses))),
        }
    return layout
