"""One cluster for several processes that test at once, such as the workers of pytest-xdist.

The first process starts it and owns it. Each process holds a shared lock while it uses the cluster; the owner closes it
after the last lock. Locks end with their process, so a killed worker blocks no other, and the next process after the
owner's death starts another cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from raftlog.base.disk import make_folders, write_file
from raftlog.base.forks import keep_from_children
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.evidence import NodeAddress

ADDRESSES: Final = "nodes.json"


@contextmanager
def shared_cluster(folder: Path, make: Callable[[], AdminCluster]) -> Iterator[list[NodeAddress]]:
    """Give the nodes of the cluster that all processes with this folder share. Raises ClusterError.

    `make` returns a cluster that is not started.
    """
    make_folders(folder)
    cluster: AdminCluster | None = None
    with _lock(folder / "owner", fcntl.LOCK_UN) as owner, _lock(folder / "users", fcntl.LOCK_UN) as users:
        try:
            with _lock(folder / "start", fcntl.LOCK_EX):
                if _take_at_once(owner):
                    cluster = make()
                    cluster.start()
                    write_file(folder / ADDRESSES, json.dumps(cluster.node_addresses()))
                fcntl.flock(users, fcntl.LOCK_SH)
            yield [NodeAddress(*each) for each in json.loads((folder / ADDRESSES).read_text())]
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if cluster is not None:
                with _lock(folder / "start", fcntl.LOCK_EX):
                    fcntl.flock(
                        users, fcntl.LOCK_EX
                    )  # waits for present users of the cluster, and admits no others
                    cluster.close()
                    fcntl.flock(owner, fcntl.LOCK_UN)


@contextmanager
def _lock(path: Path, kind: int) -> Iterator[BinaryIO]:
    """Open a file to lock, and lock it; closing it lets go. A forked child has no part in the lock."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        keep_from_children(file)
        fcntl.flock(file, kind)
        yield file


def _take_at_once(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
