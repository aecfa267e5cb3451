"""A listener with TLS and logins, which brokers and clients use, and certificates that are renewed meanwhile.

The listener without either remains for starting and inspecting the nodes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from raftlog.testing.certificates import Certificates, store_settings
from raftlog.testing.cluster import Cluster
from raftlog.testing.progress import patient

LISTENER: Final = "SECURE"
USER, PASSWORD = "chaos", "a password for a run"
DAYS: Final = 2
"""For longer than any run; too short for any other use of its certificates."""
RENEW_EVERY_S: Final = 5.0
LOOK_S: Final = 0.3
ASK_S: Final = 5.0
SHOWN_WITHIN_S: Final = 10.0
"""A node looks for new files every three seconds."""
SETTINGS: Final = {
    "inter.broker.listener.name": LISTENER,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "ssl.client.auth": "requested",
}


class SecuredListener:
    """Made before the cluster starts; then `let_in` makes the user, and `renew_for_ever` renews certificates."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Raise CertificatesUnusable without the package for them."""
        self._cluster = cluster
        self._certificates = Certificates(folder)
        self.ports = cluster.add_listener(LISTENER, "SASL_SSL")
        for node_id, path in self._issue().items():
            cluster.nodes[node_id].configure(SETTINGS | store_settings(path, self._certificates.ca))
        self.bootstrap = ",".join(f"{node.host}:{self.ports[each]}" for each, node in cluster.nodes.items())
        self.renewed = 0
        """How often every node that ran showed its new certificate."""
        self.faults: list[str] = []

    @property
    def client_settings(self) -> Mapping[str, str]:
        """Return librdkafka's settings of a client that is let in."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self._certificates.ca),
        }

    def let_in(self, more_users: Sequence[str] = (), password: str = "") -> None:
        """Create the clients' user, and the ACLs that allow it topics, groups and transactions.

        `more_users` may log in with a password, but have no rights.
        """
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AclBinding,
            AclOperation,
            AclPermissionType,
            AdminClient,
            ResourcePatternType,
            ResourceType,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        rules = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{USER}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind, name in (
                (ResourceType.TOPIC, "*"),
                (ResourceType.GROUP, "*"),
                (ResourceType.TRANSACTIONAL_ID, "*"),
                (ResourceType.BROKER, "kafka-cluster"),
            )
        ]
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        users = [
            UserScramCredentialUpsertion(user, credential, word.encode())
            for user, word in ((USER, PASSWORD), *((each, password) for each in more_users))
        ]
        made = [*admin.create_acls(rules).values(), *admin.alter_user_scram_credentials([*users]).values()]
        for each in made:
            each.result(patient(30.0))

    async def renew_for_ever(self) -> None:
        """Give all nodes new certificates now and then; running nodes must show them soon."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            awaited = self._issue(renew=True)
            end_at = asyncio.get_running_loop().time() + patient(SHOWN_WITHIN_S)
            while awaited and asyncio.get_running_loop().time() < end_at:
                await asyncio.sleep(LOOK_S)
                for node_id, path in [*awaited.items()]:
                    is_down = node_id not in self._cluster.running_ids()
                    if is_down or await asyncio.to_thread(self._shows, node_id, path):
                        del awaited[node_id]
            self.faults += [f"node {each} does not show its new certificate" for each in awaited]
            self.renewed += 1

    def _issue(self, *, renew: bool = False) -> dict[int, Path]:
        """Give each node a new certificate, and return their files."""
        nodes = self._cluster.nodes
        names = [[f"node-{node_id}", node.host, "localhost"] for node_id, node in nodes.items()]
        return dict(zip(nodes, self._certificates.make(names, days=DAYS, renew=renew), strict=True))

    def _shows(self, node_id: int, path: Path) -> bool:
        address = self._cluster.nodes[node_id].host, self.ports[node_id]
        try:
            shown = ssl.get_server_certificate(address, timeout=ASK_S)
        except OSError:
            return False  # it is about to end, or to serve
        return path.read_text().startswith(shown)
