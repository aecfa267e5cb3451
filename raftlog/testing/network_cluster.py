"""A cluster on a network of its own, in which nodes can be cut off."""

from __future__ import annotations

from raftlog.testing.cluster import Cluster
from raftlog.testing.hosts import Hosts
from raftlog.testing.network import CLIENTS, Network


class NetworkCluster(Cluster):
    """A cluster on a network of its own, with links that can be cut. Needs Linux, root, `ip` and `nft`.

    Only threads inside the network namespace reach it: the thread that opened the cluster, and threads that it starts
    meanwhile. Raise OSError with the missing requirement.
    """

    _left = False

    def open_hosts(self, nodes: int) -> Hosts:
        """Make the network, and enter it. Raises OSError."""
        self.network = Network(nodes)
        self.network.switch.enter()
        self._cut_off: set[int] = set()
        return self.network

    def cut(self, node_id: int, *, from_clients: bool = True) -> None:
        """Let no packet reach a node, or leave it for others or clients, as if its cable were pulled.

        Not `from_clients`: it is cut off from the other nodes only, as by a switch between them.
        """
        self._cut_off.add(self.nodes[node_id].node_id)
        for other in (CLIENTS, *self.nodes) if from_clients else self.nodes:
            if other != node_id:
                self.network.cut(other, node_id)
        for other in self.nodes:
            if other != node_id:
                self.network.cut(node_id, other)
        self.note_fault(f"node {node_id} cut off from {'all' if from_clients else 'the other nodes'}")

    def heal(self) -> None:
        """Mend all links, too. Raises ClusterError."""
        self.network.heal()
        self._cut_off.clear()
        self.note_fault("links mended")
        super().heal()

    def running_ids(self) -> frozenset[int]:
        """Return the ids of the nodes that run, and are neither paused nor cut off."""
        return super().running_ids() - self._cut_off

    def leave(self) -> None:
        """Leave the network, in the thread that calls this."""
        if not self._left:
            self._left = True
            self.network.outside.enter()

    def close(self) -> None:
        """Leave the network, too, in the thread that calls this."""
        self.leave()
        super().close()
