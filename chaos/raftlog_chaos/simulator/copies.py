"""Nodes beside a cluster: newcomers, and copies of its nodes, with the same folders or with none."""

from __future__ import annotations

from raftlog.base.config import NodeConfig
from raftlog.node import Node, NodeFailed
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.disk import SimDisk
from raftlog_chaos.simulator.env import SimEnv
from raftlog_chaos.simulator.hosts import Host

DATA = "/data"


def copy_data(source: SimDisk, target: SimDisk, path: str = DATA) -> None:
    """Copy a folder with all that is in it, as a tool would that reads the files while the node runs."""
    with source.undisturbed():
        target.mkdir(path)
        for name in source.listdir(path):
            found = f"{path}/{name}"
            if source.is_folder(found):
                copy_data(source, target, found)
            else:
                target.write_file(found, source.read_file(found))
    target.sync_dir(path)


class ExtraNode:
    """A node beside those of the cluster, on a host of its own. It may stop itself, which is no failure."""

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self.host = host
        self.node: Node | None = None
        self._config = config
        self.host.start(self._run())

    async def _run(self) -> None:
        self.node = Node(self._config, SimEnv(self.host))
        try:
            await self.node.start()
        except NodeFailed:
            return
        await self.node.failed

    def end(self) -> None:
        """Kill it."""
        self.host.crash()


class NodeCopy(ExtraNode):
    """A second process of a cluster's node."""

    def __init__(self, cluster: SimCluster, node_id: int, name: str, *, with_data: bool) -> None:
        original, host = cluster.nodes[node_id], cluster.loop.host(name)
        if with_data:
            copy_data(original.host.disk, host.disk)
        super().__init__(host, original.config)
