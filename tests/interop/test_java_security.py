"""Kafka's own tools make users and rules, over a login, and a Java client hears what it may not do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.security.scram import REFUSED
from tests.clients.closed_cluster import PASSWORDS, ClosedCluster, closed_cluster
from tests.interop.scripts import KafkaScripts
from tests.kit.waits import until

pytestmark = pytest.mark.java

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def closed() -> Iterator[ClosedCluster]:
    with closed_cluster() as found:
        yield found


def login(folder: Path, user: str, mechanism: str, module: str) -> str:
    """Write a client's settings; returns the file's name."""
    path = folder / f"{user}-{mechanism}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
        f' username="{user}" password="{PASSWORDS[user]}";\n'
    )
    return str(path)


def test_the_stock_tools_make_users_and_rules(
    scripts: KafkaScripts, closed: ClosedCluster, tmp_path: Path
) -> None:
    """As the guide shows it: a user of SCRAM, the rules of a producer, what they allow, and their end."""
    admin = login(tmp_path, "admin", "PLAIN", "plain.PlainLoginModule")
    alice = login(tmp_path, "alice", "SCRAM-SHA-512", "scram.ScramLoginModule")

    def say(tool: str, settings: str, *words: str) -> str:
        return scripts.run(
            tool, "--bootstrap-server", closed.bootstrap_servers, "--command-config", settings, *words
        )

    user = ("--entity-type", "users", "--entity-name", "alice")
    password = f"SCRAM-SHA-512=[password={PASSWORDS['alice']}]"
    assert "Completed updating" in say(CONFIGS, admin, "--alter", *user, "--add-config", password)
    assert "SCRAM-SHA-512=iterations=4096" in say(CONFIGS, admin, "--describe", *user)
    closed.create_topic("orders")
    assert "orders" not in say(TOPICS, alice, "--list")
    producer = ("--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "(principal=User:alice" in say(ACLS, admin, "--add", *producer)
    assert "operation=WRITE" in say(ACLS, admin, "--list", "--topic", "orders")
    until(lambda: "orders" in say(TOPICS, alice, "--list"), "alice sees the topic")
    refused = say(TOPICS, alice, "--delete", "--topic", "orders")
    assert "Topic authorization failed" in refused
    refused = say(ACLS, alice, "--list")
    assert "ClusterAuthorizationException" in refused or "Cluster authorization failed" in refused
    say(ACLS, admin, "--remove", "--force", *producer)
    until(lambda: "orders" not in say(TOPICS, alice, "--list"), "alice does not see it any more")


def test_the_stock_tool_makes_renews_and_ends_tokens(
    scripts: KafkaScripts, closed: ClosedCluster, tmp_path: Path
) -> None:
    """A client of the token has the rights of its owner, but makes no token, until the owner ends it (KIP-48)."""
    bob = login(tmp_path, "bob", "PLAIN", "plain.PlainLoginModule")
    alice = login(tmp_path, "alice", "PLAIN", "plain.PlainLoginModule")

    def say(settings: str, *words: str, tool: str = TOKENS) -> str:
        return scripts.run(
            tool, "--bootstrap-server", closed.bootstrap_servers, "--command-config", settings, *words
        )

    made = say(bob, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    token_id, proof = re.search(r"^(\S+)\s+(\S+)\s+User:bob\s+User:bob\s", made, re.MULTILINE).groups()  # type: ignore[union-attr]
    client = tmp_path / "token.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{token_id}" password="{proof}" tokenauth="true";\n'
    )
    closed.create_topic("claims")
    read = ("--allow-principal", "User:bob", "--operation", "Describe", "--topic", "claims")
    admin = login(tmp_path, "admin", "PLAIN", "plain.PlainLoginModule")
    say(admin, "--add", *read, tool=ACLS)
    until(lambda: "claims" in say(str(client), "--list", tool=TOPICS), "the token's client has bob's rights")
    assert "not allowed" in say(str(client), "--create", "--max-life-time-period", "-1")
    listed = ("--describe", "--owner-principal", "User:bob")
    for user in (bob, alice):
        assert token_id in say(user, *listed)
    renew = ("--renew", "--renew-time-period", "60000", "--hmac", proof)
    assert "Completed renew operation" in say(alice, *renew)
    assert "Completed expire operation" in say(bob, "--expire", "--expiry-time-period", "-1", "--hmac", proof)
    assert token_id not in say(bob, *listed)
    assert "DelegationTokenNotFoundException" in say(bob, *renew)
    assert REFUSED in say(str(client), "--list", tool=TOPICS)


def test_kafka_configs_sets_shows_and_removes_quotas(
    scripts: KafkaScripts, closed: ClosedCluster, tmp_path: Path
) -> None:
    """Of users, of client ids, of both together, of addresses, and their defaults; an invalid one is named."""
    admin = login(tmp_path, "admin", "PLAIN", "plain.PlainLoginModule")

    def say(*words: str) -> str:
        return scripts.run(
            CONFIGS, "--bootstrap-server", closed.bootstrap_servers, "--command-config", admin, *words
        )

    bob = ("--entity-type", "users", "--entity-name", "bob")
    his_client = (*bob, "--entity-type", "clients", "--entity-name", "app")
    every_client = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.7")
    rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152"
    assert "Completed updating" in say("--alter", *bob, "--add-config", rates)
    assert "Completed updating" in say("--alter", *his_client, "--add-config", "request_percentage=50")
    assert "Completed updating" in say("--alter", *every_client, "--add-config", "controller_mutation_rate=2")
    assert "Completed updating" in say("--alter", *address, "--add-config", "connection_creation_rate=10")
    shown = say("--describe", *bob)
    assert "producer_byte_rate=1048576.0" in shown and "consumer_byte_rate=2097152.0" in shown
    assert "request_percentage=50.0" in say("--describe", *his_client)
    assert "controller_mutation_rate=2.0" in say("--describe", *every_client)
    assert "connection_creation_rate=10" in say("--describe", *address)
    assert "Completed updating" in say("--alter", *bob, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in say("--describe", *bob)
    assert "must be more than 0" in say("--alter", *bob, "--add-config", "producer_byte_rate=0")
