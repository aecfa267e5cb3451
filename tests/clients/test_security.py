"""Claims about stock clients that log in, and about what they are allowed and denied then (KIP-11, KIP-12, KIP-84)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from raftlog.base.config_security import STANDARD_AUTHORIZER
from raftlog.testing.cluster import Cluster
from raftlog.testing.ports import HeldPorts
from tests.clients.nodes import told, violations
from tests.kit.waits import PATIENCE_S, poll_until

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
}


class ClosedCluster:
    """Nodes whose listener CLIENTS wants a login, for clients and for brokers; `admin` may do everything there."""

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


@pytest.fixture(scope="module")
def closed() -> Iterator[ClosedCluster]:
    """Three nodes, with users for SCRAM as there are for PLAIN."""
    ports = HeldPorts(NODES)
    try:
        cluster = Cluster(NODES, settings=SETTINGS)
        for node, port in zip(cluster.nodes.values(), ports.ports, strict=True):
            written = node.config_path.read_text()
            more = rf"\1,CLIENTS://127.0.0.1:{port}"
            node.config_path.write_text(re.sub(r"(?m)^((?:advertised\.)?listeners=.*)$", more, written))
        with cluster:
            found = ClosedCluster(cluster, list(ports.ports))
            made = found.admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(
                        user, ScramCredentialInfo(mechanism, 4096), password.encode()
                    )
                    for user, password in PASSWORDS.items()
                    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
                ]
            )
            for each in made.values():
                each.result(PATIENCE_S)
            yield found
            bad = violations(cluster)
            assert not bad, told(bad)
    finally:
        ports.release()


def rule(
    user: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, permission)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_with_the_right_password_only(closed: ClosedCluster, mechanism: str) -> None:
    """A wrong password, and a user who is not there, are the same error."""
    found = AdminClient(closed.login("alice", mechanism)).list_topics(timeout=PATIENCE_S)
    assert len(found.brokers) == NODES
    assert found.topics == {}
    for user in ("alice", "nobody"):
        errors: list[Any] = []
        login = closed.login(user, mechanism, "a guess", error_cb=errors.append)
        client = AdminClient(login)
        poll_until(
            lambda client=client, errors=errors: (  # type: ignore[misc]
                client.poll(0.1) or any(each.code() == KafkaError._AUTHENTICATION for each in errors)
            ),
            "the login is refused",
        )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_with_the_right_password_only(closed: ClosedCluster, mechanism: str) -> None:
    """The other library of the protocol's own."""
    login = {
        "bootstrap_servers": closed.bootstrap_servers.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
    }
    consumer = KafkaConsumer(**login, sasl_plain_password=PASSWORDS["bob"])
    try:
        assert consumer.topics() == set()
    finally:
        consumer.close()
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**login, sasl_plain_password="a guess", bootstrap_timeout_ms=2000)


def _delivered(producer: Producer, topic: str) -> KafkaError | None:
    """Produce one record; returns the error of its delivery."""
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    poll_until(lambda: producer.poll(0.1) and outcomes, "a record is delivered or refused")
    return outcomes[0]


def test_a_producer_writes_where_it_is_allowed_to(closed: ClosedCluster) -> None:
    """Idempotent, with all replicas on other brokers; and a DENY wins over the rule that allows."""
    closed.create_topic("orders")
    closed.create_topic("secrets")
    closed.allow(rule("alice", AclOperation.WRITE, "orders"))
    producer = Producer(closed.login("alice", "SCRAM-SHA-256", **{"enable.idempotence": True}))
    assert _delivered(producer, "orders") is None
    refused = _delivered(producer, "secrets")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    closed.allow(rule("alice", AclOperation.WRITE, "orders", permission=AclPermissionType.DENY))
    refused = _delivered(producer, "orders")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert closed.take_back("alice") == 2


def test_a_consumer_needs_its_group_and_its_topic(closed: ClosedCluster) -> None:
    """A right that is missing is an error of poll; the rest goes on when the rule is there, and ends with it."""
    closed.create_topic("invoices")
    admin = Producer(closed.login("admin"))
    assert _delivered(admin, "invoices") is None
    closed.allow(rule("bob", AclOperation.READ, "invoices"))
    seen: list[Any] = []
    consumer = Consumer(
        closed.login("bob", "SCRAM-SHA-512", **{"group.id": "billing", "auto.offset.reset": "earliest"})
    )
    try:
        consumer.subscribe(["invoices"])

        def polled(code: int | None) -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                seen.append(message.error().code() if message.error() else None)
            return code in seen

        poll_until(lambda: polled(KafkaError.GROUP_AUTHORIZATION_FAILED), "the group is refused")
        assert None not in seen
        closed.allow(rule("bob", AclOperation.READ, "billing", ResourceType.GROUP))
        poll_until(lambda: polled(None), "a record is read")
        assert closed.take_back("bob") == 2
        seen.clear()
        assert _delivered(admin, "invoices") is None
        poll_until(lambda: polled(KafkaError.TOPIC_AUTHORIZATION_FAILED), "the topic is refused")
        assert None not in seen
    finally:
        consumer.close()


def test_only_who_may_alter_the_cluster_makes_rules(closed: ClosedCluster) -> None:
    """Neither a user nor ANONYMOUS, on the listener that needs no login."""
    everything = rule("alice", AclOperation.ALL, "*")
    plaintext = {"bootstrap.servers": closed.cluster.bootstrap_servers, "log_level": 0}
    for login in (closed.login("alice"), plaintext):
        client = AdminClient(login)
        (made,) = client.create_acls([everything]).values()
        with pytest.raises(KafkaException) as refused:
            made.result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert closed.take_back("alice") == 0


def test_users_and_rules_outlive_the_nodes(closed: ClosedCluster) -> None:
    """They are metadata: a node that starts again has them before it serves anybody."""
    closed.create_topic("ledger")
    closed.allow(rule("alice", AclOperation.WRITE, "ledger"))
    for node_id in closed.cluster.nodes:
        closed.cluster.restart(node_id)
    producer = Producer(closed.login("alice", "SCRAM-SHA-512"))
    assert _delivered(producer, "ledger") is None
    assert closed.take_back("alice") == 1
