"""`raftlog dev kill 2` and its like: what may be done to the nodes of a cluster that `raftlog dev` runs here."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.cli.dev_control import ask, is_running
from raftlog.cli.exits import NOT_FOUND, UNREACHABLE, USAGE, Failure
from raftlog.cli.rows import Form, print_rows

TEMPORARY: Final = "raftlog-dev-"
"""How the names of temporary folders begin. Each running cluster has one."""
POINTER: Final = "data-folder"
"""The file in the temporary folder of a cluster with --data that names the cluster's folder."""
ADVICE_S: Final = 1.0
"""How long a cluster may take to answer where it only adds to a message."""
POLL_S: Final = 0.05
COLUMNS: Final = ("node", "state", "pid", "kafka", "http")

Node = Annotated[int, typer.Argument(metavar="NODE", help="the node's id")]
AnyNode = Annotated[
    int | None, typer.Argument(metavar="[NODE]", help="the node's id; the whole cluster without it")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="the folder of the cluster, if it was started with --data")
]
Port = Annotated[
    int,
    typer.Option(
        "--port", "-p", metavar="PORT", help="a Kafka port of the cluster, if several run", show_default=False
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", "-m", metavar="S", min=0.1, max=3600, help="how many seconds to wait")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="how to print")]
Json = Annotated[bool, typer.Option("--json", "-J", help="-o json")]

TIMEOUT_S: Final = 60.0


def add_commands(app: typer.Typer) -> None:
    """Add the commands about nodes to `raftlog dev`."""
    for command in (kill, restart, pause, resume, status, stop):
        app.command(command.__name__)(command)


def kill(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Kill a node (kill -9), as a crash would end it."""
    ask(folder_of(data, port), "kill", node, timeout_s=timeout)
    print(f"node {node} killed; `raftlog dev restart {node}{_where(data, port)}` starts it again")


def restart(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Start a node again on its data, and wait until it accepts clients. If it runs, it is killed first."""
    folder = folder_of(data, port)
    until = time.monotonic() + timeout
    states = ask(folder, "restart", node, timeout_s=timeout)
    while (state := _state_of(states, node)) == "starting":
        if time.monotonic() > until:
            raise Failure(f"node {node} does not accept clients after {timeout:g} s", UNREACHABLE)
        time.sleep(POLL_S)
        states = ask(folder, "status", timeout_s=timeout)
    if state != "running":
        raise Failure(f"node {node} ended while starting; its log is {_of(states, node)['log']}")
    print(f"node {node} runs")


def pause(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Pause a node (SIGSTOP): its connections stay open, without answers."""
    ask(folder_of(data, port), "pause", node, timeout_s=timeout)
    print(f"node {node} paused; `raftlog dev resume {node}{_where(data, port)}` lets it continue")


def resume(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Let a paused node continue (SIGCONT)."""
    ask(folder_of(data, port), "resume", node, timeout_s=timeout)
    print(f"node {node} runs")


def status(
    *,
    data: Data = None,
    port: Port = 0,
    timeout: Timeout = TIMEOUT_S,
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """List the nodes: running, starting, paused or down, their processes, addresses and logs."""
    states = ask(folder_of(data, port), "status", timeout_s=timeout)
    print_rows(states, Form.JSON if json else output, COLUMNS)


def stop(node: AnyNode = None, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Stop a node in order, or the whole cluster; wait until it has ended."""
    ask(folder_of(data, port), "stop", node, timeout_s=timeout)
    if node is None:
        print("the cluster has ended")
    else:
        print(f"node {node} stopped; `raftlog dev restart {node}{_where(data, port)}` starts it again")


def _where(data: Path | None, port: int) -> str:
    return f" --data {data}" if data else f" -p {port}" if port else ""


def _of(states: list[dict[str, Any]], node: int) -> dict[str, Any]:
    return next(each for each in states if each["node"] == node)


def _state_of(states: list[dict[str, Any]], node: int) -> str:
    return str(_of(states, node)["state"])


def folder_of(data: Path | None, port: int) -> Path:
    """Return the folder of the running cluster that is meant. Raise Failure if none is, or several could be."""
    if data is not None:
        return data
    running = _running()
    if port:
        running = [each for each in running if port in _ports_of(each, TIMEOUT_S)]
    if not running:
        which = f" with port {port}" if port else ""
        raise Failure(
            f"no `raftlog dev`{which} runs here for this user and TMPDIR; for another, name its folder: --data FOLDER",
            NOT_FOUND,
        )
    if len(running) > 1:
        choices = [f"-p {min(_ports_of(each, ADVICE_S), default='?')} ({each})" for each in running]
        raise Failure(f"several clusters run here: choose one by -p or --data: {', '.join(choices)}", USAGE)
    return running[0]


def _running() -> list[Path]:
    """Return the folders of this user's running clusters, also of those with --data."""
    found = set()
    for temporary in sorted(Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*")):
        if not _is_mine(temporary):
            continue
        folder = temporary
        with suppress(OSError, ValueError):  # no pointer: the data is in the temporary folder
            folder = Path((temporary / POINTER).read_text())
        if _is_mine(folder) and is_running(folder):
            found.add(folder)
    return sorted(found)


def _is_mine(folder: Path) -> bool:
    """Return whether this user made the folder: any user may make a folder of that name, or a link to it."""
    try:
        return folder.lstat().st_uid == os.getuid()
    except OSError:  # its cluster ended
        return False


def logs_at(ports: Collection[int]) -> list[Path]:
    """Return the logs of the nodes of running clusters of this user, for these Kafka ports."""
    return [Path(node["log"]) for states in _states(ports, "kafka") for node in states]


def is_node(process: int) -> bool:
    """Return whether a process is a node of a running cluster of this user."""
    return any(each["pid"] == process for states in _states(None, "kafka") for each in states)


def running_at(kind: str, ports: Collection[int] | None) -> str:
    """Return which nodes of running clusters answer, for a message; "" if no cluster has such a port.

    `kind`: kafka, http or registry. `ports`: None for any cluster.
    """
    parts = []
    for states in _states(ports, kind):
        answering = [each for each in states if each["state"] == "running"]
        if any(not each.get(kind) for each in states):  # it was started without a registry
            continue
        where = ",".join(each[kind] for each in answering)
        nodes = ", ".join(str(each["node"]) for each in answering)
        said = (
            f"node{'s' if len(answering) > 1 else ''} {nodes} of it: {where}"
            if answering
            else "no node of it answers"
        )
        parts.append(f"a `raftlog dev` runs here, {said}")
    return "; ".join(parts)


def _states(ports: Collection[int] | None, kind: str) -> list[list[dict[str, Any]]]:
    """Return the states of the nodes of each cluster with such a port; with None, of all clusters."""
    found = []
    for folder in _running():
        with suppress(Failure):
            states = ask(folder, "status", timeout_s=ADVICE_S)
            if ports is None or any(_port(each[kind]) in ports for each in states):
                found.append(states)
    return found


def _ports_of(folder: Path, timeout_s: float) -> list[int]:
    try:
        return [_port(each["kafka"]) for each in ask(folder, "status", timeout_s=timeout_s)]
    except Failure:  # it ended meanwhile, or is busy
        return []


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
