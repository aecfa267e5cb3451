"""The logs of replicas that left a broker, which has to let go of them soon afterwards.

A weak reference shows whether anything holds one: a chore's queue, a timer, a checkpoint, an idle session. Otherwise a
broker on which topics come and go would hold more and more of them.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final
from weakref import ref

if TYPE_CHECKING:
    from raftlog.base.types import TopicPartition
    from raftlog.node import Node
    from raftlog.replication.partition import Partition
    from raftlog.storage.log import Log
    from raftlog_chaos.simulator.cluster import SimCluster

LET_GO_S: Final = 5.0
"""The time in which a broker lets go of such a log, virtual seconds."""


class DepartedLogs:
    """The logs that left the brokers of a cluster since this was made."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._left: list[tuple[Node, TopicPartition, ref[Log]]] = []
        for sim_node in cluster.running():
            if sim_node.node is not None:
                self._watch(sim_node.node_id, sim_node.node)
        cluster.watchers.append(self._watch)

    def __len__(self) -> int:
        return len(self._left)

    def _watch(self, _node_id: int, node: Node) -> None:
        def note(partition: Partition) -> None:
            self._left.append((node, partition.name, ref(partition.log)))

        if node.broker is not None:
            node.broker.replicas.touched.discard_listeners.append(note)

    async def held(self) -> list[str]:
        """Wait for LET_GO_S, and return which logs are still held, except by killed nodes."""
        await asyncio.sleep(LET_GO_S)
        alive = [each.node for each in self._cluster.running() if each.node is not None]
        self._cluster.check()
        gc.collect()
        return [
            f"node {node.config.node_id} holds the log of {name}, which left it"
            for node, name, log in self._left
            if node in alive and log() is not None
        ]
