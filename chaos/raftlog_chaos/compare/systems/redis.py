"""Redis Streams: a master and two replicas, each command synced to the append-only file before it is answered."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from raftlog.testing.ports import LOOPBACK
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.systems.daemons import Daemons
from raftlog_chaos.compare.systems.system import Missing, Refused

PROGRAM: Final = "redis-server"
PROBE_S: Final = 2.0
MAX_CLIENTS: Final = 11_000


class Redis(Daemons):
    """Node 1 is the master; without Sentinel no replica replaces it."""

    key = "redis"
    title = "Redis Streams"
    kinds = frozenset({"produce", "consume", "ack", "arrival", "connections", "queue"})
    acks = frozenset({"1", "all"})
    reads_disk = False
    hello = b"PING\r\n"

    @classmethod
    def version(cls) -> str:
        if shutil.which(PROGRAM) is None:
            raise Missing(f"there is no {PROGRAM} here")
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
        found = re.search(r"v=(\S+)", said)
        return found[1] if found else "of unknown version"

    def start(self) -> float:
        if self.nodes != 3:
            raise Refused("it has one master, which more replicas do not make faster")
        return super().start()

    def command(self, node: int) -> Sequence[str]:
        options = {
            "bind": LOOPBACK,
            "port": str(self.port(node)),
            "dir": str(self.node_folder(node)),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxclients": str(MAX_CLIENTS),
            "repl-diskless-sync-delay": "0",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [PROGRAM, *words, *(("--replicaof", LOOPBACK, str(self.port(1))) if node > 1 else ())]

    def is_ready(self) -> bool:
        """Return whether both replicas are online."""
        try:
            with socket.create_connection((LOOPBACK, self.port(1)), timeout=PROBE_S) as connection:
                connection.sendall(b"INFO replication\r\n")
                return connection.recv(1 << 16).count(b"state=online") == self.nodes - 1
        except OSError:
            return False

    def servers(self) -> Sequence[str]:
        """Return the master's address: replicas take no records."""
        return [f"{LOOPBACK}:{self.port(1)}"]

    def create_topic(self, name: str, partitions: int) -> None:
        """Return at once: Redis creates a stream with its first record."""

    def client(self, load: Load) -> Sequence[str]:
        return [
            sys.executable,
            "-m",
            f"raftlog_chaos.compare.clients.{'redis_queue' if load.kind == 'queue' else 'redis'}",
            msgspec.json.encode(load).decode(),
        ]
