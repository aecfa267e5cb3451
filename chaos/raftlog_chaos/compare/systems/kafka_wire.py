"""The common part of all systems that speak Kafka's protocol: topics, and the client."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from raftlog.testing.ports import LOOPBACK
from raftlog.testing.probe import PartitionView, view_cluster, view_topic
from raftlog.testing.progress import patient
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.systems.system import Failed, Refused, System, wait_for

CREATE_S: Final = 60.0


class KafkaWire(System):
    """A cluster of brokers. `ports` are the ports of the running nodes, by node."""

    kinds = frozenset(
        {"produce", "consume", "both", "ack", "arrival", "committed", "producers", "connections", "queue"}
    )
    compresses = True
    hello = bytes.fromhex("0000000a0012000000000001ffff")
    """ApiVersions, version 0."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        super().__init__(folder, nodes)
        self._partitions: dict[str, int] = {}

    @property
    @abstractmethod
    def ports(self) -> dict[int, int]: ...

    def servers(self) -> Sequence[str]:
        return [f"{LOOPBACK}:{port}" for port in self.ports.values()]

    def client(self, load: Load) -> Sequence[str]:
        return [
            sys.executable,
            "-m",
            f"raftlog_chaos.compare.clients.{'share' if load.kind == 'queue' else 'kafka'}",
            msgspec.json.encode(load).decode(),
        ]

    @property
    def replicas(self) -> int:
        return min(3, self.nodes)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create it, and wait until all replicas of all partitions are in sync."""
        self.ask_for_topic(name, partitions)
        self._partitions[name] = partitions
        wait_for(
            lambda: self.is_whole(name),
            f"all replicas of {partitions:,} partitions are in sync",
            timeout_s=CREATE_S,
        )

    def is_whole(self, topic: str) -> bool:
        """Return whether all replicas of all partitions are in sync."""
        found = self.partitions(topic)
        return len(found) == self._partitions[topic] and all(
            each.leader >= 0 and len(each.isr) == self.replicas for each in found.values()
        )

    def ask_for_topic(self, name: str, partitions: int, *, timeout_s: float = CREATE_S) -> None:
        """Have it created. Raises Refused or Failed."""
        import confluent_kafka.admin

        least = {"min.insync.replicas": str(min(2, self.replicas))}
        library: Any = confluent_kafka
        topic = library.admin.NewTopic(
            name, num_partitions=partitions, replication_factor=self.replicas, config=least
        )
        admin = library.admin.AdminClient({"bootstrap.servers": ",".join(self.servers()), "log_level": 0})
        limit_s = patient(timeout_s)
        try:
            for future in admin.create_topics(
                [topic], operation_timeout=limit_s, request_timeout=limit_s
            ).values():
                future.result(limit_s + 5)
        except library.KafkaException as error:
            raise Refused(f"a topic of {partitions:,} partitions: {error.args[0].str()}") from None
        except TimeoutError:
            raise Failed(
                f"a topic of {partitions:,} partitions was not created in {timeout_s:.0f} s"
            ) from None

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Return a topic's partitions as the first answering node sees them; empty while none answers."""
        for port in self.ports.values():
            try:
                return view_topic(LOOPBACK, port, topic)
            except OSError:
                continue
        return {}

    def leader_of(self, topic: str) -> int:
        """Return the leader of a topic's first partition. Raises Failed if no node knows a running leader."""
        first = self.partitions(topic).get(0)
        if first is None or first.leader not in self.ports:
            raise Failed(f"no node knows who leads {topic}")
        return first.leader

    def all_see_each_other(self) -> bool:
        """Return whether every running node sees exactly the running nodes."""
        ports = self.ports
        try:
            return all(view_cluster(LOOPBACK, port).broker_ids == set(ports) for port in ports.values())
        except OSError:
            return False
