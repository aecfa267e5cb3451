"""Real nodes with TLS for brokers and clients: librdkafka with and without certificates, logins, ACLs, renewal."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from raftlog.testing.cluster import AdminCluster
from tests.clients.nodes import events, told, violations, wait_isr
from tests.clients.with_confluent import Confluent
from tests.kit.certificates import HOST, Authority
from tests.kit.waits import PATIENCE_S

LARGE = 8_000_000
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="hush-bob";'
RENEWAL_FAILED = "tls_renewal_failed"


class Secured(NamedTuple):
    """Three nodes. PLAINTEXT is for looking at them, SSL is also how brokers reach each other."""

    cluster: AdminCluster
    authority: Authority
    keystores: dict[int, Path]
    folder: Path

    def port(self, listener: str, node_id: int = 1) -> int:
        """Return the port of a listener, which the node chose."""
        return next(
            int(each["port"])
            for each in events(self.cluster, node_id)
            if each["event"] == "listener_started" and each["listener"] == listener
        )

    def client(self, listener: str = "SSL", **settings: Any) -> Confluent:
        """Return librdkafka at a listener; of the settings' names _ stands for a dot."""
        client = Confluent(self.cluster.nodes[1].address)  # where the test itself looks at topics
        client.settings["bootstrap.servers"] = f"{HOST}:{self.port(listener)}"
        protocol = {"SSL": "ssl", "LOGINS": "sasl_ssl", "PLAINTEXT": "plaintext"}[listener]
        client.settings |= {"security.protocol": protocol}
        if listener != "PLAINTEXT":
            client.settings |= {"ssl.ca.location": str(self.authority.path)}
        client.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        return client

    def reasons(self, event: str, node_id: int = 1) -> str:
        """Return what a node says of an event, all times together."""
        return " | ".join(
            str(each.get("reason")) for each in events(self.cluster, node_id) if each["event"] == event
        )

    def wait_for_reason(self, event: str, reason: str, again: Callable[[], object] = lambda: None) -> None:
        """Wait until a node has said so; lines are limited, so have it happen `again`."""

        def said() -> bool:
            again()
            return reason in self.reasons(event)

        self.cluster.wait_until(said, f"{event} says {reason}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Checked at the end: no line needs an operator, except about files that a test spoiled."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    keystores = {node_id: authority.issue(f"node-{node_id}") for node_id in (1, 2, 3)}
    settings = {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGINS:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": PLAIN_USERS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:bob",
        "message.max.bytes": str(2 * LARGE),
    }
    cluster = AdminCluster(
        3,
        settings=settings,
        node_settings={
            node_id: authority.settings(
                keystore,
                client_auth="requested",
                principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
            )
            for node_id, keystore in keystores.items()
        },
    )
    for node in cluster.nodes.values():
        lines = dict(line.split("=", 1) for line in node.config_path.read_text().splitlines())
        for name in ("listeners", "advertised.listeners"):
            lines[name] += f",SSL://{HOST}:0,LOGINS://{HOST}:0"
        node.config_path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    with cluster:
        yield Secured(cluster, authority, keystores, folder)
        found = violations(cluster, lambda event: event["event"] == RENEWAL_FAILED)
        assert not found, told(found)


def refusal(client: Confluent, topic: str) -> str:
    """Return what a client complains of that cannot reach the cluster."""
    said: list[str] = []
    admin = AdminClient(client.settings | {"error_cb": lambda error: said.append(str(error)), "log_level": 0})
    try:
        admin.list_topics(topic, timeout=2)
    except KafkaException as error:
        admin.poll(0)
        return f"{error} {said}"
    raise AssertionError("it got in")


def test_brokers_replicate_over_tls_and_large_records_come_back_to_clients(
    secured: Secured, topic: str
) -> None:
    """Three replicas in sync over the SSL listener, 8 MB in one record, read over TLS."""
    client = secured.client(message_max_bytes=2 * LARGE, compression_type="none")
    client.create_topic(topic, 1, 3)
    values = [b"small", bytes(range(256)) * (LARGE // 256), b"last"]
    client.produce(topic, values)
    wait_isr(secured.cluster, topic, (1, 2, 3))
    assert [record.value for record in client.read(topic, 0, 0, 3)] == values
    client.close()


def test_a_restarted_node_finds_the_others_over_tls(secured: Secured, topic: str) -> None:
    """It is fenced and comes back: TLS keeps no broker out."""
    client = secured.client("PLAINTEXT")
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"before"])
    secured.cluster.kill(3)
    wait_isr(secured.cluster, topic, (1, 2))
    client.produce(topic, [b"meanwhile"])
    secured.cluster.restart(3)
    wait_isr(secured.cluster, topic, (1, 2, 3))
    client.close()


def test_a_login_over_tls_needs_the_right_password(secured: Secured, topic: str) -> None:
    """SASL_SSL with PLAIN."""
    right = {"sasl_mechanism": "PLAIN", "sasl_username": "bob", "sasl_password": "hush-bob"}
    client = secured.client("LOGINS", **right)
    client.create_topic(topic, 1, 1)
    client.produce(topic, [b"one"])
    assert [record.value for record in client.read(topic, 0, 0, 1)] == [b"one"]
    client.close()
    assert "uthentication" in refusal(secured.client("LOGINS", **right | {"sasl_password": "x"}), topic)


def test_a_certificate_names_a_user_and_rules_say_what_that_user_may(secured: Secured, topic: str) -> None:
    """Mutual TLS: CN=Alice becomes User:alice, which has no rights until an ACL gives them."""
    owner = secured.client("PLAINTEXT")
    owner.create_topic(topic, 1, 1)
    certificate = str(secured.authority.issue("alice", "alice@example.org", common_name="Alice"))
    alice = secured.client(ssl_certificate_location=certificate, ssl_key_location=certificate)
    assert "uthoriz" in str(outcome(alice, topic))
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    admin = AdminClient(owner.settings)
    for made in admin.create_acls(rules).values():
        made.result(PATIENCE_S)
    secured.cluster.wait_until(lambda: outcome(alice, topic) is None, "every broker knows the rules")
    assert [record.value for record in owner.read(topic, 0, 0, 1)] == [b"hers"]
    alice.close()
    owner.close()


def outcome(client: Confluent, topic: str) -> object:
    """Produce a record; return None, or the error of its delivery."""
    producer, outcomes = Producer(client.settings), []
    producer.produce(topic, b"hers", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(PATIENCE_S)
    (found,) = outcomes
    return found


def test_certificates_of_an_unknown_authority_are_refused_on_both_sides(secured: Secured, topic: str) -> None:
    """The client does not believe the node, or the node not the client."""
    other = Authority(secured.folder, "other")
    doubter = secured.client(ssl_ca_location=str(other.path))
    assert "verif" in refusal(doubter, topic)
    unknown = "does not trust this node's certificate"
    secured.wait_for_reason("tls_handshake_failed", unknown, lambda: refusal(doubter, topic))
    certificate = str(other.issue("mallory", "m@example.org", common_name="Mallory"))
    mallory = secured.client(ssl_certificate_location=certificate, ssl_key_location=certificate)
    secured.wait_for_reason("tls_handshake_failed", "is not trusted", lambda: refusal(mallory, topic))


def test_plaintext_at_tls_and_tls_at_plaintext_are_refused_and_logged(secured: Secured, topic: str) -> None:
    """The two commonest mistakes, each with a line that says what to mend."""
    plain = secured.client("PLAINTEXT", bootstrap_servers=f"{HOST}:{secured.port('SSL')}")
    to_mend = "set security.protocol to SSL"
    secured.wait_for_reason("tls_handshake_failed", to_mend, lambda: refusal(plain, topic))
    speaking = secured.client(bootstrap_servers=secured.cluster.nodes[1].address)
    to_mend = "a TLS hello arrived on a listener without TLS"
    secured.wait_for_reason("framing_lost", to_mend, lambda: refusal(speaking, topic))


def test_the_admin_api_asks_brokers_over_tls(secured: Secured, topic: str) -> None:
    """It goes by the brokers' own listener, and is no stranger there."""
    import json
    from urllib.request import urlopen

    secured.client("PLAINTEXT").create_topic(topic, 1, 3)
    url = f"{secured.cluster.admin_url(2)}/v3/clusters"
    with urlopen(url, timeout=PATIENCE_S) as response:
        cluster_id = json.load(response)["data"][0]["cluster_id"]
    with urlopen(f"{url}/{cluster_id}/topics/{topic}", timeout=PATIENCE_S) as response:
        assert json.load(response)["topic_name"] == topic


def test_certificates_are_renewed_while_clients_go_on(secured: Secured, topic: str) -> None:
    """No restart and no connection lost; a spoiled file is reported, without effect."""
    client = secured.client(message_max_bytes=2 * LARGE)
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"before"])
    before = shown_certificate(secured)
    with socket.create_connection((HOST, secured.port("SSL"))) as plain:
        context = secured.authority.client()
        with context.wrap_socket(plain, server_hostname=HOST) as old:
            for keystore in secured.keystores.values():
                secured.authority.renew(keystore)
            secured.cluster.wait_until(lambda: all(renewals(secured, each) for each in (1, 2, 3)), "new ones")
            after = shown_certificate(secured)
            assert after != before
            good = secured.keystores[1].read_bytes()
            secured.keystores[1].write_bytes(good[: len(good) // 2])
            secured.wait_for_reason(RENEWAL_FAILED, str(secured.keystores[1]))
            assert shown_certificate(secured) == after
            secured.keystores[1].write_bytes(good)
            old.sendall(bytes.fromhex("0000000a00120000000000 07ffff".replace(" ", "")))
            assert old.recv(8)[4:] == (7).to_bytes(4, "big")
    client.produce(topic, [b"after"])
    secured.cluster.restart(2)
    wait_isr(secured.cluster, topic, (1, 2, 3))
    assert [record.value for record in client.read(topic, 0, 0, 2)] == [b"before", b"after"]
    client.close()


def renewals(secured: Secured, node_id: int) -> int:
    """Return how often a node has taken new files for the listener SSL; each listener looks by itself."""
    seen = events(secured.cluster, node_id)
    return sum((each["event"], each.get("listener")) == ("tls_renewed", "SSL") for each in seen)


def shown_certificate(secured: Secured) -> bytes:
    """Return the certificate that node 1 shows to a new connection."""
    return ssl.get_server_certificate(
        (HOST, secured.port("SSL")), ca_certs=str(secured.authority.path)
    ).encode()
