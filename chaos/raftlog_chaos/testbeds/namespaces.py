"""Nodes as processes, each in a network namespace of its own: links can be cut, one way too, slow and lossy.

This process, and with it the clients, enters the run's network while the place is open, and leaves it when it is
closed. The namespaces have no names: only this process and the processes in them hold them open. So none is left on the
machine however the run ends. How links are cut, and what that needs: `raftlog.testing.network`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from raftlog.testing.cluster import Cluster
from raftlog.testing.netns import Namespace
from raftlog.testing.network import Network, can_delay
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.testbeds import processes
from raftlog_chaos.testbeds.testbed import Ability, settings_by_node


class NamespaceCluster(Cluster):
    """A cluster on a network of its own."""

    network: Network

    def open_hosts(self, nodes: int) -> Network:
        """Make the network with hosts for the nodes. Raises Unavailable."""
        try:
            self.network = Network(nodes)
        except OSError as error:
            raise Unavailable(str(error)) from error
        return self.network


class NamespaceTestbed(processes.ProcessTestbed):
    """The faults that processes can bear, and links that are cut or bad."""

    name = "namespaces"

    def __init__(self, cluster: NamespaceCluster, chance: random.Random) -> None:
        super().__init__(cluster, chance)
        self.abilities = _abilities()
        self._network = cluster.network
        self._inside = True
        self._go(self._network.switch)

    def _go(self, namespace: Namespace) -> None:
        """Move this thread there, and its later threads and processes; idle threads of before are not reused."""
        namespace.enter()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())

    async def cut(self, source: int, target: int) -> None:
        await asyncio.to_thread(self._network.cut, source, target)

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        await asyncio.to_thread(self._network.slow, source, target, delay_s=delay_s, loss=loss)

    async def heal_links(self) -> None:
        await asyncio.to_thread(self._network.heal)

    async def close(self) -> None:
        if self._inside:
            self._inside = False
            self._go(self._network.outside)
        await super().close()


def why_not_here() -> str:
    """Return why this machine gives no network of its own, or ""."""
    try:
        Network(1).release()
    except OSError as error:
        return str(error)
    return ""


def _abilities() -> frozenset[Ability]:
    links = {Ability.CUT, Ability.CUT_ONE_WAY, Ability.LOSSY_LINK}
    own = processes.ABILITIES - {Ability.CLONE, Ability.RESTART_IN_TURN}
    return own | links | ({Ability.SLOW_LINK} if can_delay() else set())


def __getattr__(name: str) -> Any:
    """Find out the abilities of this place only on demand."""
    if name == "ABILITIES":
        return _abilities()
    raise AttributeError(name)


async def open_testbed(
    directory: Path, *, nodes: int, settings: Mapping[str, str], seed: int
) -> NamespaceTestbed:
    """Start a cluster in that folder and return it once every node sees all. Raises Unavailable, ClusterError."""
    own = settings_by_node(settings, nodes)
    cluster = NamespaceCluster(nodes, node_settings=own, directory=directory, faults=True)
    return await processes.started(NamespaceTestbed(cluster, random.Random(seed)))
