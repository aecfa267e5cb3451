"""Logins of a node: how many a second, and their CPU time on the node. Each has a connection of its own.

The client is a few lines on sockets, since libraries' clients cost more than the node. It derives a user's key once.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from raftlog.base.disk import write_file
from raftlog.security.scram import salted
from raftlog.security.scram_client import ScramClient
from raftlog.testing.cluster import Cluster
from raftlog_chaos.bench import measure

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER: Final = "bench"
PASSWORD: Final = "a password of the bench"  # noqa: S105 (of a cluster that lives for seconds)
ITERATIONS: Final = 4_096
CLIENTS: Final = 4
TIMEOUT_S: Final = 10.0

_HANDSHAKE, _AUTHENTICATE = 17, 36
_HEADER: Final = struct.Struct(">ihhih")


@dataclass(frozen=True, slots=True)
class Logins:
    """The time that logins by one mechanism took."""

    mechanism: str
    count: int
    seconds: float
    node_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def per_cpu_s(self) -> float:
        """Logins for a second of the node's CPU time: the rate of one fully used core."""
        return self.count / max(self.node_cpu_s, 1 / measure.CLOCK_TICKS)


def measure_logins(count: int) -> Iterator[Logins]:
    """Start a node with a SASL listener, and yield what so many logins by each mechanism take."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.logins.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
    with closing(Cluster(1, settings=settings)) as cluster:
        address = _add_listener(cluster)
        cluster.start()
        _create_user(cluster.bootstrap_servers)
        port = _port(cluster)
        measure.wait_until_idle([node.pid for node in cluster.nodes.values()])
        for mechanism in MECHANISMS:
            yield _measure(cluster, (address, port), mechanism, count)


def _add_listener(cluster: Cluster) -> str:
    path, host = cluster.nodes[1].config_path, cluster.addresses[1].host
    lines = [
        f"{line},LOGINS://{host}:0" if line.startswith(("listeners=", "advertised.listeners=")) else line
        for line in path.read_text().splitlines()
    ]
    write_file(path, "\n".join(lines) + "\n", secret=True)
    return host


def _port(cluster: Cluster) -> int:
    for line in cluster.nodes[1].log_path.read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "listener_started" and event["listener"] == "LOGINS":
            return int(event["port"])
    raise AssertionError("a node that is ready has started its listeners")


def _create_user(servers: str) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no list of what it exports
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, ITERATIONS), PASSWORD.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for each in wanted:
        for made in admin.alter_user_scram_credentials([each]).values():
            made.result(TIMEOUT_S)


def _measure(cluster: Cluster, address: tuple[str, int], mechanism: str, count: int) -> Logins:
    pids = [node.pid for node in cluster.nodes.values()]
    client = Client(address, mechanism)
    client.log_in()  # modules are loaded, and the key derived
    before, began = measure.cpu_seconds(pids), time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(lambda _: client.log_in(), range(count)):
            pass
    return Logins(mechanism, count, time.monotonic() - began, measure.cpu_seconds(pids) - before)


class Client:
    """Logs in by one mechanism, again and again."""

    def __init__(self, address: tuple[str, int], mechanism: str) -> None:
        self._address = address
        self._mechanism = mechanism
        self._derive = lru_cache(salted)

    def log_in(self) -> None:
        """Connect, log in, and leave. Raises ConnectionError if that is refused, ServerUnproven."""
        with socket.create_connection(self._address, TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._mechanism.encode()
            _ask(connection, _HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
            if self._mechanism == "PLAIN":
                _authenticate(connection, f"\0{USER}\0{PASSWORD}".encode())
                return
            client = ScramClient(
                self._mechanism, USER, PASSWORD, nonce=secrets.token_hex(12), derive=self._derive
            )
            proof = client.final(_authenticate(connection, client.first()))
            client.verify(_authenticate(connection, proof))


def _authenticate(connection: socket.socket, said: bytes) -> bytes:
    """Say one message of a mechanism, and return the answer."""
    answer = _ask(connection, _AUTHENTICATE, 0, struct.pack(">i", len(said)) + said)
    size = max(0, struct.unpack_from(">h", answer, 2)[0])
    return answer[4 + size + 4 :]


def _ask(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """Return an answer behind its correlation id. Raises ConnectionError if it begins with an error."""
    connection.sendall(_HEADER.pack(10 + len(body), api_key, version, 0, -1) + body)
    with connection.makefile("rb") as answers:
        size = int.from_bytes(answers.read(4), "big")
        answer = answers.read(size)[4:]
    code = int.from_bytes(answer[:2], "big")
    if not answer or code:
        raise ConnectionError(f"the node refused the login (error code {code})")
    return answer
