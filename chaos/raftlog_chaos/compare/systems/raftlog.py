"""raftlog itself, as its own test cluster runs it: with flush before an acknowledgement, and without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import raftlog
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.testing.cluster import Cluster, ClusterError
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.system import Failed


class Alone(Cluster):
    """Nodes that start as `raftlog server` starts them: each imports all of its code, as each Kafka starts its JVM."""

    forked = False


class Raftlog(KafkaWire):
    """Three nodes that sync before they acknowledge (`log.flush.policy=commit`, the default)."""

    key = "raftlog"
    title = "raftlog"
    policy = "commit"

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        super().__init__(folder, nodes)
        self.cluster = self._new_cluster()

    def _new_cluster(self, *, faults: bool = False) -> Cluster:
        return Alone(
            self.nodes,
            settings={"log.flush.policy": self.policy},
            voters=min(self.nodes, 3),
            directory=self.folder / "nodes",
            faults=faults,
        )

    def slow_syncs(self, slower_s: float) -> None:
        """Give each node the fault `slow-disk`, under which syncs run in threads."""
        self.cluster.close()
        self.cluster = self._new_cluster(faults=True)
        for node in self.cluster.nodes:
            self.cluster.trouble_disk(node, DiskTrouble(slow_s=slower_s))

    @classmethod
    def version(cls) -> str:
        return raftlog.__version__

    def start(self) -> float:
        try:
            return self.cluster.start()
        except ClusterError as error:
            raise Failed(str(error).splitlines()[0]) from None

    def close(self) -> None:
        self.cluster.close()

    def pids(self) -> Sequence[int]:
        return [node.pid for node in self.cluster.nodes.values() if node.running]

    @property
    def ports(self) -> dict[int, int]:
        return {each: self.cluster.nodes[each].port for each in sorted(self.cluster.running_ids())}

    def kill(self, node: int) -> None:
        self.cluster.kill(node)

    def pause(self, node: int) -> None:
        self.cluster.pause(node)

    def resume(self, node: int) -> None:
        self.cluster.resume(node)

    def restart(self) -> float:
        for node in self.cluster.nodes.values():
            if not node.running:
                node.start()
        try:
            return self.cluster.wait_until(self.all_see_each_other, "all nodes see each other")
        except ClusterError as error:
            raise Failed(str(error).splitlines()[0]) from None


class RaftlogOs(Raftlog):
    """The same with Kafka's weaker contract: the page cache counts as stored."""

    key = "raftlog-os"
    title = "raftlog, flush os"
    variant = True
    policy = "os"
