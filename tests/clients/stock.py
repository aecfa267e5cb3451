"""The abilities of a stock client, said once for all of them, so that every claim is tried with each.

A library's own exceptions become `ClientRefused` with Kafka's error code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.clients.raw_client import view_topic
from tests.kit.waits import until


class ClientRefused(Exception):
    """The cluster (or the library in its name) said no; `code` is Kafka's number."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


ReadRange = tuple[int, int]


class Record(NamedTuple):
    """A record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class RecordMetadata(NamedTuple):
    """The place of a produced record."""

    partition: int
    offset: int


class ClusterDescription(NamedTuple):
    """A cluster as a client sees it."""

    cluster_id: str
    controller_id: int
    broker_ids: frozenset[int]


class Config(NamedTuple):
    """One config of a topic, as described."""

    value: str
    set_on_topic: bool


def nothing() -> None:
    """Do no work."""


class StockClient(ABC):
    """One library against one cluster. `close` ends what it opened."""

    name: str
    keeps_other_configs = True
    """Whether it alters configs incrementally (KIP-339); AlterConfigs resets what it does not name."""
    leaves_numbers_to_the_broker = True
    """Whether its admin client can create a topic without numbers (KIP-464)."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""

    # Topics

    def create_topic(self, name: str, partitions: int = -1, replicas: int = -1, **configs: str) -> None:
        """Create a topic and wait until all bootstrap nodes know it; -1 leaves a number to the broker.

        Config names have _ for dots. As with Kafka other nodes hear of a new topic a moment after the answer.
        """
        self._create_topic(name, partitions, replicas, dotted(configs))
        self.wait_known(name, partitions)

    def wait_known(self, topic: str, partitions: int = 1) -> None:
        """Wait until all bootstrap nodes know so many partitions of a topic, and a leader of each that there is."""
        for address in self.bootstrap.split(","):
            until(
                lambda address=address: is_known(address, topic, partitions),  # type: ignore[misc]
                f"{address} knows {topic}",
            )

    @abstractmethod
    def _create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        """Create a topic."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""

    @abstractmethod
    def topics(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Return the replicas of each partition of each topic."""

    @abstractmethod
    def configs(self, topic: str) -> Mapping[str, Config]:
        """Describe all configs of a topic."""

    @abstractmethod
    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one config of a topic."""

    # Records

    @abstractmethod
    def produce(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        compression: str | None = None,
        acks: int | str = "all",
        acked: Callable[[], None] = nothing,
    ) -> list[RecordMetadata]:
        """Produce, idempotently where acks is all, wait for every acknowledgement; places in the order of values.

        `acked` is called for each record that is acknowledged, in the library's own thread. Raises Refused.
        """

    @abstractmethod
    def read_ranges(self, topic: str, partition: int, legs: Sequence[ReadRange]) -> list[list[Record]]:
        """Assign, and for each (start, count) seek to `start` and read on until `count` records came."""

    def read(self, topic: str, partition: int, start: int, count: int) -> list[Record]:
        """Read `count` records from `start` on."""
        return self.read_ranges(topic, partition, [(start, count)])[0]

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with at least this timestamp."""

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (log start, high watermark)."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records before an offset; returns the new log start."""

    # Groups and cluster

    @abstractmethod
    def consume_as_group(self, topic: str, group: str, count: int) -> list[Record]:
        """Subscribe, read until `count` records came, commit behind the last of them, leave. Raises Refused."""

    @abstractmethod
    def groups(self) -> frozenset[str]:
        """List the groups of all brokers."""

    @abstractmethod
    def describe(self) -> ClusterDescription:
        """Describe the cluster."""


def is_known(address: str, topic: str, partitions: int = 1) -> bool:
    """Whether a node knows at least so many partitions of a topic, and a leader of each that there is."""
    view = view_topic(address, topic)
    return view is not None and len(view) >= partitions and all(each.leader >= 0 for each in view)


def dotted(configs: Mapping[str, str]) -> dict[str, str]:
    """Turn min_insync_replicas into min.insync.replicas."""
    return {name.replace("_", "."): value for name, value in configs.items()}
