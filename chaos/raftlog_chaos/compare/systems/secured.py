"""raftlog and Apache Kafka with clients at a listener with TLS, and with a login over it. Brokers talk as before.

So a ratio to the plain system shows only the cost of TLS between clients and brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from raftlog.base.config.files import format_properties, parse_properties
from raftlog.base.disk import write_file
from raftlog.testing.certificates import Certificates, CertificatesUnusable
from raftlog.testing.cluster import Cluster
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.systems.kafka import Kafka
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.raftlog import Raftlog
from raftlog_chaos.compare.systems.system import Missing

LISTENER: Final = "CLIENTS"
USER: Final = "compare"
PASSWORD: Final = "a password of the comparison"  # noqa: S105 (of clusters that live for minutes)
DAYS: Final = 2


class Secured(KafkaWire):
    """A cluster with one more listener, for clients. A subclass puts `settings_of` into its nodes' files."""

    protocol = "SSL"
    variant = True

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self._clients_ports = HeldPorts(nodes)
        self._certificates = Certificates(folder / "certificates")
        super().__init__(folder, nodes)

    def secure(self, path: Path, node: int) -> None:
        """Give a node's settings a listener with TLS."""
        settings = parse_properties(path.read_text())
        for name in ("listeners", "advertised.listeners"):
            settings[name] += f",{LISTENER}://{LOOPBACK}:{self._clients_ports.ports[node - 1]}"
        settings |= self._settings()
        write_file(path, format_properties(settings))

    def client(self, load: Load) -> Sequence[str]:
        servers = [f"{LOOPBACK}:{self._clients_ports.ports[node - 1]}" for node in self.ports]
        settings = {"security.protocol": self.protocol.lower(), "ssl.ca.location": str(self._certificates.ca)}
        if self.protocol == "SASL_SSL":
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        return super().client(msgspec.structs.replace(load, servers=servers, settings=settings))

    def release_ports(self) -> None:
        """Give the listeners' ports back."""
        self._clients_ports.release()

    def _settings(self) -> Mapping[str, str]:
        settings = {
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LISTENER}:{self.protocol}"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            **self._stores(),
        }
        if self.protocol == "SASL_SSL":
            settings |= {
                "sasl.enabled.mechanisms": "PLAIN",
                f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
                    "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    f'user_{USER}="{PASSWORD}";'
                ),
            }
        return settings

    def _stores(self) -> Mapping[str, str]:
        """Return the settings of the nodes' one certificate, made by the first of them. Raises Missing."""
        if not self._certificates.node(LOOPBACK).exists():
            try:
                self._certificates.make([[LOOPBACK]], days=DAYS)
            except CertificatesUnusable as error:
                raise Missing(str(error)) from None
        return self._certificates.node_settings(LOOPBACK)


class RaftlogTls(Secured, Raftlog):
    """raftlog with TLS for clients."""

    key = "raftlog-tls"
    title = "raftlog, TLS"

    def _new_cluster(self, *, faults: bool = False) -> Cluster:
        cluster = super()._new_cluster(faults=faults)
        for node_id, node in cluster.nodes.items():
            self.secure(node.config_path, node_id)
        return cluster

    def close(self) -> None:
        super().close()
        self.release_ports()


class RaftlogSaslTls(RaftlogTls):
    """The same, where each connection logs in."""

    key = "raftlog-sasl-ssl"
    title = "raftlog, SASL_SSL"
    protocol = "SASL_SSL"


class KafkaTls(Secured, Kafka):
    """Apache Kafka with TLS for clients."""

    key = "kafka-tls"
    title = "Kafka, TLS"

    def _write_settings(self, node: int) -> None:
        super()._write_settings(node)
        self.secure(self._settings_path(node), node)

    def close(self) -> None:
        super().close()
        self.release_ports()


class KafkaSaslTls(KafkaTls):
    """The same, where each connection logs in."""

    key = "kafka-sasl-ssl"
    title = "Kafka, SASL_SSL"
    protocol = "SASL_SSL"
