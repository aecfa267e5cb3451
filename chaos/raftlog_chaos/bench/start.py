"""Measurements of starting: nodes from a new process without any imports, and the command line's first page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

_START: Final = """
import sys, time
from raftlog.testing.cluster import Cluster
Cluster.forked = sys.argv[2] == "forked"
cluster = Cluster(int(sys.argv[1]))
try:
    print(cluster.start())
finally:
    began = time.monotonic()
    cluster.close()
    print(time.monotonic() - began)
"""

_IN_PROCESS: Final = """
import time
began = time.monotonic()
from raftlog.testing import InProcessCluster
import raftlog.process
imported = time.monotonic()
cluster = InProcessCluster()
try:
    cluster.start()
    ready = time.monotonic()
finally:
    cluster.close()
print(ready - imported, time.monotonic() - ready, imported - began, sep="\\n")
"""

_IMPORT: Final = "import time, uvloop, raftlog.cli.server, raftlog.process; print(time.process_time())"


class Seconds(NamedTuple):
    """The times of a new process's first cluster."""

    ready: float
    """From its first node's start until every node sees all."""
    closed: float
    """From then until no process, thread or file of it is left."""
    imported: float = 0.0
    """The time for which a test's own process imports what nodes in it need."""


def of_processes(nodes: int, *, forked: bool) -> Seconds:
    """Start a cluster of processes and close it."""
    return _times([_START, str(nodes), "forked" if forked else "alone"])


def in_process() -> Seconds:
    """Start one node in a process that has raftlog imported, and close it."""
    return _times([_IN_PROCESS])


def _times(program: Sequence[str]) -> Seconds:
    command = [sys.executable, "-c", *program]
    return Seconds(*map(float, subprocess.check_output(command).split()))  # noqa: S603 - our own interpreter


def help_seconds() -> float:
    """Return the time from the command `raftlog --help` to its end."""
    began = time.perf_counter()
    subprocess.check_output([sys.executable, "-m", "raftlog", "--help"])
    return time.perf_counter() - began


def import_seconds(*, compiled: bool, rounds: int = 3) -> float:
    """Return the least CPU time in which a process loads a node's modules, from byte code or all from source.

    Byte code is kept in an empty folder, where the first round writes it; under PYTHONDONTWRITEBYTECODE none does.
    """
    with tempfile.TemporaryDirectory(prefix="raftlog-bench-") as empty:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": empty, "PYTHONDONTWRITEBYTECODE": "1"}
        if compiled:
            del environment["PYTHONDONTWRITEBYTECODE"]
        return min(
            float(subprocess.check_output([sys.executable, "-c", _IMPORT], env=environment))  # noqa: S603
            for _ in range(rounds)
        )
