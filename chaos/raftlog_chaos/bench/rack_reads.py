"""Stock consumers that read in their own rack, in three network namespaces with slow links between them (KIP-392).

Each rack has a node, and stock consumers that read at the leader or at the follower in their rack, in the same run. The
producer is in the leader's rack. The links count the bytes that cross them, unless they are slow by netem.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.testing.network import can_delay
from raftlog.testing.network_cluster import NetworkCluster
from raftlog_chaos.bench import measure

DELAYS_S: Final = {(1, 2): 0.002, (1, 3): 0.040, (2, 3): 0.040}
"""Seconds in each direction, between the racks of these nodes. A round takes twice that."""

LEADER: Final = 1
TIMED: Final = "timed"
RECORDS: Final = 150
REST_S: Final = 0.15
"""From an acknowledgement to the next record: longer than a round, so that each record finds a follower's fetch."""
WARM_UP_S: Final = 3.0
"""Until consumers know the replica in their rack."""
BULK: Final = "bulk"
BULK_RECORDS: Final = 20_000
BULK_RECORD_BYTES: Final = 1_000
BULK_PARTITIONS: Final = 6
PATIENCE_S: Final = 60.0
BEGINNING: Final = 0

STATISTICS_MS: Final = 200
READER: Final = {"group.id": "racks", "auto.offset.reset": "error", "fetch.min.bytes": 1, "log_level": 0}


class RackRead(NamedTuple):
    """Medians of a consumer, in seconds."""

    round_s: float
    """To the leader's rack and back."""
    produced_s: float
    at_leader_s: float
    at_follower_s: float

    @property
    def bound_s(self) -> float:
        return self.produced_s + self.round_s


class Crossed(NamedTuple):
    """Bytes between racks while a consumer in each rack reads everything, with what nodes send each other meanwhile."""

    read: int
    without_rack: int
    with_rack: int


class RackReads(NamedTuple):
    """The outcome. `reads`: in the racks of the followers."""

    reads: list[RackRead]
    crossed: Crossed


def rack_of(node_id: int) -> str:
    return f"zone-{node_id}"


RACKS: Final = ("", ""), (rack_of(2), rack_of(3))
"""`client.rack` of the readers in the two racks, without it and with it."""


def measure_rack_reads() -> RackReads:
    """Measure both on one cluster. Raises OSError where there are no namespaces or slow links, ClusterError."""
    if not can_delay():
        raise OSError("links cannot be slow: there is neither netem nor /dev/net/tun")
    racks = {each: {"broker.rack": rack_of(each)} for each in (1, 2, 3)}
    settings = {"replica.selector.class": RACK_AWARE_SELECTOR, "min.insync.replicas": "2"}
    with closing(NetworkCluster(3, settings=settings, node_settings=racks)) as cluster:
        for (near, far), delay_s in DELAYS_S.items():
            cluster.network.slow(near, far, delay_s=delay_s, loss=0)
            cluster.network.slow(far, near, delay_s=delay_s, loss=0)
        cluster.start()
        _create(cluster, TIMED, [[LEADER, 2, 3]])
        _create(cluster, BULK, [*[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (BULK_PARTITIONS // 3)])
        return RackReads(_Timing(cluster).run(), _crossed(cluster))


def _create(cluster: NetworkCluster, topic: str, replicas: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas)
    for created in admin.create_topics([new], operation_timeout=PATIENCE_S).values():
        created.result(PATIENCE_S)
    cluster.wait_until(
        lambda: all(len(each.isr) == 3 for each in cluster.partitions(topic).values()), "all are in sync"
    )


def _start_in_rack(cluster: NetworkCluster, node_id: int, work: Callable[[], None]) -> threading.Thread:
    """Run a function in a rack; clients that it makes are there, with all their threads."""

    def run() -> None:
        cluster.network.hosts[node_id].enter()
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


class _Reader:
    """A consumer of TIMED in a node's rack."""

    def __init__(self, node_id: int, rack: str) -> None:
        self.node_id = node_id
        self.seen_s: list[float] = []
        """How long after its producer sent it each record was read."""
        self.source = -1
        """The node that it read from last, by its own statistics."""
        self._rack = rack

    def run(self, config: Mapping[str, Any], sent: Mapping[bytes, float], ended: threading.Event) -> None:
        """Read until the end."""
        own = {"client.rack": self._rack, "statistics.interval.ms": STATISTICS_MS, "stats_cb": self._note}
        consumer = Consumer({**config, **READER, **own})
        consumer.assign([TopicPartition(TIMED, 0, BEGINNING)])
        while not ended.is_set():
            message = consumer.poll(0.1)
            now = time.monotonic()
            if message is not None and message.error() is None and (message.value() or b"") in sent:
                self.seen_s.append(now - sent[message.value() or b""])
        consumer.close()

    def _note(self, text: str) -> None:
        partition = json.loads(text)["topics"].get(TIMED, {}).get("partitions", {}).get("0", {})
        self.source = partition.get("broker", -1)


class _Timing:
    """Records that are written in the leader's rack, each after the last, and read in the others meanwhile."""

    def __init__(self, cluster: NetworkCluster) -> None:
        self._cluster = cluster
        self._config = {"bootstrap.servers": cluster.bootstrap_servers}
        self._sent: dict[bytes, float] = {}
        self._acknowledged_s: list[float] = []

    def run(self) -> list[RackRead]:
        ended = threading.Event()
        at_leader, at_follower = ([_Reader(each, rack) for each, rack in ((2, a), (3, b))] for a, b in RACKS)
        readers = [*at_leader, *at_follower]
        threads = [
            _start_in_rack(self._cluster, each.node_id, partial(each.run, self._config, self._sent, ended))
            for each in readers
        ]
        _start_in_rack(self._cluster, LEADER, self._write).join()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and any(len(each.seen_s) < RECORDS for each in readers):
            time.sleep(0.1)
        ended.set()
        for thread in threads:
            thread.join()
        found = [each.source for each in readers]
        assert found == [LEADER, LEADER, 2, 3], f"consumers have read from {found}"
        return [
            RackRead(
                2 * DELAYS_S[LEADER, near.node_id],
                median(self._acknowledged_s),
                median(far.seen_s),
                median(near.seen_s),
            )
            for far, near in zip(at_leader, at_follower, strict=True)
        ]

    def _write(self) -> None:
        producer = Producer({**measure.LATENCY_CONFIG, **self._config, "log_level": 0})
        deadline = time.monotonic() + WARM_UP_S
        while time.monotonic() < deadline:
            _acknowledged_at(producer, b"warm-up")
            time.sleep(REST_S)
        for number in range(RECORDS):
            value = b"%d" % number
            began = self._sent[value] = time.monotonic()
            self._acknowledged_s.append(_acknowledged_at(producer, value) - began)
            time.sleep(REST_S)


def _acknowledged_at(producer: Producer, value: bytes) -> float:
    found: list[float] = []
    producer.produce(TIMED, value, partition=0, on_delivery=lambda *_: found.append(time.monotonic()))
    producer.flush(PATIENCE_S)
    return found[0]


def _crossed(cluster: NetworkCluster) -> Crossed:
    """Let a consumer in each rack read BULK twice, without and with its rack."""
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    written = measure.throughput(config, BULK, record_bytes=BULK_RECORD_BYTES, records=BULK_RECORDS)
    records = written.records + BULK_RECORDS // 10
    crossed = []
    for has_rack in (False, True):
        racks = {each: rack_of(each) if has_rack else "" for each in (1, 2, 3)}
        before = sum(cluster.network.bytes_between().values())
        reading = [
            _start_in_rack(cluster, each, partial(_read, config, rack, records))
            for each, rack in racks.items()
        ]
        for thread in reading:
            thread.join()
        crossed.append(sum(cluster.network.bytes_between().values()) - before)
    return Crossed(3 * records * BULK_RECORD_BYTES, *crossed)


def _read(config: Mapping[str, Any], rack: str, records: int) -> None:
    consumer = Consumer({**config, **READER, "client.rack": rack})
    consumer.assign([TopicPartition(BULK, each, BEGINNING) for each in range(BULK_PARTITIONS)])
    left, deadline = records, time.monotonic() + PATIENCE_S
    while left > 0 and time.monotonic() < deadline:
        left -= sum(each.error() is None for each in consumer.consume(5_000, timeout=0.1))
    consumer.close()
