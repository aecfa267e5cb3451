"""Control of a cluster that `raftlog dev` runs: a socket in its folder, what it takes, and how to ask it.

The process that runs the cluster is the parent of its nodes, so it alone can start them again. It listens at `dev.sock`
in the cluster's folder. A request is a line of JSON, and so is the answer:

    {"action": "kill", "node": 2}  →  {"nodes": [{"node": 1, "state": "running", ...}, ...]}, or {"error": "..."}

`stop` without a node ends the cluster; the connection closes when the process has ended. The folder is closed to other
users, and so is the socket. Its path may be longer than the 107 bytes that a socket's may have, so both ends reach it
through the open folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from raftlog.base.dev_cluster import DevRefused
from raftlog.base.readable import readable
from raftlog.cli.exits import FAILED, NOT_FOUND, UNREACHABLE, Failure

SOCKET: Final = "dev.sock"
MAX_LINE_BYTES: Final = 64 * 1024
REQUEST_S: Final = 2.0
"""How long a caller has for its line."""
ANSWER_S: Final = 60.0
"""How long a node waits for the answer: an ordered stop takes its time."""
RESPONSE_FIRST_S: Final = 0.2
"""The time for a node's response to leave before the node is killed or paused."""
CONNECT_S: Final = 0.2
"""How long a node's port may take to accept: it is on this machine."""


DONE: Final = {
    "kill": ("killed", "restart {}` starts it again"),
    "pause": ("paused", "resume {}` lets it continue"),
    "restart": ("restarted", ""),
    "resume": ("resumed", ""),
    "stop": ("stopped", "restart {}` starts it again"),
}
"""What is printed of an action, and the command that undoes it."""
ENDED: Final = "the cluster in {} has ended"


class DevNodes:
    """The nodes of a cluster, and what may be done to each from outside. Each action is printed on standard error."""

    def __init__(self, cluster: Any, where: str = "") -> None:
        """`where`: the options by which commands find this cluster."""
        self._cluster = cluster
        self._where = where
        self.ended_on_request: set[int] = set()
        """Nodes that do not run because a caller wished it."""
        self.is_stopped = False

    def carry_out(self, action: str, node_id: int | None) -> list[dict[str, Any]]:
        """Do something to a node, or to all for `status` and `stop`, and return each node's state. Raise Failure."""
        if action == "stop" and node_id is None:
            self.is_stopped = True
        elif action != "status":
            self._act(action, node_id)
        return self.states()

    def _act(self, action: str, node_id: int | None) -> None:
        actions: dict[str, Callable[[int], object]] = {
            "kill": self._cluster.kill,
            "pause": self._cluster.pause,
            "restart": lambda node_id: self._cluster.restart(node_id, wait=False),
            "resume": self._cluster.resume,
            "stop": self._stop,
        }
        node = self._cluster.nodes.get(node_id)
        if node is None:
            known = ", ".join(map(str, self._cluster.nodes))
            raise Failure(f"there is no node {node_id}: the nodes are {known}", NOT_FOUND)
        if action not in actions:
            raise Failure(f"there is no action {action!r}", FAILED)
        if action != "restart" and not node.running:
            raise Failure(f"node {node_id} does not run; `raftlog dev restart {node_id}` starts it")
        if (action == "resume") != node.paused and action in ("pause", "resume"):
            raise Failure(f"node {node_id} is {'paused already' if node.paused else 'not paused'}")
        done, follow = DONE[action] if node.running or action != "restart" else ("started", "")
        actions[action](node.node_id)
        if action in ("kill", "stop"):
            self.ended_on_request.add(node.node_id)
        if action == "restart":
            self.ended_on_request.discard(node.node_id)
        advice = f"; `raftlog dev {follow.format(f'{node_id}{self._where}')}" if follow else ""
        with suppress(OSError):  # nobody reads it any more
            print(f"node {node_id} {done} on request{advice}", file=sys.stderr, flush=True)

    def _stop(self, node_id: int) -> None:
        if self._cluster.nodes[node_id].paused:
            self._cluster.resume(node_id)
        self._cluster.stop(node_id)

    def _registry_of(self, node_id: int) -> str:
        has_registry = self._cluster.addresses[node_id].schema_port
        return self._cluster.schema_registry_url(node_id) if has_registry else ""

    def states(self) -> list[dict[str, Any]]:
        """Return each node's state and addresses."""
        return [
            {
                "node": node_id,
                "state": _state_of(node),
                "pid": node.pid if node.running else None,
                "kafka": node.address,
                "http": self._cluster.admin_url(node_id),
                "registry": self._registry_of(node_id),
                "log": str(node.log_path),
            }
            for node_id, node in self._cluster.nodes.items()
        ]


def _state_of(node: Any) -> str:
    if not node.running:
        return "down"
    if node.paused:
        return "paused"
    try:
        socket.create_connection((node.host, node.port), CONNECT_S).close()
    except OSError:
        return "starting"
    return "running"


class Controlled:
    """A mixin for kinds of clusters: the nodes know the folder of the socket, and so reach the process."""

    def make_node(self, node_id: int, folder: Path, **options: Any) -> Any:
        """Return a node that does not run yet."""
        node = super().make_node(node_id, folder, **options)  # type: ignore[misc]  # a Cluster's
        node.options = ("--dev-folder", str(folder.parent))
        return node


class Control:
    """The socket at which a cluster is controlled. One caller is served at a time."""

    def __init__(self, folder: Path, nodes: DevNodes) -> None:
        self._folder = folder
        self._nodes = nodes
        self._callers: list[socket.socket] = []
        """The callers that wait for the end of the cluster."""
        self._listener = socket.socket(socket.AF_UNIX)
        (folder / SOCKET).unlink(missing_ok=True)  # that of a process that was killed
        with _reachable(folder) as address:
            self._listener.bind(address)
        (folder / SOCKET).chmod(0o600)
        self._listener.listen()
        self._listener.setblocking(False)

    def close(self) -> None:
        """Listen no longer."""
        self._listener.close()
        (self._folder / SOCKET).unlink(missing_ok=True)

    def serve(self, within_s: float) -> None:
        """Wait that long for a caller, and serve it."""
        if not readable([self._listener], within_s):
            return
        with suppress(OSError):  # the caller left
            caller, _ = self._listener.accept()
            caller.settimeout(REQUEST_S)
            caller.sendall(self._answer_to(_read_line(caller)))
            if self._nodes.is_stopped:
                self._callers.append(caller)  # it sees the end of this process
            else:
                caller.close()

    def _answer_to(self, line: bytes) -> bytes:
        from raftlog.testing.cluster import ClusterError

        answer: dict[str, Any]
        try:
            request = json.loads(line)
            answer = {"nodes": self._nodes.carry_out(str(request["action"]), request.get("node"))}
        except Failure as failure:
            answer = {"error": str(failure), "code": failure.code}
        except ClusterError as error:
            answer = {"error": str(error).partition("\n")[0], "code": FAILED}
        except (ValueError, KeyError, TypeError, AttributeError):
            answer = {"error": "the request is not understood: is it of another release?", "code": FAILED}
        return json.dumps(answer).encode() + b"\n"


def ask(folder: Path, action: str, node_id: int | None = None, *, timeout_s: float) -> list[dict[str, Any]]:
    """Ask the cluster in a folder for something, and return the states of its nodes. Raise Failure.

    Return after the process has ended if the cluster was asked to stop.
    """
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(timeout_s)
        try:
            with _reachable(folder) as address:
                caller.connect(address)
            caller.sendall(json.dumps({"action": action, "node": node_id}).encode() + b"\n")
            line = _read_line(caller)
            if action == "stop" and node_id is None:
                caller.recv(1)
            answer = json.loads(line)
        except TimeoutError:
            raise Failure(
                f"the cluster in {folder} has not answered for {timeout_s:g} s", UNREACHABLE
            ) from None
        except (OSError, ValueError):
            raise Failure(f"no `raftlog dev` runs in {folder}", UNREACHABLE) from None
    if "error" in answer:
        raise Failure(str(answer["error"]), int(answer.get("code", FAILED)))
    return list(answer["nodes"])


class DevSocket:
    """The process of a node's cluster, as the node's admin API reaches it; see `raftlog.base.dev_cluster`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def ask(self, action: str, node_id: int | None = None) -> list[dict[str, Any]]:
        """Act on a node, and return each node's state. Raise DevRefused."""
        try:
            return ask(self._folder, action, node_id, timeout_s=ANSWER_S)
        except Failure as failure:
            raise DevRefused(str(failure)) from None

    def ask_soon(self, action: str, node_id: int) -> None:
        """Request an action after `RESPONSE_FIRST_S`, and ignore its answer."""

        def ask_then() -> None:
            with suppress(DevRefused):
                self.ask(action, node_id)

        later = threading.Timer(RESPONSE_FIRST_S, ask_then)
        later.daemon = True
        later.start()


def is_running(folder: Path) -> bool:
    """Return whether a cluster in this folder can be asked."""
    try:
        with socket.socket(socket.AF_UNIX) as caller, _reachable(folder) as address:
            caller.settimeout(CONNECT_S)
            caller.connect(address)
    except OSError:
        return False
    return True


def stop_signals(cluster: Any) -> None:
    """Let all nodes end; a paused node has to continue for it."""
    for node in cluster.nodes.values():
        node.signal(signal.SIGTERM)
        if node.running and node.paused:
            cluster.resume(node.node_id)


@contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """Give a short path of the socket in a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _read_line(connection: socket.socket) -> bytes:
    """Return a line. Raise OSError if the other end closes or its line is too long."""
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(4096)
        line += received
        if not received or len(line) > MAX_LINE_BYTES:
            raise ConnectionError("no line came")
    return line
