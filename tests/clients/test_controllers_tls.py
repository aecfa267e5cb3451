"""Real nodes with TLS on every path: clients, brokers, voters, and a broker without a vote.

Controllers require client certificates. A node that cannot show the right certificate is refused, and each side says in
one line what to mend.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.nodes import events, told, violations, wait_isr
from tests.clients.raw_client import API_VERSIONS, frame
from tests.clients.with_confluent import Confluent
from tests.kit.certificates import HOST, Authority

VOTERS = (1, 2, 3)
OBSERVER = 4
NODES = (*VOTERS, OBSERVER)
SOME = 75
HANDSHAKE_FAILED = "tls_handshake_failed"
NODE_FAILED = "node_failed"


class Secured(NamedTuple):
    """Three voters and a broker without a vote. PLAINTEXT is for looking at them."""

    cluster: Cluster
    authority: Authority
    keystores: dict[int, Path]
    folder: Path

    def client(self, topic: str) -> Confluent:
        """Return librdkafka at the SSL listeners, with a topic that is on all nodes."""
        looking = Confluent(self.cluster.nodes[1].address)
        looking.create_topic(topic, 1, len(NODES))
        looking.close()
        client = Confluent(self.cluster.nodes[1].address)
        ports = [
            each["port"]
            for node_id in VOTERS
            for each in events(self.cluster, node_id)
            if each["event"] == "listener_started" and each["listener"] == "SSL"
        ]
        client.settings["bootstrap.servers"] = ",".join(f"{HOST}:{port}" for port in ports)
        client.settings |= {"security.protocol": "ssl", "ssl.ca.location": str(self.authority.path)}
        return client

    def configure(self, node_id: int, changes: Mapping[str, str | None]) -> None:
        """Change settings of a node, before its next start; None removes a setting."""
        path = self.cluster.nodes[node_id].config_path
        lines = dict(line.split("=", 1) for line in path.read_text().splitlines())
        merged: dict[str, str | None] = {**lines, **changes}
        path.write_text("".join(f"{name}={value}\n" for name, value in merged.items() if value is not None))

    def lines(self, event: str, reason: str, *node_ids: int) -> int:
        """Return how many lines of nodes are of this event, and say this."""
        return sum(
            each["event"] == event and reason in str(each.get("reason"))
            for node_id in node_ids
            for each in events(self.cluster, node_id)
        )

    def wait_for(self, event: str, reason: str, *node_ids: int) -> None:
        """Wait until a node has logged it."""
        self.cluster.wait_until(lambda: self.lines(event, reason, *node_ids) > 0, f"{event}: {reason}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Checked at the end: no line needs an operator, except from a node that was not to start."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    keystores = {node_id: authority.issue(f"node-{node_id}") for node_id in NODES}
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SSL",
    }
    of_voters = {"listener.name.controller.ssl.client.auth": "required"}
    cluster = Cluster(
        4,
        voters=len(VOTERS),
        settings=settings,
        node_settings={
            node_id: authority.settings(path) | (of_voters if node_id in VOTERS else {})
            for node_id, path in keystores.items()
        },
    )
    secured = Secured(cluster, authority, keystores, folder)
    for node in cluster.nodes.values():
        lines = dict(line.split("=", 1) for line in node.config_path.read_text().splitlines())
        for name in ("listeners", "advertised.listeners"):
            lines[name] += f",SSL://{HOST}:0"
        node.config_path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    with cluster:
        yield secured
        found = violations(cluster, lambda event: event["event"] == NODE_FAILED)
        assert not found, told(found)


def shown_certificate(secured: Secured, node_id: int) -> bytes:
    """Return the certificate that a controllers' listener shows now."""
    context = secured.authority.client(secured.keystores[OBSERVER])
    address = HOST, secured.cluster.addresses[node_id].controller_port
    with (
        socket.create_connection(address) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as talking,
    ):
        return talking.getpeercert(binary_form=True) or b""


def test_records_are_acknowledged_while_the_active_controller_is_killed(secured: Secured, topic: str) -> None:
    """The others elect over TLS, and the killed one finds them again."""
    client, victim = secured.client(topic), secured.cluster.controller_id()
    assert victim is not None
    failed = secured.lines(HANDSHAKE_FAILED, "", *VOTERS)
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
        secured.cluster.kill(victim)
        stream.wait_acked(SOME)
        secured.cluster.restart(victim)
        wait_isr(secured.cluster, topic, NODES)
        stream.wait_acked(SOME)
    assert secured.lines(HANDSHAKE_FAILED, "", *VOTERS) == failed
    client.close()


def test_certificates_are_renewed_while_controllers_and_the_observer_go_on(
    secured: Secured, topic: str
) -> None:
    """No link is lost for it. Later connections are made with the new certificates of both ends."""
    client = secured.client(topic)
    before = {node_id: shown_certificate(secured, node_id) for node_id in VOTERS}
    lost = secured.lines("quorum_link_lost", "", *VOTERS)
    with BackgroundProducer(client, topic) as stream:
        for keystore in secured.keystores.values():
            secured.authority.renew(keystore)
        secured.cluster.wait_until(
            lambda: all(shown_certificate(secured, each) != before[each] for each in VOTERS), "new ones"
        )
        stream.wait_acked(SOME)
        assert secured.lines("quorum_link_lost", "", *VOTERS) == lost
        secured.cluster.restart(2)
        secured.cluster.restart(OBSERVER)
        wait_isr(secured.cluster, topic, NODES)
        stream.wait_acked(SOME)
    client.close()


def test_a_kafka_client_is_served_at_a_controllers_listener(secured: Secured) -> None:
    """KIP-919 over TLS: the connection is handed over to the server for Kafka clients."""
    context = secured.authority.client(secured.keystores[OBSERVER])
    address = HOST, secured.cluster.addresses[1].controller_port
    with (
        socket.create_connection(address) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as talking,
    ):
        for _ in range(2):
            talking.sendall(frame(API_VERSIONS, 0))
            with talking.makefile("rb", buffering=0) as answers:
                size = int.from_bytes(answers.read(4), "big")
                assert answers.read(size)[4:6] == b"\0\0"


def test_a_node_with_a_certificate_of_another_authority_is_refused(secured: Secured) -> None:
    """It does not believe the others either: both say so."""
    other = Authority(secured.folder, "other")
    keystore = other.issue("stranger")
    good = secured.authority.settings(secured.keystores[OBSERVER])
    bad = {
        "ssl.keystore.location": str(keystore),
        "listener.name.ssl.ssl.truststore.location": str(secured.authority.path),
    }
    start_again(secured, bad)
    secured.wait_for(HANDSHAKE_FAILED, "is not trusted", *VOTERS)
    start_again(secured, {**good, "ssl.truststore.location": str(other.path)})
    secured.wait_for("observer_refused", "its certificate is not trusted", OBSERVER)
    start_again(secured, good)
    secured.cluster.wait_ready()


def test_a_broker_that_cannot_secure_its_way_to_controllers_does_not_start(secured: Secured) -> None:
    """It says which setting is to blame, and which file."""
    name, missing = "listener.name.controller.ssl.truststore.location", str(secured.folder / "missing.pem")
    start_again(secured, {name: missing})
    node = secured.cluster.nodes[OBSERVER]
    assert node.wait() != 0
    said = node.log_path.read_text()
    assert f"cannot secure connections to controllers: {name}: {missing}" in said
    start_again(secured, {name: None})
    secured.cluster.wait_ready()


def test_a_node_that_speaks_no_tls_to_controllers_learns_what_to_mend(secured: Secured) -> None:
    """As after a change of half of the nodes."""
    protocols = "listener.security.protocol.map"
    off = {protocols: "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"}
    start_again(secured, off)
    secured.wait_for(HANDSHAKE_FAILED, f"CONTROLLER:SSL in {protocols}", *VOTERS)
    secured.wait_for("observer_refused", protocols, OBSERVER)
    start_again(secured, {protocols: "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL"})
    secured.cluster.wait_ready()


def start_again(secured: Secured, settings: Mapping[str, str | None]) -> None:
    """Start the broker without a vote with other settings, and do not wait for it."""
    secured.configure(OBSERVER, settings)
    secured.cluster.restart(OBSERVER, wait=False)
