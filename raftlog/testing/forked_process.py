"""Node processes forked from a process that has imported raftlog already: `start_forked` instead of `subprocess.Popen`.

One fork server (`raftlog/cli/fork_server.py`) serves this whole process. Its forks inherit what it inherited, so it is
used only for nodes that would inherit the same. Other nodes have to be started without it, as all nodes where it cannot
run.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from raftlog.base.forks import keep_from_children
from raftlog.base.readable import readable
from raftlog.testing.progress import patient

MAX_LINE_BYTES: Final = 1 << 20
"""A longer request is not sent."""

MODULE: Final = "raftlog"

UNKNOWN_EXIT_CODE: Final = 255
"""The exit code of a node that ended after its fork server, which alone learns the real code."""

ROOM_FOR_ARGUMENTS: Final = "-" * 400
"""An argument of the fork server that reserves room: each fork writes its own command line over it."""

STARTUP_VARIABLES: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ", "SSL_", "OPENSSL_")
"""Prefixes of the environment variables that are read when an interpreter starts or a library is loaded."""

INHERITED_STATUS: Final = ("Umask", "SigBlk", "SigIgn", "Uid", "Gid", "Groups", "Cap")
"""Prefixes of the lines of /proc/thread-self/status that a new process inherits."""

ANSWER_S: Final = 60.0
"""The timeout of an answer. The first comes after all imports."""

CLOSE_S: Final = 5.0


class ForkServerGone(Exception):
    """The fork server does not answer, or says that it cannot fork."""


class Inherited(NamedTuple):
    """The properties that a new process inherits, except what each fork is given."""

    interpreter: str
    environment: dict[str, str]
    niceness: int
    cores: frozenset[int]
    namespaces: tuple[str, ...]
    kernel: tuple[str, ...]
    """Its limits, its control group, and its umask, signals, users and capabilities, as /proc has them."""


def inherited(environment: Mapping[str, str]) -> Inherited | None:
    """Return what a process with this environment would inherit from this thread; None without a /proc."""
    own = Path("/proc/thread-self")
    try:
        status = (own / "status").read_text()
        return Inherited(
            sys.executable,
            {name: value for name, value in environment.items() if name.startswith(STARTUP_VARIABLES)},
            os.getpriority(os.PRIO_PROCESS, 0),
            frozenset(os.sched_getaffinity(0)),
            tuple(os.readlink(own / "ns" / each) for each in ("net", "mnt")),
            (
                (own / "limits").read_text(),
                (own / "cgroup").read_text(),
                *(line for line in status.splitlines() if line.startswith(INHERITED_STATUS)),
            ),
        )
    except OSError:
        return None


class ForkedProcess:
    """A forked node, to be handled as a `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int, descriptor: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._descriptor = descriptor
        """A pidfd: readable once the process has ended, and never another's."""

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number if it was killed; None while the process runs."""
        with self._server.lock:
            if self.returncode is None and readable([self._descriptor], 0):
                try:
                    self.returncode = self._server.ask({"wait": self.pid})["status"]
                except ForkServerGone:
                    self.returncode = UNKNOWN_EXIT_CODE
                os.close(self._descriptor)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, signal.Signals(number))

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._descriptor)


class ForkServer:
    """A fork server, which is started with this object and asked over a socket."""

    def __init__(self, environment: Mapping[str, str], identity: Inherited) -> None:
        self.identity = identity
        self.lock = Lock()
        """Held for a request and its response, so that threads do not mix theirs on the socket."""
        self.is_replaceable = False
        """Whether another fork server is worth a try: this one has answered, or was ended before it could."""
        self._control, theirs = socket.socketpair()
        keep_from_children(self._control)
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", MODULE, "server", "--fork-nodes", number, ROOM_FOR_ARGUMENTS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._control.fileno() >= 0 and self._process.poll() is None

    def start(self, start: Mapping[str, Any], streams: Sequence[int]) -> ForkedProcess:
        """Fork a node. Raises ForkServerGone or OSError, and then no node has begun or will."""
        waits_at, released_by = os.pipe()
        try:
            with self.lock:
                pid = self.ask({"start": start}, [*streams, waits_at])["pid"]
                node = ForkedProcess(self, pid, os.pidfd_open(pid))
            os.write(released_by, b"\n")  # only now does the node begin
        finally:
            os.close(waits_at)
            os.close(released_by)
        return node

    def ask(self, request: Mapping[str, Any], streams: Sequence[int] = ()) -> dict[str, Any]:
        """Return the answer to a request. The caller holds the lock. Raises ForkServerGone.

        An interrupt meanwhile ends the fork server: its late answer would pass for the next request's.
        """
        line = json.dumps(request).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ForkServerGone("the request is too long")
        try:
            found = self._exchange(line, streams)
        except OSError as error:
            self._kill()
            raise ForkServerGone(str(error)) from error
        except BaseException:
            self.is_replaceable = True
            self._kill()
            raise
        self.is_replaceable = True
        if "error" in found:
            raise ForkServerGone(found["error"])
        return found

    def _exchange(self, line: bytes, streams: Sequence[int]) -> dict[str, Any]:
        self._control.settimeout(patient(ANSWER_S))
        sent = socket.send_fds(self._control, [line], list(streams)) if streams else 0
        self._control.sendall(line[sent:])
        answer = b""
        while not answer.endswith(b"\n"):
            received = self._control.recv(4096)
            if not received:
                raise ConnectionError("it ended")
            answer += received
        found: dict[str, Any] = json.loads(answer)
        return found

    def _kill(self) -> None:
        """End the fork server, even if it is stopped; nodes keep running. `close` waits for its end."""
        self._control.close()
        self._process.kill()

    def close(self) -> None:
        """End the fork server; nodes go on."""
        self._control.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:  # perhaps it was stopped by a signal
            self._process.kill()
            self._process.wait()


_lock = Lock()
_server: ForkServer | None = None
_is_unusable = not hasattr(os, "pidfd_open")


def _begin_anew() -> None:
    """Leave the fork server to the parent process; a thread of it may have held the lock."""
    global _lock, _server
    _lock, _server = Lock(), None


os.register_at_fork(after_in_child=_begin_anew)


def fork_server(environment: Mapping[str, str]) -> ForkServer | None:
    """Return the fork server for nodes with this environment, started if there is none; None if they cannot use one.

    A fork server that ended before its first answer is not restarted.
    """
    global _server, _is_unusable  # noqa: PLW0603 - one for the process
    identity = None if _is_unusable else inherited(environment)
    if identity is None:
        return None
    with _lock:
        if _server is not None and not _server.runs:
            atexit.unregister(_server.close)
            _is_unusable = not _server.is_replaceable
            _server.close()
            _server = None
        if _server is None and not _is_unusable:
            _server = ForkServer(environment, identity)
            atexit.register(_server.close)
        return _server if _server is not None and _server.identity == identity else None


def start_forked(
    arguments: Sequence[str],
    *,
    streams: Sequence[int],
    environment: Mapping[str, str],
    open_files: int | None = None,
) -> ForkedProcess | None:
    """Start `raftlog server` with these arguments in a session of its own; None: it has to be started without a fork.

    `streams`: the descriptors of its standard input, output and error.
    """
    server = fork_server(environment)
    if server is None:
        return None
    start = {"arguments": list(arguments), "environment": dict(environment), "open_files": open_files}
    try:
        return server.start({**start, "directory": os.getcwd()}, streams)
    except (ForkServerGone, OSError):
        return None
