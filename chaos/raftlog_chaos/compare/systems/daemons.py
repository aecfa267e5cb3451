"""The common part of systems with plain daemons as nodes, each started by a command, as Kafka and Redis are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from raftlog.base.disk import make_folders
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog_chaos.compare.processes import Child
from raftlog_chaos.compare.systems.system import Failed, System, wait_for


class Daemons(System):
    """Nodes 1 to `nodes`, a process each, with two ports each: for clients and for other nodes."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        super().__init__(folder, nodes)
        self._children: dict[int, Child] = {}
        self._held: HeldPorts | None = None

    @abstractmethod
    def command(self, node: int) -> Sequence[str]:
        """Return the command that starts a node; its folder exists."""

    def environment(self, node: int) -> Mapping[str, str]:
        """Return the environment variables of a node that differ from those of this process."""
        return {}

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether all nodes take part."""

    def start(self) -> float:
        """Start all nodes."""
        self._held = HeldPorts(2 * self.nodes)
        for node in range(1, self.nodes + 1):
            make_folders(self.node_folder(node))
        return self.restart()

    def restart(self) -> float:
        """Start the nodes that do not run."""
        for node in range(1, self.nodes + 1):
            if node not in self._children or not self._children[node].running:
                self._children[node] = self.new_node(node)
        return wait_for(self._all_ready, "all nodes take part")

    def new_node(self, node: int) -> Child:
        """Start a node."""
        log_path = self.node_folder(node) / "node.log"
        return Child(self.command(node), log_path=log_path, environment=self.environment(node))

    def _all_ready(self) -> bool:
        for node, child in self._children.items():
            if not child.running:
                raise Failed(f"node {node} ended: {child.last_words()[:300]}")
        return self.is_ready()

    def close(self) -> None:
        """Kill all nodes."""
        for child in self._children.values():
            child.kill()
        if self._held is not None:
            self._held.release()

    def node_folder(self, node: int) -> Path:
        """Return where a node keeps its files."""
        return self.folder / f"node-{node}"

    def port(self, node: int) -> int:
        """Return the port for clients of a node."""
        assert self._held is not None
        return self._held.ports[node - 1]

    def inner_port(self, node: int) -> int:
        """Return the port for other nodes of a node."""
        assert self._held is not None
        return self._held.ports[self.nodes + node - 1]

    def servers(self) -> Sequence[str]:
        """Return the addresses of the nodes that run, the first node's first."""
        running = sorted(node for node, child in self._children.items() if child.running and not child.paused)
        return [f"{LOOPBACK}:{self.port(node)}" for node in running]

    def pids(self) -> Sequence[int]:
        """Return the processes that run."""
        return [child.pid for child in self._children.values() if child.running]

    def kill(self, node: int) -> None:
        """Kill -9 a node."""
        self._children[node].kill()

    def pause(self, node: int) -> None:
        """Stop a node in its tracks."""
        self._children[node].pause()

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self._children[node].resume()
