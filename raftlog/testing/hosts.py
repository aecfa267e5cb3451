"""The addresses of a cluster's nodes, and how a process gets there. Loopback, unless told otherwise."""

from __future__ import annotations

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


class Hosts(Protocol):
    """The hosts of nodes 1 to n."""

    @property
    def addresses(self) -> Mapping[int, Addresses]:
        """The address of each node."""

    def inside(self, node_id: int) -> AbstractContextManager[object]:
        """While it lasts, a process that this thread starts is on that node's host."""

    def release(self) -> None:
        """Give everything back, once no node runs; may be called again."""


class Loopback:
    """All on this machine's loopback, told apart by their ports."""

    def __init__(self, nodes: int) -> None:
        self._ports = HeldPorts(3 * nodes)
        ports = iter(self._ports.ports)
        self.addresses = {
            node_id: Addresses(LOOPBACK, next(ports), next(ports), next(ports))
            for node_id in range(1, nodes + 1)
        }

    def inside(self, node_id: int) -> AbstractContextManager[object]:
        """Every process is there already."""
        assert node_id in self.addresses
        return nullcontext()

    def release(self) -> None:
        self._ports.release()
