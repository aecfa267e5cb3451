"""Real nodes that require logins, and give clients only the rights in ACLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.testing.cluster import Cluster
from raftlog.testing.ports import HeldPorts
from tests.clients.nodes import told, violations
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S

NODES = 3
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"admin": "admin's own", "alice": "in wonderland", "bob": "the builder"}
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        + ";"
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "delegation.token.secret.key": "the key of tokens",
    **SMALL,
}


class ClosedCluster:
    """Nodes with a listener CLIENTS that requires a login of clients and brokers; `admin` has all rights there."""

    def __init__(self, cluster: Cluster, ports: list[int]) -> None:
        self.cluster = cluster
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.admin = AdminClient(self.login("admin"))

    def login(
        self, user: str, mechanism: str = "PLAIN", password: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
            "reconnect.backoff.max.ms": 200,
            **more,
        }

    def create_topic(self, name: str) -> None:
        (created,) = self.admin.create_topics([NewTopic(name, 1, NODES)]).values()
        created.result(PATIENCE_S)

    def allow(self, *rules: AclBinding) -> None:
        for created in self.admin.create_acls(list(rules)).values():
            created.result(PATIENCE_S)

    def take_back(self, user: str) -> int:
        """Remove all rules about a user; returns how many there were."""
        asked = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        (removed,) = self.admin.delete_acls([asked]).values()
        return len(removed.result(PATIENCE_S))


@contextmanager
def closed_cluster() -> Iterator[ClosedCluster]:
    """Run three nodes, and fail at the end if one logged a traceback or an error."""
    ports = HeldPorts(NODES)
    try:
        cluster = Cluster(NODES, settings=SETTINGS)
        for node, port in zip(cluster.nodes.values(), ports.ports, strict=True):
            written = node.config_path.read_text()
            more = rf"\1,CLIENTS://127.0.0.1:{port}"
            node.config_path.write_text(re.sub(r"(?m)^((?:advertised\.)?listeners=.*)$", more, written))
        with cluster:
            yield ClosedCluster(cluster, list(ports.ports))
            bad = violations(cluster)
            assert not bad, told(bad)
    finally:
        ports.release()
