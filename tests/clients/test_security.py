"""Claims about stock clients that log in, and about what they are allowed and denied then (KIP-11, KIP-12, KIP-84)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
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
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from raftlog.cli import exits
from tests.cli.live import CommandLine
from tests.clients.closed_cluster import MECHANISMS, NODES, PASSWORDS, ClosedCluster, closed_cluster
from tests.kit.waits import PATIENCE_S, poll_until


@pytest.fixture(scope="module")
def closed() -> Iterator[ClosedCluster]:
    """Three nodes, with users for SCRAM as there are for PLAIN."""
    with closed_cluster() as found:
        made = found.admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
                for user, password in PASSWORDS.items()
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ]
        )
        for each in made.values():
            each.result(PATIENCE_S)
        yield found


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
    """A wrong password and an unknown user are the same error."""
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


def _delivered_in_the_end(producer: Producer, topic: str, code: int | None) -> None:
    """Produce until it ends so: a rule is in force on the leader a moment after it is on the broker that was asked."""

    def reached() -> bool:
        error = _delivered(producer, topic)
        return code == (None if error is None else error.code())

    poll_until(reached, f"records to {topic} end with {code}")


def test_a_producer_writes_where_it_is_allowed_to(closed: ClosedCluster) -> None:
    """Idempotent, with all replicas on other brokers; and a DENY wins over the rule that allows."""
    closed.create_topic("orders")
    closed.create_topic("secrets")
    closed.allow(rule("alice", AclOperation.WRITE, "orders"))
    producer = Producer(closed.login("alice", "SCRAM-SHA-256", **{"enable.idempotence": True}))
    _delivered_in_the_end(producer, "orders", None)
    refused = _delivered(producer, "secrets")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    closed.allow(rule("alice", AclOperation.WRITE, "orders", permission=AclPermissionType.DENY))
    _delivered_in_the_end(producer, "orders", KafkaError.TOPIC_AUTHORIZATION_FAILED)
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

        def refused() -> bool:
            assert _delivered(admin, "invoices") is None
            return polled(KafkaError.TOPIC_AUTHORIZATION_FAILED)

        poll_until(refused, "the topic is refused")
    finally:
        consumer.close()


def test_an_expression_brings_what_its_user_may_describe(closed: ClosedCluster) -> None:
    """A member of the new protocol (KIP-848) is given and loses topics as rules come and go, while it polls."""
    for name in ("fleet-a", "fleet-b", "fleet-c"):
        closed.create_topic(name)
    closed.allow(
        rule("bob", AclOperation.READ, "fleet-a"),
        rule("bob", AclOperation.READ, "fleet", ResourceType.GROUP),
    )
    login = closed.login("bob", **{"group.id": "fleet", "group.protocol": "consumer"})
    consumer = Consumer(login)
    try:
        consumer.subscribe(["^fleet-.*"])

        def has(*topics: str) -> bool:
            message = consumer.poll(0.1)
            had = {each.topic for each in consumer.assignment()}
            error = None if message is None else message.error()
            # the broker that is asked first may learn of the group's ACL a moment after the broker that created it
            expected = KafkaError.TOPIC_AUTHORIZATION_FAILED if had else KafkaError.GROUP_AUTHORIZATION_FAILED
            assert error is None or error.code() == expected, error
            return had == set(topics)

        poll_until(lambda: has("fleet-a"), "the only topic that bob may see is assigned")
        closed.allow(rule("bob", AclOperation.READ, "fleet-b"))
        poll_until(lambda: has("fleet-a", "fleet-b"), "another one is assigned")
        closed.allow(rule("bob", AclOperation.DESCRIBE, "fleet-a", permission=AclPermissionType.DENY))
        poll_until(lambda: has("fleet-b"), "the one that bob may no longer see is taken away")
    finally:
        consumer.close()
        assert closed.take_back("bob") == 4


def test_creating_acls_needs_alter_on_the_cluster(closed: ClosedCluster) -> None:
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
    _delivered_in_the_end(producer, "ledger", None)
    assert closed.take_back("alice") == 1


def test_a_command_without_a_login_learns_that_the_listener_requires_it(closed: ClosedCluster) -> None:
    """By each of the ways in which commands ask."""
    for words in (("topic", "list"), ("quota", "list"), ("token", "list")):
        ran = CommandLine(closed.bootstrap_servers)(*words)
        assert ran.returncode == exits.DENIED
        assert f"raftlog: {closed.bootstrap_servers}: its listener requires a login" in ran.stderr, ran.stderr
