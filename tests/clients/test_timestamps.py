"""Stock clients with incomplete timestamps in batch headers: their fresh records stay, and searches find them.

Retention has its default of seven days, and runs several times a second. The first record of each topic is from 1970,
in a segment of its own. Once that segment is deleted, retention has checked the later records too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from raftlog.records.batch import build_batch, new_record
from raftlog.records.header import HEADER_BYTES, read_header, stamp_max_timestamp
from raftlog.testing.cluster import Cluster
from tests.clients.nodes import batches_on_disk, leader_of
from tests.clients.raw_client import PRODUCE, RawClient, produce_body, produced
from tests.clients.with_confluent import Confluent
from tests.kit.waits import until

DAY_MS = 86_400_000
NOT_LEADER = 6
CONFIGS = {"segment_bytes": "100"}


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Confluent]:
    with closing(Confluent(cluster.bootstrap_servers)) as found:
        yield found


def produce_raw(cluster: Cluster, topic: str, batch: bytes) -> int:
    """Produce a batch as it is, once its leader knows that it leads; return its offset."""
    answers: list[tuple[int, int]] = []

    def is_led() -> bool:
        with RawClient(cluster.nodes[leader_of(cluster, topic)].address) as raw:
            answers.append(produced(raw.ask(PRODUCE, 3, produce_body(topic, batch))))
        return answers[-1][0] != NOT_LEADER

    until(is_led, "the partition's leader takes a batch", seen=lambda: answers[-1:])
    code, offset = answers[-1]
    assert code == 0
    return offset


def of_times(*times: int) -> bytes:
    return build_batch([new_record(None, b"x" * 60, timestamp=each) for each in times])


def as_sarama_1_43(now_ms: int) -> bytes:
    """The first record's time is the base timestamp, the maximum is never set."""
    batch = of_times(now_ms - 10, now_ms)
    head = stamp_max_timestamp(read_header(batch), batch, base_offset=0, leader_epoch=-1, max_timestamp=-1)
    return head + batch[HEADER_BYTES:]


def librdkafka_without_a_timestamp(cluster: Cluster, topic: str, now_ms: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"x" * 60, timestamp=-1)
    assert producer.flush(30) == 0


def sarama(cluster: Cluster, topic: str, now_ms: int) -> None:
    produce_raw(cluster, topic, as_sarama_1_43(now_ms))


@pytest.mark.parametrize("write", [librdkafka_without_a_timestamp, sarama], ids=lambda each: each.__name__)
def test_a_fresh_record_stays_whatever_its_header_says(
    cluster: Cluster, client: Confluent, topic: str, write: Callable[[Cluster, str, int], None]
) -> None:
    """With the default retention of seven days both were gone at the next look."""
    client.create_topic(topic, 1, 3, **CONFIGS)
    assert produce_raw(cluster, topic, of_times(1)) == 0
    now_ms = int(time.time() * 1000)
    write(cluster, topic, now_ms)
    until(lambda: client.bounds(topic, 0)[0] > 0, "the record of 1970 gone")
    assert client.bounds(topic, 0)[0] == 1
    newest = batches_on_disk(cluster, leader_of(cluster, topic), topic)[-1].max_timestamp
    assert newest == (now_ms if write is sarama else -1)
    assert client.offset_at(topic, 0, now_ms - 60_000) == (1 if write is sarama else None)
    assert client.offset_at(topic, 0, now_ms) == (2 if write is sarama else None)


def test_no_bytes_of_retention_leave_nothing(cluster: Cluster, client: Confluent, topic: str) -> None:
    """retention.bytes=0 takes the segment that is written to as well, as in Kafka."""
    client.create_topic(topic, 1, 3, retention_bytes="0")
    produce_raw(cluster, topic, of_times(int(time.time() * 1000)))
    until(lambda: client.bounds(topic, 0) == (1, 1), "everything gone")
