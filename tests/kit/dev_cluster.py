"""A cluster that is controlled as by `raftlog dev`, with the control in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import Any

from raftlog.cli.dev_control import Control, Controlled, DevNodes
from raftlog.testing.cluster import AdminCluster

SERVE_S = 0.05


class DevAdminCluster(Controlled, AdminCluster):
    """A cluster of nodes that reach the control."""


@contextmanager
def dev_cluster(nodes: int, **options: Any) -> Iterator[AdminCluster]:
    """Run a cluster, and serve what its nodes ask for."""
    with DevAdminCluster(nodes, **options) as running:
        control, ends = Control(running.directory, DevNodes(running)), Event()

        def serve() -> None:
            while not ends.is_set():
                control.serve(SERVE_S)

        serving = Thread(target=serve, daemon=True)
        serving.start()
        with closing(control):
            yield running
            ends.set()
            serving.join()
