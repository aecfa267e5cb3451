"""A cluster with TLS, logins and rights, beside Spark: its admin makes topics and rules, its users have options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from raftlog.testing.secure_cluster import ADMIN, SecureCluster
from tests.kit.waits import PATIENCE_S, until


class Secured:
    """The topics of a cluster that only its users get into: `admin`, and `writer` and `reader` with what is allowed."""

    def __init__(self, cluster: SecureCluster) -> None:
        self.cluster = cluster
        self._admin = AdminClient(cluster.client_settings(ADMIN))

    def make(self, topic: str, partitions: int = 1) -> None:
        """Make a topic, and return when every node knows it."""
        for future in self._admin.create_topics([NewTopic(topic, partitions, 3)]).values():
            future.result(PATIENCE_S)
        self._wait_until_seen(topic, ADMIN)

    def allow(self, user: str, operation: AclOperation, topic: str) -> None:
        """Allow a user something, and return when every node does."""
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rule = AclBinding(ResourceType.TOPIC, topic, literal, f"User:{user}", "*", operation, allow)
        for future in self._admin.create_acls([rule]).values():
            future.result(PATIENCE_S)
        self._wait_until_seen(topic, user)

    def allow_transactions(self, user: str, prefix: str) -> None:
        """Allow a user the transactional ids and groups that begin with a prefix."""
        prefixed, allow = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
        rules = [
            AclBinding(kind, prefix, prefixed, f"User:{user}", "*", operation, allow)
            for kind, operation in (
                (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
                (ResourceType.GROUP, AclOperation.READ),
            )
        ]
        for future in self._admin.create_acls(rules).values():
            future.result(PATIENCE_S)

    def _wait_until_seen(self, topic: str, user: str) -> None:
        """Wait until every node shows a topic to a user."""
        for address in self.cluster.bootstrap_servers.split(","):
            settings = self.cluster.client_settings(user) | {"bootstrap.servers": address}
            until(
                lambda settings=settings: (
                    topic in AdminClient(settings).list_topics(timeout=PATIENCE_S).topics
                ),  # type: ignore[misc]
                f"{address} shows {topic} to {user}",
            )

    def fill(self, topic: str, values: Iterable[bytes]) -> None:
        """Write values to partition 0, and return when all replicas have them."""
        producer = Producer(self.cluster.client_settings(ADMIN))
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str) -> list[bytes]:
        """Return the values of partition 0."""
        own = {"group.id": "secured", "enable.partition.eof": True}
        consumer = Consumer(self.cluster.client_settings(ADMIN) | own)
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = []
            while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append(message.value())
            return found
        finally:
            consumer.close()

    @property
    def authority(self) -> str:
        """The text of the certificate that signed the nodes' certificates."""
        return self.cluster.certificates.ca.read_text()

    def options(self, user: str, **changed: str) -> dict[str, str]:
        """Return the options of a query as librdkafka names them."""
        settings = self.cluster.client_settings(user) | {"ssl.ca.pem": self.authority, **changed}
        del settings["ssl.ca.location"]
        return {f"kafka.{name}": value for name, value in settings.items()}

    def java_options(self, user: str) -> dict[str, str]:
        """Return the options of a query as Java's client names them."""
        settings = self.cluster.java_settings(user) | {"ssl.truststore.certificates": self.authority}
        del settings["ssl.truststore.location"]
        return {f"kafka.{name}": value for name, value in settings.items()}

    def login_file(self, user: str, folder: Path) -> str:
        """Write a file of a user's settings, and return its path."""
        path = folder / f"{user}.properties"
        settings = self.cluster.client_settings(user)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)
