"""Claims about the configs that Apache Kafka 4 ships in config/: they start a node unchanged, in every role."""

from __future__ import annotations

import pytest

from raftlog.base.config import ConfigFaults, load_config, parse_file

EVERYWHERE = """
controller.listener.names=CONTROLLER
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
PROTOCOLS = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
)
SERVER = f"""{EVERYWHERE}{PROTOCOLS}
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
log.dirs=/data/kraft-combined-logs
"""
CONTROLLER = f"""{EVERYWHERE}
process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
log.dirs=/data/kraft-controller-logs
"""
BROKER = f"""{EVERYWHERE}{PROTOCOLS}
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
log.dirs=/data/kraft-broker-logs
"""


@pytest.mark.parametrize(
    ("text", "roles"), [(SERVER, {"broker", "controller"}), (CONTROLLER, {"controller"})]
)
def test_the_shipped_samples_of_a_single_node_are_taken_unchanged(text: str, roles: set[str]) -> None:
    """controller.quorum.bootstrap.servers names this node, so it is a quorum of one node (KIP-853's new default)."""
    config = load_config(parse_file(text, name="server.properties"))
    assert config.roles == roles
    assert dict(config.voters) == {1: ("localhost", 9093)}
    advertised = [str(each) for each in config.advertised_listeners]
    assert advertised == (["PLAINTEXT://localhost:9092"] if "broker" in roles else [])
    (ignored,) = (each for each in config.warnings if each.event == "kafka_settings_ignored")
    assert "num.network.threads" in str(ignored.fields) and "log.dirs" not in str(ignored.fields)


def test_the_shipped_sample_of_a_broker_gets_the_advice_what_to_add() -> None:
    """It is for two nodes, and raftlog must know the voters' ids; with them it starts."""
    with pytest.raises(ConfigFaults) as refused:
        load_config(parse_file(BROKER, name="broker.properties"))
    (fault,) = refused.value.faults
    assert "add controller.quorum.voters=ID@localhost:9093" in str(fault)
    text = BROKER + "controller.quorum.voters=1@localhost:9093\n"
    config = load_config(parse_file(text, name="broker.properties"))
    assert (config.roles, config.node_id, dict(config.voters)) == ({"broker"}, 2, {1: ("localhost", 9093)})
