"""`raftlog dev kill 2` and its like: what may be done to the nodes of a cluster that `raftlog dev` runs here."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.cli.dev_control import ENDED, ask, is_running
from raftlog.cli.exits import NOT_FOUND, UNREACHABLE, USAGE, Failure
from raftlog.cli.rows import Form, print_rows

TEMPORARY: Final = "raftlog-dev-"
"""How the names of the clusters' temporary folders begin."""
POINTER: Final = "data-folder"
"""The file in the temporary folder of a cluster with --data that names the cluster's folder."""
LAYOUT: Final = "dev.json"
"""The file in a cluster's folder with its addresses."""
HERE: Final = ("localhost", "127.0.0.1")
"""The hosts at which a cluster's nodes can be reached."""
ADDRESSES: Final = {"-b": "kafka", "--http": "http", "--registry": "registry"}
"""Names of a node's addresses in its state, by the options that take them."""
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
    folder = folder_of(data, port)
    ask(folder, "kill", node, timeout_s=timeout)
    print(f"node {node} of {folder} killed; `raftlog dev restart {node}{_where(data, port)}` starts it again")


def restart(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Start a node again on its data, and wait until it accepts clients. If it runs, it is killed first."""
    folder = folder_of(data, port)
    until = time.monotonic() + timeout
    before = ask(folder, "status", timeout_s=timeout)
    was_down = any(each["node"] == node and each["state"] == "down" for each in before)
    states = ask(folder, "restart", node, timeout_s=timeout)
    while (state := _state_of(states, node)) == "starting":
        if time.monotonic() > until:
            raise Failure(f"node {node} does not accept clients after {timeout:g} s", UNREACHABLE)
        time.sleep(POLL_S)
        states = ask(folder, "status", timeout_s=timeout)
    if state != "running":
        raise Failure(f"node {node} ended while starting; its log is {_of(states, node)['log']}")
    print(f"node {node} of {folder} {'started' if was_down else 'restarted'}")


def pause(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Pause a node (SIGSTOP): its connections stay open, without answers."""
    folder = folder_of(data, port)
    ask(folder, "pause", node, timeout_s=timeout)
    print(f"node {node} of {folder} paused; `raftlog dev resume {node}{_where(data, port)}` lets it continue")


def resume(node: Node, *, data: Data = None, port: Port = 0, timeout: Timeout = TIMEOUT_S) -> None:
    """Let a paused node continue (SIGCONT)."""
    folder = folder_of(data, port)
    ask(folder, "resume", node, timeout_s=timeout)
    print(f"node {node} of {folder} resumed")


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
    folder = folder_of(data, port)
    ask(folder, "stop", node, timeout_s=timeout)
    if node is None:
        print(ENDED.format(folder))
    else:
        print(
            f"node {node} of {folder} stopped; `raftlog dev restart {node}{_where(data, port)}` starts it again"
        )


def _where(data: Path | None, port: int) -> str:
    return f" --data {data}" if data else f" -p {port}" if port else ""


def _of(states: list[dict[str, Any]], node: int) -> dict[str, Any]:
    return next(each for each in states if each["node"] == node)


def _state_of(states: list[dict[str, Any]], node: int) -> str:
    return str(_of(states, node)["state"])


def folder_of(data: Path | None, port: int) -> Path:
    """Return the folder of the running cluster that is meant. Raise Failure if none is, or several could be."""
    if data is not None:
        ports = _ports_of(data)
        if port and ports and port not in ports:
            raise Failure(
                f"the cluster in {data} has Kafka's ports {', '.join(map(str, ports))}, not {port}", USAGE
            )
        return data
    running = running_folders()
    if port:
        running = [each for each in running if port in _ports_of(each)]
    if not running:
        which = f" with port {port}" if port else ""
        raise Failure(
            f"no `raftlog dev`{which} runs here for this user and TMPDIR; for another, name its folder: --data FOLDER",
            NOT_FOUND,
        )
    if len(running) > 1:
        choices = [f"-p {min(_ports_of(each), default='?')} ({each})" for each in running]
        raise Failure(f"several clusters run here: choose one by -p or --data: {', '.join(choices)}", USAGE)
    return running[0]


def running_folders() -> list[Path]:
    """Return the folders of this user's running clusters, also of those with --data."""
    return sorted({each for _, each in _folders() if _is_mine(each) and is_running(each)})


def remove_pointers(folder: Path) -> None:
    """Remove pointers to a folder that clusters which were killed have left, unless a cluster runs there."""
    if is_running(folder):
        return
    for temporary, pointed in _folders():
        if pointed == folder != temporary:
            with suppress(OSError):
                (temporary / POINTER).unlink()
                temporary.rmdir()


def _folders() -> Iterator[tuple[Path, Path]]:
    """Yield this user's temporary folders of clusters, each with the folder of the cluster's data."""
    for temporary in sorted(Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*")):
        if _is_mine(temporary):
            folder = temporary
            with suppress(OSError, ValueError):  # no pointer: the data is in the temporary folder
                folder = Path((temporary / POINTER).read_text())
            yield temporary, folder


def _is_mine(folder: Path) -> bool:
    """Return whether this user made the folder: any user may make a folder of that name, or a link to it."""
    try:
        return folder.lstat().st_uid == os.getuid()
    except OSError:  # its cluster ended
        return False


def logs_at(addresses: Collection[tuple[str, int]]) -> list[Path]:
    """Return the logs of the nodes of this user's running clusters that have such a host and port for Kafka."""
    return [Path(node["log"]) for states in _states(addresses) for node in states]


def is_node(process: int) -> bool:
    """Return whether a process is a node of a running cluster of this user."""
    return any(each["pid"] == process for states in _states(None) for each in states)


def running_at(option: str, addresses: Collection[tuple[str, int]] | None = None) -> str:
    """Return which nodes of running clusters answer, for a message; "" if none can be meant.

    `option`: of ADDRESSES. `addresses`: limits it to clusters with such a host and port for Kafka.
    """
    name = ADDRESSES[option]
    parts = []
    for states in _states(addresses):
        if not any(each.get(name) for each in states):
            continue  # it was started without this service
        there = [each for each in states if each["state"] == "running" and each.get(name)]
        nodes = ", ".join(str(each["node"]) for each in there)
        where = ",".join(each[name] for each in there[: None if option == "-b" else 1])
        said = f"node {nodes} answers" if len(there) == 1 else f"nodes {nodes} answer"
        parts.append(
            f"a `raftlog dev` runs here, {f'{said}: {option} {where}' if there else 'no node of it answers'}"
        )
    return "; ".join(parts)


def _states(addresses: Collection[tuple[str, int]] | None) -> list[list[dict[str, Any]]]:
    """Return the states of the nodes of each cluster with such a host and port for Kafka; with None, of all."""
    ports = None if addresses is None else {port for host, port in addresses if host in HERE}
    found = []
    for folder in running_folders():
        if ports is None or ports.intersection(_ports_of(folder)):
            with suppress(Failure):
                found.append(ask(folder, "status", timeout_s=ADVICE_S))
    return found


def _ports_of(folder: Path) -> list[int]:
    """Return the Kafka ports of a cluster, which need not answer; none if its layout cannot be read."""
    try:
        return [*json.loads((folder / LAYOUT).read_text())["kafka"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
