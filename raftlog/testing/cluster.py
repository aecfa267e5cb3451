"""A cluster of node processes on loopback: started, killed, paused, resumed, restarted, and surely taken down.

Nodes are reached by the Kafka port and by signals only. They end with whoever holds the cluster, even when that one is
killed: each watches a pipe that closes then.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog.testing.probe import ClusterView, PartitionView, find_controller, view_cluster, view_topic

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.01
LOG_TAIL_LINES = 30


class ClusterError(RuntimeError):
    """The cluster did not do what was waited for; the message ends with the logs of the nodes concerned."""


class NodeProcess:
    """One node: its settings, its files, and the process that runs it, if one does."""

    def __init__(self, node_id: int, directory: Path, *, settings: Mapping[str, str], port: int) -> None:
        self.node_id = node_id
        self.port = port
        self.directory = directory
        self.log_path = directory / "node.log"
        self.config_path = directory / "node.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False
        directory.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of a running node."""
        assert self._process is not None, f"node {self.node_id} was never started"
        return self._process.pid

    def start(self) -> None:
        """Start the process; does not wait for it."""
        assert not self.running, f"node {self.node_id} is running"
        command = [
            sys.executable,
            "-m",
            "raftlog",
            "server",
            "--config",
            str(self.config_path),
            "--exit-with-stdin",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAFTLOG_")}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and files
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.paused = False

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.running:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the process to end and return its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None, f"node {self.node_id} was never started"
        code = self._process.wait(timeout_s)
        if self._process.stdin:
            self._process.stdin.close()
        return code

    def kill(self) -> None:
        """Kill -9, and wait until the process is gone."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self.wait(STOP_TIMEOUT_S)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    """Nodes 1 to `nodes` on loopback. Use as a context manager, or call `start` and `close`.

    `settings` go to every node, `node_settings` to single ones; the first `voters` nodes (default: all, at most five)
    are broker and controller, the others brokers only. `directory` is kept, a temporary one removed at the end.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        voters: int | None = None,
        directory: Path | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="raftlog-")) if directory is None else directory
        self._ports = HeldPorts(2 * nodes)
        self.nodes: dict[int, NodeProcess] = {}
        voters = min(nodes, 5) if voters is None else voters
        for node_id, own in _layout(nodes, voters, self._ports.ports).items():
            folder = self.directory / f"node-{node_id}"
            merged = {
                **own,
                "log.dirs": str(folder / "data"),
                **(settings or {}),
                **(node_settings or {}).get(node_id, {}),
            }
            self.nodes[node_id] = NodeProcess(
                node_id, folder, settings=merged, port=self._ports.ports[2 * (node_id - 1)]
            )
        atexit.register(self.close)

    # --- the whole

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Start all nodes and wait until they are ready; returns how many seconds that took."""
        began = time.monotonic()
        for node in self.nodes.values():
            node.start()
        self.wait_ready(timeout_s=timeout_s)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill whatever runs, remove temporary data, give the ports back. May be called again."""
        atexit.unregister(self.close)
        for node in self.nodes.values():
            node.signal(signal.SIGKILL)
        for node in self.nodes.values():
            node.kill()
        self._ports.release()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    # --- single nodes

    def kill(self, node_id: int) -> None:
        """Kill -9 a node."""
        self.nodes[node_id].kill()

    def stop(self, node_id: int, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask a node to stop (SIGTERM) and wait for it; returns its exit code."""
        self.nodes[node_id].signal(signal.SIGTERM)
        try:
            return self.nodes[node_id].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"node {node_id} did not stop within {timeout_s:g} s", [node_id]) from None

    def pause(self, node_id: int) -> None:
        """Stop a node in its tracks (SIGSTOP); its connections stay open."""
        self.nodes[node_id].signal(signal.SIGSTOP)
        self.nodes[node_id].paused = True

    def resume(self, node_id: int) -> None:
        """Let a paused node go on (SIGCONT)."""
        self.nodes[node_id].signal(signal.SIGCONT)
        self.nodes[node_id].paused = False

    def restart(self, node_id: int, *, wait: bool = True, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start a node again on its old data, killing it first if it runs."""
        self.nodes[node_id].kill()
        self.nodes[node_id].start()
        if wait:
            self.wait_ready(timeout_s=timeout_s)

    # --- what it is like

    def running_ids(self) -> frozenset[int]:
        """Return the ids of the nodes that run and are not paused."""
        return frozenset(node_id for node_id, node in self.nodes.items() if node.running and not node.paused)

    def view(self, node_id: int) -> ClusterView:
        """Return how a node sees the cluster. Raises OSError while it does not answer."""
        return view_cluster(LOOPBACK, self.nodes[node_id].port)

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Return a topic's partitions as the first answering node sees them; empty while none answers."""
        for node_id in sorted(self.running_ids()):
            try:
                return view_topic(LOOPBACK, self.nodes[node_id].port, topic)
            except OSError:
                continue
        return {}

    def controller_id(self) -> int | None:
        """Return the active controller as the first answering node knows it, or None."""
        for node_id in sorted(self.running_ids()):
            try:
                controller = find_controller(LOOPBACK, self.nodes[node_id].port)
            except OSError:
                continue
            if controller in self.running_ids():
                return controller
        return None

    def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every running node sees exactly the running nodes. Raises ClusterError."""
        waiting = set(self.running_ids())

        def ready() -> bool:
            for node_id in sorted(waiting):
                if not self.nodes[node_id].running:
                    raise self._error(f"node {node_id} ended while starting", [node_id])
                try:
                    view = self.view(node_id)
                except OSError:
                    return False
                if view.broker_ids != self.running_ids():
                    return False
                waiting.discard(node_id)
            return True

        self.wait_until(ready, "all nodes see each other", timeout_s=timeout_s)

    def wait_until(
        self, holds: Callable[[], bool], what: str, *, timeout_s: float = READY_TIMEOUT_S
    ) -> float:
        """Wait until `holds()`; returns the seconds it took. Raises ClusterError."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > timeout_s:
                raise self._error(f"not within {timeout_s:g} s: {what}", self.nodes)
            time.sleep(POLL_S)
        return time.monotonic() - began

    def _error(self, message: str, node_ids: Iterable[int]) -> ClusterError:
        tails = (f"--- node {node_id}: {self.nodes[node_id].log_tail()}" for node_id in node_ids)
        return ClusterError("\n".join([message, *tails]))


def _layout(nodes: int, voters: int, ports: Sequence[int]) -> dict[int, dict[str, str]]:
    """Return each node's own settings."""
    secret = secrets.token_hex(16)
    quorum = ",".join(f"{each}@{LOOPBACK}:{ports[2 * each - 1]}" for each in range(1, voters + 1))
    layout = {}
    for node_id in range(1, nodes + 1):
        listeners = f"PLAINTEXT://{LOOPBACK}:{ports[2 * node_id - 2]}"
        votes = node_id <= voters
        layout[node_id] = {
            "process.roles": "broker,controller" if votes else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": quorum,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{ports[2 * node_id - 1]}"
            if votes
            else listeners,
            "advertised.listeners": listeners,
            "raftlog.cluster.secret": secret,
            "default.replication.factor": str(min(3, nodes)),
        }
    return layout
