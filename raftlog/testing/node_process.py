"""One node as a process of its own: started, signalled, given faults, and reliably ended with its parent.

It watches its standard input, which closes when the parent is gone. A node with faults gets a socket there, so that it
can answer. Faults belong to the machine, not to the process: they are in force again when it is started again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from raftlog.base.config.files import format_properties
from raftlog.base.disk import make_folders, write_file
from raftlog.base.faults import CutOff, NodeFault, name_of
from raftlog.base.forks import keep_from_children
from raftlog.faults import node_faults
from raftlog.faults.node_faults import Command
from raftlog.testing.forked_process import ForkedProcess, start_forked
from raftlog.testing.hosts import Hosts
from raftlog.testing.ports import LOOPBACK
from raftlog.testing.progress import patient, signs_of_process, wait_until

ANSWER_TIMEOUT_S: Final = 30.0
LOG_TAIL_LINES: Final = 30
NOT_MADE_FOR_FAULTS: Final = "nodes of this cluster take no faults: make it with faults=True"
LIMITED: Final = 'ulimit -n "$0" && exec "$@"'
"""A shell's script: the same process runs the command with a limit of open files."""


class NodeProcess:
    """One node: its settings, its files, and its process, if it runs."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        *,
        settings: Mapping[str, str],
        port: int,
        hosts: Hosts | None = None,
        faults: bool = False,
    ) -> None:
        self.node_id = node_id
        self.port = port
        self.host = hosts.addresses[node_id].host if hosts else LOOPBACK
        self.directory = directory
        self.log_path = directory / "node.log"
        self.config_path = directory / "node.properties"
        self.paused = False
        self.open_files: int | None = None
        """The most file descriptors that the process may have; None: as many as this process."""
        self.forked = True
        """Whether the process is forked from a process that has imported raftlog, if possible."""
        self.options: tuple[str, ...] = ()
        """Further options of `raftlog server`."""
        self.environment: dict[str, str] = {}
        """Further variables of its next lives, which are then processes of their own."""
        self.python = sys.executable
        """The interpreter of a process that is not forked; that of another release's environment runs that release."""
        self._settings = dict(settings)
        self._inside: Callable[[int], AbstractContextManager[object]] = hosts.inside if hosts else nullcontext
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._faults: dict[str, NodeFault] | None = {} if faults else None
        self._line: socket.socket | None = None
        self._heard = b""
        self._asked = 0
        make_folders(directory)
        self.configure({})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Let its lives from now on have these settings too."""
        self._settings |= settings
        # the cluster's secret is in it, and passwords may be
        write_file(self.config_path, format_properties(self._settings), secret=True)

    def setting(self, name: str) -> str:
        """Return a setting; empty if it was not given."""
        return self._settings.get(name, "")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def folders(self) -> list[str]:
        """Its data folders, in the order in which it takes them itself."""
        folders = [each.strip() for each in self._settings["log.dirs"].split(",")]
        return list(dict.fromkeys([*folders, self._settings.get("metadata.log.dir") or folders[0]]))

    @property
    def can_be_hurt(self) -> bool:
        """Whether it does faults to itself, and writes down what it has not synced."""
        return self._faults is not None

    @property
    def is_cut_off(self) -> bool:
        """Whether it refuses connections with other nodes."""
        return self._faults is not None and name_of(CutOff()) in self._faults

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
        ours, theirs = socket.socketpair()
        keep_from_children(ours)
        with self.log_path.open("ab") as log, theirs, self._inside(self.node_id):
            streams = [theirs.fileno(), log.fileno(), log.fileno()]
            self._process = (
                self.forked and not self.environment and self._fork(streams)
            ) or self._start_alone(streams)
        self._line, self._heard = ours, b""
        self.paused = False

    def _fork(self, streams: Sequence[int]) -> ForkedProcess | None:
        return start_forked(
            self._arguments(), streams=streams, environment=environment_of_nodes(), open_files=self.open_files
        )

    def _start_alone(self, streams: Sequence[int]) -> subprocess.Popen[bytes]:
        limited = () if self.open_files is None else ("/bin/sh", "-c", LIMITED, str(self.open_files))
        return subprocess.Popen(  # noqa: S603 - our own interpreter and files
            [*limited, self.python, "-P", "-m", "raftlog", "server", *self._arguments()],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=environment_of_nodes() | self.environment,
            start_new_session=True,
        )

    def _arguments(self) -> list[str]:
        arguments = ["--config", str(self.config_path), "--exit-with-stdin", *self.options]
        if self._faults is not None:
            arguments.append("--enable-faults")
            for fault in self._faults.values():
                arguments += ["--fault", node_faults.write_line(fault).decode()]
        return arguments

    def hurt(self, name: str, fault: NodeFault | None) -> None:
        """Let the node inject a fault, or heal it (None), and wait until it has.

        A node that is stopped or paused does it when it continues. Raises TimeoutError, ValueError.
        """
        if self._faults is None:
            raise ValueError(NOT_MADE_FOR_FAULTS)
        if self._faults.get(name) == fault:
            return
        if fault is None:
            del self._faults[name]
        else:
            self._faults[name] = fault
        if self.running:
            self._tell(Command(inject=fault) if fault is not None else Command(heal=name))

    def _tell(self, command: Command) -> None:
        assert self._line is not None
        self._asked += 1
        command.id = self._asked
        self._line.settimeout(patient(ANSWER_TIMEOUT_S))
        try:
            self._line.sendall(node_faults.write_line(command) + b"\n")
            while not self.paused and self._next_answer() < command.id:
                continue
        except (BrokenPipeError, ConnectionResetError):
            pass  # the process ended

    def _next_answer(self) -> int:
        """Wait for the node's next answer; returns what it answers. ConnectionResetError when the process ends."""
        assert self._line is not None
        while b"\n" not in self._heard:
            received = self._line.recv(4096)
            if not received:
                raise ConnectionResetError
            self._heard += received
        line, _, self._heard = self._heard.partition(b"\n")
        reply = node_faults.read_reply(line)
        assert not reply.error, reply.error
        return reply.id

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the process to end and return its exit code. Raise Stalled when it makes no progress."""
        assert self._process is not None, f"node {self.node_id} was never started"
        signs = partial(signs_of_process, self.pid)
        wait_until(lambda: not self.running, f"node {self.node_id} ends", signs=signs)
        code = self._process.returncode
        assert code is not None, "it has ended"
        if self._line is not None:
            self._line.close()
            self._line = None
        return code

    def kill(self) -> None:
        """Kill -9, and wait until the process is gone."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self.wait()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


def environment_of_nodes() -> dict[str, str]:
    """Return this process's environment without raftlog's settings, which are not meant for these nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAFTLOG_")}


class Nodes(dict[int, NodeProcess]):
    """The nodes by their ids."""

    def __missing__(self, node_id: object) -> NodeProcess:
        raise ValueError(f"there is no node {node_id!r}: the nodes are {', '.join(map(str, self))}")
