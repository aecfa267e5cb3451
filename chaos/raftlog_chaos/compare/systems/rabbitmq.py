"""RabbitMQ with quorum queues: three nodes, each queue a Raft group of all three, synced before a confirm."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from raftlog.base.disk import make_folders, write_file
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog.testing.progress import patient
from raftlog_chaos.compare.amqp_wire import AmqpConnection, AmqpError
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.processes import Child
from raftlog_chaos.compare.systems.daemons import Daemons
from raftlog_chaos.compare.systems.system import READY_S, Failed, Missing, Refused, wait_for

HOME: Final = Path("/usr/lib/rabbitmq")
"""Where Debian's package has the programs. Those on the PATH would change to the user rabbitmq."""
PROGRAM: Final = HOME / "bin" / "rabbitmq-server"
CONTROL: Final = HOME / "bin" / "rabbitmqctl"
EPMD: Final = "epmd"
SETTINGS: Final = """\
listeners.tcp.default = {host}:{port}
cluster_formation.peer_discovery_backend = classic_config
{nodes}
"""
ON_LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"


class RabbitMq(Daemons):
    """Three nodes of one cluster, with a name server (epmd) of their own."""

    key = "rabbitmq"
    title = "RabbitMQ quorum queues"
    kinds = frozenset({"connections", "queue"})
    acks = frozenset({"all"})
    warm_up_s = 0.0
    """Its client here has no load that would warm it up, and its code is compiled before it runs."""
    hello = b"AMQP\0\0\x09\x01"

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        super().__init__(folder, nodes)
        self._names: Child | None = None

    @classmethod
    def version(cls) -> str:
        if not PROGRAM.exists() or shutil.which(EPMD) is None:
            raise Missing(f"there is no {PROGRAM} here")
        found = sorted((HOME / "lib").glob("rabbitmq_server-*"))
        return found[-1].name.partition("-")[2] if found else "of unknown version"

    def start(self) -> float:
        """Start the first node, which the others join; a node that finds none would be a cluster of its own."""
        self._held = HeldPorts(2 * self.nodes + 1)
        make_folders(self.folder)
        cookie = self.folder / ".erlang.cookie"
        write_file(cookie, secrets.token_hex(16))
        cookie.chmod(0o400)
        command = [EPMD, "-address", LOOPBACK, "-port", str(self._held.ports[-1])]
        self._names = Child(command, log_path=self.folder / "epmd.log")
        for node in range(1, self.nodes + 1):
            make_folders(self.node_folder(node))
        first_s = wait_for(lambda: self._begin(1), "the first node is ready")
        return first_s + self.restart()

    def _begin(self, node: int) -> bool:
        if node not in self._children:
            self._children[node] = self.new_node(node)
        return self._all_ready()

    def close(self) -> None:
        super().close()
        if self._names is not None:
            self._names.kill()

    def command(self, node: int) -> Sequence[str]:
        names = [
            f"cluster_formation.classic_config.nodes.{each} = {_name(each)}"
            for each in range(1, self.nodes + 1)
        ]
        settings = SETTINGS.format(host=LOOPBACK, port=self.port(node), nodes="\n".join(names))
        write_file(self.node_folder(node) / "rabbitmq.conf", settings)
        return [str(PROGRAM)]

    def environment(self, node: int) -> Mapping[str, str]:
        assert self._held is not None
        folder = self.node_folder(node)
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._held.ports[-1]),
            "RABBITMQ_NODENAME": _name(node),
            "RABBITMQ_DIST_PORT": str(self.inner_port(node)),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "none"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ON_LOOPBACK,
            "RUNNING_UNDER_SYSTEMD": "true",  # the program becomes the node, instead of starting it
        }

    def is_ready(self) -> bool:
        """Return whether every node that was started takes clients, and, once all were, is in the cluster."""
        try:
            for address in self.servers():
                AmqpConnection(address).close()
        except (AmqpError, OSError):
            return False
        return len(self._children) < self.nodes or self._control("await_online_nodes", str(self.nodes))

    def _control(self, *words: str) -> bool:
        command = [str(CONTROL), "--node", _name(1), *words]
        environment = {**os.environ, **self.environment(1)}
        try:
            done = subprocess.run(  # noqa: S603 - Debian's program
                command, env=environment, capture_output=True, check=False, timeout=patient(READY_S)
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a queue for each partition."""
        try:
            connection = AmqpConnection(self.servers()[0])
            for partition in range(partitions):
                connection.declare(f"{name}-{partition}")
            connection.close()
        except AmqpError as error:
            raise Refused(f"{partitions} queues: {error}") from None
        except TimeoutError:
            raise Failed(f"{partitions} queues were not created in time") from None

    def client(self, load: Load) -> Sequence[str]:
        return [
            sys.executable,
            "-m",
            "raftlog_chaos.compare.clients.rabbitmq",
            msgspec.json.encode(load).decode(),
        ]


def _name(node: int) -> str:
    return f"compare-{node}@localhost"
