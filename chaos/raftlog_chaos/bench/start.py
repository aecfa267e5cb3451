"""Measurements of starting: nodes from a new process, which has imported nothing, and the command line's first page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Final

_START: Final = """
import sys
from raftlog.testing.cluster import Cluster
Cluster.forked = sys.argv[2] == "forked"
cluster = Cluster(int(sys.argv[1]))
try:
    print(cluster.start())
finally:
    cluster.close()
"""

_IMPORT: Final = "import time, uvloop, raftlog.cli.server, raftlog.process; print(time.process_time())"


def ready_seconds(nodes: int, *, forked: bool) -> float:
    """Return the time in which a new process's first cluster is ready, from its first node's start."""
    command = [sys.executable, "-c", _START, str(nodes), "forked" if forked else "alone"]
    return float(subprocess.check_output(command))  # noqa: S603 - our own interpreter


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
