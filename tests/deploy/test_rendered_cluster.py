"""Claims about clusters of real nodes that run what the Helm chart renders: its files, variables, arguments and probes.

Names of pods become ports of loopback and the container's folders folders of the test; all else is as in a pod.
"""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.node_process import environment_of_nodes
from raftlog.testing.ports import LOOPBACK, HeldPorts
from tests.deploy.chart import Release, needs_helm, render
from tests.kit import waits
from tests.kit.certificates import Authority

pytestmark = [needs_helm, pytest.mark.clients]

PORTS = (9092, 9093, 9094, 9644)
FOLDERS = ("/etc/raftlog-tls", "/etc/raftlog", "/run/raftlog", "/var/lib/raftlog")
OUTSIDE = "kafka-{}.example.com"
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", re.DOTALL)


class Pod:
    """One container of the rendering, as a process on loopback."""

    def __init__(
        self, release: Release, name: str, *, folder: Path, ports: Mapping[str, Mapping[int, int]]
    ) -> None:
        self._release, self._name, self._folder, self._ports = release, name, folder, ports
        self.process: subprocess.Popen[bytes] | None = None

    def port(self, port: int) -> int:
        """Return which port of loopback a port of the container is."""
        return self._ports[self._name][port]

    def _here(self, text: str) -> str:
        """Return a text of the pod's with addresses and folders of this machine."""
        for number, (name, ports) in enumerate(self._ports.items()):
            for port, ours in ports.items():
                for host in (f"{name}.raftlog-headless.logs.svc.cluster.local", OUTSIDE.format(number)):
                    text = text.replace(f"{host}:{port}", f"{LOOPBACK}:{ours}")
        for port, ours in self._ports[self._name].items():
            text = text.replace(f"://:{port}", f"://{LOOPBACK}:{ours}").replace(
                f"0.0.0.0:{port}", f"{LOOPBACK}:{ours}"
            )
        for folder in FOLDERS:
            text = re.sub(rf"(?<![\w/]){folder}(?=/|$)", str(self._folder) + folder, text, flags=re.MULTILINE)
        return text

    def start(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """Write the files that the volumes give, and run the container's arguments with its variables only."""
        for path, content in self._release.files(secrets).items():
            file = Path(self._here(path))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._here(content))
        (self._folder / "var/lib/raftlog/lost+found").mkdir(parents=True)
        environment = self._release.environment(
            self._name, {"topology.kubernetes.io/zone": f"zone-of-{self._name}"}
        )
        arguments = [self._here(each) for each in self._release.arguments(self._name)]
        with (self._folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "raftlog", *arguments, "--exit-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment_of_nodes() | {name: self._here(text) for name, text in environment.items()},
            )

    def probe(self, name: str) -> bool:
        """Return whether a probe succeeds, asked as the kubelet does: no token, and any certificate will do."""
        assert self.process is not None and self.process.poll() is None, self.log()
        http = self._release.container[f"{name}Probe"]["httpGet"]
        context = ssl._create_unverified_context()
        url = f"{http['scheme'].lower()}://{LOOPBACK}:{self.port(9644)}{http['path']}"
        try:
            with urllib.request.urlopen(url, timeout=30, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def stop(self) -> int:
        """Ask the node to end, as Kubernetes does, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return waits.ended(self.process)

    def kill(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()


@contextmanager
def running(
    values: Mapping[str, Any], folder: Path, secrets: Mapping[str, Mapping[str, str]]
) -> Iterator[Sequence[Pod]]:
    """Run the pods that these values give, until all are ready."""
    release = Release(render(values))
    held = HeldPorts(len(release.pods) * len(PORTS))
    free = iter(held.ports)
    ports = {name: {port: next(free) for port in PORTS} for name in release.pods}
    pods = [Pod(release, name, folder=folder / name, ports=ports) for name in release.pods]
    try:
        for pod in pods:
            pod.start(secrets)
        for pod in pods:
            for probe in ("startup", "liveness", "readiness"):
                waits.until(lambda pod=pod, probe=probe: pod.probe(probe), f"{probe} probe", seen=pod.log)
        yield pods
    finally:
        for pod in pods:
            pod.kill()
        held.release()


def round_trip(bootstrap: str, login: Mapping[str, str], partitions: int) -> set[str]:
    """Create a topic by the brokers' defaults, write and read a record in each partition; return replicas' racks."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    client = {"bootstrap.servers": bootstrap, **login}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("orders", num_partitions=partitions)])["orders"].result(60)
    producer = Producer(client | {"acks": "all"})
    for number in range(partitions):
        producer.produce("orders", f"record {number}", partition=number)
    assert producer.flush(60) == 0
    consumer = Consumer(client | {"group.id": "readers"})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(partitions)])
    read = {consumer.poll(60).value() for _ in range(partitions)}
    consumer.close()
    assert read == {f"record {number}".encode() for number in range(partitions)}
    cluster = admin.describe_cluster().result(60)
    replicas = admin.list_topics("orders").topics["orders"].partitions[0].replicas
    return {node.rack for node in cluster.nodes if node.id in replicas}


def test_pods_form_a_cluster_that_keeps_three_copies_and_stops_in_order(tmp_path: Path) -> None:
    """Three voters, and a fourth node that only holds partitions; racks are the pods' zones."""
    with running({"replicas": 4}, tmp_path, {}) as pods:
        racks = round_trip(f"{LOOPBACK}:{pods[3].port(9092)}", {}, 4)
        assert len(racks) == 3
        assert all(rack.startswith("zone-of-raftlog-") for rack in racks)
        metrics = f"http://{LOOPBACK}:{pods[0].port(9644)}/metrics"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(metrics, timeout=60)
        assert refused.value.code == 401
        token = (tmp_path / "raftlog-0/run/raftlog/metrics.token").read_text()
        asked = urllib.request.Request(metrics, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert b"raftlog_node_is_controller" in answer.read()
        assert [pods[number].stop() for number in (3, 0)] == [0, 0]
        assert '"leaderships_moved":true' in pods[3].log()


@pytest.mark.parametrize("combined", ["", "tls-combined.pem"])
def test_pods_with_tls_and_logins_serve_clients_outside(tmp_path: Path, combined: str) -> None:
    """All listeners and the probes speak TLS, with a certificate in two files or in one file; a wrong password stays
    out.
    """
    from confluent_kafka.admin import AdminClient

    authority = Authority(tmp_path)
    both = authority.issue("node").read_text()
    chain = "".join(CERTIFICATE.findall(both))
    key = CERTIFICATE.sub("", both)
    certificates = {
        "tls.crt": chain,
        "tls.key": key,
        "ca.crt": authority.path.read_text(),
        "tls-combined.pem": both,
    }
    values = {
        "tls": {"enabled": True, "secretName": "certificates", "combinedKey": combined},
        "sasl": {"enabled": True, "users": {"admin": "a long = 'password'"}},
        "external": {"enabled": True, "host": OUTSIDE},
        "config": {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "ssl.client.auth": "none",
        },
    }
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "a long = 'password'",
    }
    with running(values, tmp_path, {"certificates": certificates}) as pods:
        bootstrap = f"{LOOPBACK}:{pods[1].port(9094)}"
        assert len(round_trip(bootstrap, login, 3)) == 3
        stranger = AdminClient(
            login | {"sasl.password": "guessed", "bootstrap.servers": bootstrap, "log_level": "0"}
        )
        with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT|_AUTHENTICATION"):
            stranger.list_topics(timeout=3)
        for pod in pods:
            assert "a long = " not in pod.log()
