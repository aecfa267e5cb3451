"""The brokers that histories are asked of: Apache Kafka and raftlog, started here with the same settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from raftlog.testing.cluster import Cluster
from raftlog_chaos.compare.systems.kafka import Kafka
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.raftlog import Raftlog
from raftlog_chaos.conformance.history import Needs
from raftlog_chaos.conformance.session import Session

SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "4",
}
"""The settings of both sides: what makes a broker do at once what it would do in minutes, and fewer partitions."""


class ShortLivedKafka(Kafka):
    """Apache Kafka for minutes: a virtual machine that starts fast, and a heap for one user."""

    jvm_options = (
        *("-Xmx512M", "-Xms256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        *("-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
    )

    def __init__(self, folder: Path, nodes: int, settings: Mapping[str, str]) -> None:
        super().__init__(folder, nodes)
        self.settings = settings


class ForkedRaftlog(Raftlog):
    """raftlog as its tests start it, with settings."""

    def __init__(self, folder: Path, nodes: int, settings: Mapping[str, str]) -> None:
        self._settings = settings
        super().__init__(folder, nodes)

    def _new_cluster(self, *, faults: bool = False) -> Cluster:
        folder = self.folder / "nodes"
        voters = min(self.nodes, 3)
        return Cluster(self.nodes, settings=self._settings, voters=voters, directory=folder, faults=faults)


KINDS: Final = {"kafka": ShortLivedKafka, "raftlog": ForkedRaftlog}


class Brokers:
    """Brokers of one kind, each started when a history first needs it. Use as a context manager."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._started: dict[Needs, KafkaWire] = {}
        self._numbers = count(1)

    def get(self, needs: Needs) -> KafkaWire:
        """Return a broker that meets some needs. Raises Missing or Failed."""
        if needs not in self._started:
            folder = self._folder / f"{self.kind}-{next(self._numbers)}"
            settings = SETTINGS | {"default.replication.factor": str(min(3, needs.nodes))}
            system = KINDS[self.kind](folder, needs.nodes, settings | dict(needs.settings))
            self._started[needs] = system
            system.start()
            warm_up(system.servers())
        return self._started[needs]

    def release(self, needs: Needs) -> None:
        """End the broker for some needs, if it was started."""
        system = self._started.pop(needs, None)
        if system is not None:
            system.close()

    def close(self) -> None:
        """End all of them."""
        for needs in list(self._started):
            self.release(needs)


def warm_up(servers: Sequence[str]) -> None:
    """Wait until topics, groups and transactions are served; their coordinators begin with the first question."""
    session = Session(servers)
    try:
        session.topic("warm-up")
        for kind in (0, 1):
            session.coordinator("warm-up", kind=kind)
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        session.wait(
            "producer ids are given out",
            lambda: session.query("InitProducerId", 4, **fields)["error_code"] == "NONE",
        )
    finally:
        session.close()


@contextmanager
def brokers(*kinds: str) -> Iterator[Sequence[Brokers]]:
    """Yield brokers of some kinds; their files are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="raftlog-conformance-") as folder:
        made = [Brokers(kind, Path(folder)) for kind in kinds]
        try:
            yield made
        finally:
            for each in made:
                each.close()
