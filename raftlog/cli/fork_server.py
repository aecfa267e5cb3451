"""A process that imports a node's modules once and forks nodes, for commands and tests that start several of them.

No event loop and no thread runs here, so a forked node behaves like a node that was started from a shell. It has its
own session, files, arguments and environment. Signals and exit codes are the same too.

It is started as `raftlog server --fork-nodes FD`, where FD is one end of a socket pair. The process at the other end
(`raftlog/testing/forked_process.py`) sends one JSON object a line and reads one line as the answer. `start` comes with
four file descriptors: the node's standard streams and a pipe. The fork becomes the node when it reads a byte from the
pipe. It ends if the pipe closes first, because the process that asked has then not heard of it. `wait` answers null
while a node runs, then its exit code, once:

    {"start": {"arguments": ["--config", "node.properties"], ...}}  →  {"pid": 7}, or {"error": "out of memory"}
    {"wait": 7}  →  {"status": null}, or {"status": 0}

A node that has ended stays a zombie until it is asked for, so its pid names no other process meanwhile. When the other
end closes, this process ends, and leaves the nodes alone: they watch their own standard input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from raftlog.base.readable import readable

MAX_LINE_BYTES: Final = 1 << 20
"""A longer request is the sender's fault."""

DESCRIPTORS: Final = 4
"""So many come with a start: the node's standard streams, and the pipe that lets it begin."""

IDLE_S: Final = 3.0
"""So long after the last request what later nodes may need is imported, too."""


class Start(NamedTuple):
    """A node to be started: the arguments of `raftlog server`, and what a process inherits."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    open_files: int | None
    """Its hard limit of file descriptors; None: this process's."""


def main(arguments: list[str]) -> None:
    """Serve the socket of the descriptor in the first argument; in a forked process, run the node."""
    control = socket.socket(fileno=int(arguments[0]))
    gc.disable()  # as for a node that starts by itself
    import_node()
    import raftlog.process

    gc.freeze()  # a collection in a fork would write to pages that all nodes share
    found = serve(control, raftlog.process.warm_up())
    if found is None:
        return
    start, (*streams, leash) = found
    if not os.read(leash, 1):
        return  # the requester does not have the node
    os.close(leash)
    become_node(start, streams)
    show_command_line([sys.executable, "-m", "raftlog", "server", *start.arguments])
    from raftlog.cli.server import main as run_node

    run_node(start.arguments)


def import_node() -> None:
    """Import what every node uses until it is ready, and for its first client."""
    import raftlog.cli.server
    import raftlog.faults.node_faults
    import raftlog.process

    with suppress(ImportError):
        import uvloop  # noqa: F401
    raftlog.process.prepare_first_requests()


def serve(control: socket.socket, idle_work: Iterator[None]) -> tuple[Start, list[int]] | None:
    """Answer requests until the other end closes, then return None. Between requests, do pieces of `idle_work`.

    In each forked process, return the node to be, and the descriptors that came with it.
    """
    while True:
        wait_for_request(control, idle_work)
        line, streams = read_request(control)
        if not line:
            return None
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if "wait" in request:
                answer = {"status": wait_for(request["wait"])}
            else:
                answer = {"pid": os.fork()}
        except OSError as error:
            answer = {"error": str(error)}
        if answer.get("pid") == 0:
            control.close()
            return Start(**request["start"]), streams
        for stream in streams:
            os.close(stream)
        with suppress(BrokenPipeError):  # the requester has ended; the next read shows that
            control.sendall(json.dumps(answer).encode() + b"\n")


def wait_for_request(control: socket.socket, idle_work: Iterator[None]) -> None:
    """Wait until there is something to read. `idle_work` begins once the nodes that were started have had time."""
    pause_s: float | None = IDLE_S
    while not readable([control], pause_s):
        for _ in idle_work:
            pause_s = 0.0
            break
        else:
            pause_s = None


def read_request(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next line with the descriptors that came with it; an empty line once the other end has closed.

    Raises ValueError for a line that is too long.
    """
    line, streams = b"", []
    while not line.endswith(b"\n"):
        try:
            received, descriptors, _, _ = socket.recv_fds(control, 65536, DESCRIPTORS)
        except ConnectionError:
            received, descriptors = b"", []
        streams += descriptors
        line += received
        if not received:
            return b"", streams
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a request may have at most {MAX_LINE_BYTES} bytes")
    return line, streams


def wait_for(pid: int) -> int | None:
    """Return the exit code of a node that has ended (minus the signal's number if it was killed), None if it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def become_node(start: Start, streams: list[int]) -> None:
    """Set a forked process up as `subprocess` would a new process."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.chdir(start.directory)
    os.environ.clear()
    os.environ.update(start.environment)
    if start.open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (start.open_files, start.open_files))


def show_command_line(words: list[str]) -> None:
    """Have `ps` show a command in place of this process's own, cut to the room that its arguments had."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = b"\0".join(map(os.fsencode, words))[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
