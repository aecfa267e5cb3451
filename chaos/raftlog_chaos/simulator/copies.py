"""Copies of a node beside it: a process with the same number on another machine, with the same folders or with none."""

from __future__ import annotations

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


class NodeCopy:
    """A second process of a cluster's node, on a host of its own. It may stop itself, which is no failure."""

    def __init__(self, cluster: SimCluster, node_id: int, name: str, *, with_data: bool) -> None:
        original = cluster.nodes[node_id]
        self.host: Host = cluster.loop.host(name)
        self.node: Node | None = None
        self._config = original.config
        if with_data:
            copy_data(original.host.disk, self.host.disk)
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
