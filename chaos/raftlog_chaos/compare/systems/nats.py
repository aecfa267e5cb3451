"""NATS JetStream: three servers, streams on disk with three replicas.

The servers sync to disk every two minutes by default, and Debian's version has no setting to sync always.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from raftlog.base.disk import write_file
from raftlog.testing.ports import LOOPBACK
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.nats_wire import NatsConnection, NatsError, stream_of
from raftlog_chaos.compare.systems.daemons import Daemons
from raftlog_chaos.compare.systems.system import Failed, Missing, Refused, wait_for

PROGRAM: Final = "nats-server"
CREATE_S: Final = 30.0
PROBE_S: Final = 2.0
SETTINGS: Final = """\
server_name: node-{node}
listen: "{host}:{port}"
jetstream {{ store_dir: "{folder}" }}
cluster {{ name: compare, listen: "{host}:{inner}", routes: [{routes}] }}
"""


class Nats(Daemons):
    """Three servers of one cluster."""

    key = "nats"
    title = "NATS JetStream"
    kinds = frozenset({"produce", "consume", "ack", "arrival", "connections"})
    acks = frozenset({"0", "all"})
    hello = b'CONNECT {"verbose":false}\r\nPING\r\n'

    @classmethod
    def version(cls) -> str:
        if shutil.which(PROGRAM) is None:
            raise Missing(f"there is no {PROGRAM} here")
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
        return said.strip().rpartition(" ")[2].lstrip("v")

    def command(self, node: int) -> Sequence[str]:
        routes = ", ".join(
            f'"nats://{LOOPBACK}:{self.inner_port(each)}"' for each in range(1, self.nodes + 1)
        )
        path = self.node_folder(node) / "server.conf"
        settings = SETTINGS.format(
            node=node,
            host=LOOPBACK,
            port=self.port(node),
            inner=self.inner_port(node),
            folder=self.node_folder(node) / "data",
            routes=routes,
        )
        write_file(path, settings)
        return [PROGRAM, "--config", str(path)]

    def is_ready(self) -> bool:
        """Return whether every server hears JetStream's leader."""
        try:
            for address in self.servers():
                connection = NatsConnection(address, PROBE_S)
                try:
                    connection.request("$JS.API.INFO")
                    connection.request("$JS.API.STREAM.NAMES")
                finally:
                    connection.close()
        except (NatsError, OSError):
            return False
        return True

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a stream for each partition, and wait until all replicas are current."""
        try:
            connection = NatsConnection(self.servers()[0], CREATE_S)
            for partition in range(partitions):
                stream = stream_of(name, partition)
                replicas = min(3, self.nodes)
                wanted = {"name": stream, "subjects": [stream], "num_replicas": replicas, "storage": "file"}
                connection.request(f"$JS.API.STREAM.CREATE.{stream}", **wanted)
            for partition in range(partitions):
                stream = stream_of(name, partition)
                wait_for(partial(_is_current, connection, stream), f"stream {stream} has all replicas")
            connection.close()
        except NatsError as error:
            raise Refused(f"{partitions} streams: {error}") from None
        except TimeoutError:
            raise Failed(f"{partitions} streams were not created in time") from None

    def client(self, load: Load) -> Sequence[str]:
        return [
            sys.executable,
            "-m",
            "raftlog_chaos.compare.clients.nats",
            msgspec.json.encode(load).decode(),
        ]


def _is_current(connection: NatsConnection, stream: str) -> bool:
    cluster = connection.request(f"$JS.API.STREAM.INFO.{stream}").get("cluster", {})
    return bool(cluster.get("leader")) and all(each.get("current") for each in cluster.get("replicas", []))
