"""The port of every system of a comparison: start, load, injure, end. It does not know the measurements."""

from __future__ import annotations

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from raftlog.testing.progress import patient
from raftlog_chaos.compare.loads import Kind, Load, Measured, run_client

MIN_PAUSE_S: Final = 0.01
READY_S: Final = 90.0
"""A system that is not ready after that time has failed to start."""


class Missing(Exception):
    """This machine lacks what the system needs. The message says what."""


class Refused(Exception):
    """A system does not offer what a part asks for, or refuses it."""


class Failed(Exception):
    """A system did not start, died, or did not do what was waited for."""


class System(ABC):
    """One system: `nodes` processes on loopback, with their files under `folder`."""

    key: ClassVar[str]
    title: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]
    """The loads that its client knows."""
    acks: ClassVar[frozenset[str]] = frozenset({"0", "1", "all"})
    compresses: ClassVar[bool] = False
    warm_up_s: ClassVar[float] = 1.0
    """So long it is loaded with large requests before it is measured."""
    warm_up_small_s: ClassVar[float] = 1.0
    """And so long with small ones."""
    variant: ClassVar[bool] = False
    """Whether it is another system with one setting changed, so that some parts would only say the same again."""
    reads_disk: ClassVar[bool] = True
    """Whether it reads records that consumers ask for from its disk."""
    restarts: ClassVar[bool] = True
    """Whether its nodes can be started again on their old files."""
    hello: ClassVar[bytes] = b""
    """The first bytes of a connection, which the server answers."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder = folder
        self.nodes = nodes
        self._topics: set[str] = set()

    # --- its life

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """Return its version. Raises Missing."""

    @abstractmethod
    def start(self) -> float:
        """Start it; returns the seconds until it was ready. Raises Missing or Failed."""

    @abstractmethod
    def close(self) -> None:
        """Kill all of its processes. May be called again."""

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """Return the processes that run."""

    def check_alive(self) -> Sequence[int]:
        """Return all of its processes. Raises Failed if a process has ended."""
        alive = self.pids()
        if len(alive) < self.nodes:
            raise Failed(f"{self.nodes - len(alive)} of its {self.nodes} processes ended")
        return alive

    # --- its load

    @abstractmethod
    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or its nearest equivalent, with replicas on all nodes. Raises Refused."""

    @abstractmethod
    def client(self, load: Load) -> Sequence[str]:
        """Return the command of the client process for a load."""

    def run(self, load: Load) -> Measured:
        """Run a load on its topic, which is created if there is none. Raises Refused, TooSlow, LoadFailed or Failed."""
        self._refuse(load)
        self.check_alive()
        if load.topic not in self._topics:
            self.create_topic(load.topic, load.partitions)
            self._topics.add(load.topic)
        load = msgspec.structs.replace(load, servers=list(self.servers()), hello=self.hello.hex())
        measured = run_client(self._command(load), load, pids=self.pids(), folder=self.folder)
        self.check_alive()  # two of three nodes are another system, whatever they reach
        return measured

    def _command(self, load: Load) -> Sequence[str]:
        if load.kind == "connections":
            text = msgspec.json.encode(load).decode()
            return [sys.executable, "-m", "raftlog_chaos.compare.clients.connections", text]
        return self.client(load)

    def _refuse(self, load: Load) -> None:
        if load.kind not in self.kinds:
            raise Refused(f"its client here has no load {load.kind!r}")
        if load.acks not in self.acks:
            raise Refused(f"it has nothing like acks={load.acks}")
        if load.codec != "none" and not self.compresses:
            raise Refused("it stores what comes, and its client does not compress")

    def servers(self) -> Sequence[str]:
        """Return the addresses that clients are given."""
        return ()

    # --- harm

    def kill_all(self) -> None:
        """Kill -9 all nodes at once."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.pids(), "all nodes are gone")

    def is_whole(self, topic: str) -> bool:
        """Return whether all replicas of a topic are in sync; a system without that information is whole once it is
        ready.
        """
        return True

    def slow_syncs(self, slower_s: float) -> None:
        """Let each sync of each node take that much longer. Called before the start."""
        raise Refused("its disk can't be made slower here")

    def kill(self, node: int) -> None:
        """Kill -9 a node. Nodes count from 1."""
        raise Refused("its nodes are not killed here")

    def pause(self, node: int) -> None:
        """Stop a node in its tracks (SIGSTOP)."""
        raise Refused("its nodes are not paused here")

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        raise Refused("its nodes are not paused here")

    def restart(self) -> float:
        """Start all nodes that do not run on their old files; returns the seconds until it was ready."""
        raise Refused("its nodes are not started again here")


def wait_for(holds: Callable[[], object], what: str, *, timeout_s: float = READY_S) -> float:
    """Look until `holds()`; returns the seconds that took. Raises Failed."""
    began = time.monotonic()
    deadline = began + patient(timeout_s)
    while True:
        looked_at = time.monotonic()
        if holds():
            return time.monotonic() - began
        if looked_at > deadline:
            raise Failed(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(min(1.0, max(MIN_PAUSE_S, time.monotonic() - looked_at)))


def drop_from_memory(folder: Path) -> None:
    """Write the files under a folder to disk, and let the kernel forget their pages."""
    os.sync()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                file = os.open(os.path.join(parent, name), os.O_RDONLY)
            except OSError:
                continue  # the system has removed it
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
