"""The configs that Apache Kafka 4 ships start processes that serve: one node, and a controller with its broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from raftlog.testing.cluster import NodeProcess
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog.testing.probe import view_cluster
from tests.base.test_config_samples import BROKER, CONTROLLER, SERVER
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.marks import taste
from tests.kit.waits import until

VALUES = [b"%d" % number for number in range(200)]


class SampleProcesses:
    """Processes that run sample configs; only ports and folders are other than in the text."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held = HeldPorts(2)
        self.port, self.controller_port = self._held.ports
        self.nodes: list[NodeProcess] = []

    def start(self, node_id: int, text: str) -> NodeProcess:
        directory = self._directory / f"node-{node_id}"
        node = NodeProcess(node_id, directory, settings={}, port=self.port)
        moved: Mapping[str, str] = {
            ":9092": f":{self.port}",
            ":9093": f":{self.controller_port}",
            "/data/": f"{directory}/",
        }
        for shipped, ours in moved.items():
            text = text.replace(shipped, ours)
        node.config_path.write_text(text)
        node.start()
        self.nodes.append(node)
        return node

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert all(node.running for node in self.nodes), "\n".join(node.log_tail() for node in self.nodes)
            try:
                return len(view_cluster(LOOPBACK, self.port).broker_ids) == 1
            except OSError:
                return False

        until(ready, "the broker is unfenced")

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self._held.release()


@pytest.fixture
def samples(tmp_path: Path) -> Iterator[SampleProcesses]:
    running = SampleProcesses(tmp_path)
    yield running
    running.close()


def serves(samples: SampleProcesses, library: type[StockClient]) -> None:
    """Topics are made, records come and go, a group commits: with the numbers that the samples set for one broker."""
    samples.wait_ready()
    client = library(f"localhost:{samples.port}")
    client.create_topic("orders", 1, 1)
    assert client.produce("orders", VALUES)[-1] == (0, len(VALUES) - 1)
    assert [each.value for each in client.read("orders", 0, 0, len(VALUES))] == VALUES
    assert len(client.consume_as_group("orders", "billing", len(VALUES))) == len(VALUES)
    client.close()


@pytest.mark.parametrize(
    "library", taste([Aiokafka], [Confluent, KafkaPython, Aiokafka]), ids=lambda each: each.name
)
def test_the_shipped_sample_of_a_combined_node_serves(
    samples: SampleProcesses, library: type[StockClient]
) -> None:
    """config/server.properties: broker and controller in one process, found by its bootstrap server."""
    samples.start(1, SERVER)
    serves(samples, library)


@pytest.mark.nightly
def test_the_shipped_samples_of_a_controller_and_a_broker_serve_together(samples: SampleProcesses) -> None:
    """config/controller.properties as it is, config/broker.properties with the one line it asks for; restarts too."""
    samples.start(1, CONTROLLER)
    broker = samples.start(2, f"{BROKER}controller.quorum.voters=1@localhost:9093\n")
    serves(samples, Confluent)
    for node in samples.nodes:
        node.kill()
    for node in samples.nodes:
        node.start()
    samples.wait_ready()
    client = Confluent(broker.address)
    client.wait_known("orders")
    assert [each.value for each in client.read("orders", 0, 0, len(VALUES))] == VALUES
    client.close()


def test_the_shipped_sample_of_a_broker_alone_says_what_to_add(samples: SampleProcesses) -> None:
    """One line in the log, and the process ends: it does not wait for a quorum that cannot be found."""
    broker = samples.start(2, BROKER)
    assert broker.wait() == 2
    assert f"add controller.quorum.voters=ID@localhost:{samples.controller_port}" in broker.log_tail()
