"""Records are read for a test's assertions: all that there are, or once there are enough."""

from __future__ import annotations

from functools import partial
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from raftlog.base.errors import LeaderNotAvailable
from raftlog.testing import progress, reading
from raftlog.testing.cluster import Cluster, ClusterError
from tests.kit.waits import PATIENCE_S

pytestmark = pytest.mark.clients


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"read-{uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=2)
    return name


def produce(cluster: Cluster, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for each in values:
        producer.produce(topic, each, b"key", partition, headers={"h": b"1"})
    assert producer.flush(PATIENCE_S) == 0


def test_all_records_come_in_the_order_of_partitions_and_offsets(cluster: Cluster, topic: str) -> None:
    """With keys and headers; none of an empty topic."""
    assert cluster.read(topic) == []
    produce(cluster, topic, b"c", partition=1)
    produce(cluster, topic, b"a", b"b")
    found = cluster.read(topic, 3)
    assert [(each.partition, each.offset, each.value) for each in found] == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (1, 0, b"c"),
    ]
    assert {(each.key, each.headers) for each in found} == {(b"key", (("h", b"1"),))}


def test_a_number_of_records_is_waited_for(cluster: Cluster) -> None:
    """Also before the topic is there."""
    topic = f"read-{uuid4().hex[:8]}"
    later = Timer(0.2, produce, (cluster, topic, b"a", b"b"))
    later.start()
    assert [each.value for each in cluster.read(topic, 2)] == [b"a", b"b"]
    later.join()


def test_records_that_do_not_come_are_an_error_that_says_how_many_did(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the logs of the nodes, as all errors of a cluster."""
    produce(cluster, topic, b"a")
    monkeypatch.setattr(progress, "STALL_S", 0.3)
    monkeypatch.setattr(
        reading, "Wait", lambda what, **more: progress.Wait(what, stall_s=progress.STALL_S, **more)
    )
    with pytest.raises(ClusterError, match=r"has 2 records: no progress .* last seen: 1 records"):
        cluster.read(topic, 2)
    missing = f"read-{uuid4().hex[:8]}"
    with pytest.raises(ClusterError, match=f"has 1 records: .* last seen: there is no topic {missing}"):
        cluster.read(missing, 1)


def test_an_error_of_a_topic_that_is_there_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader is being elected, for example: that is no missing topic."""

    def partitions(*_: object) -> list[int]:
        raise LeaderNotAvailable("an election is under way")

    monkeypatch.setattr(reading, "_partitions", partitions)
    monkeypatch.setattr(reading, "Wait", partial(progress.Wait, stall_s=0.01))
    nothing: Any = None
    with pytest.raises(progress.Stalled, match="last seen: an election is under way"):
        reading._read(nothing, nothing, "there", 1)
    with pytest.raises(LeaderNotAvailable):
        reading._read(nothing, nothing, "there", 0)


def test_a_topic_that_is_not_there_is_an_error_without_a_number(cluster: Cluster) -> None:
    """At once: the topic is not created, and no record is waited for."""
    topic = f"read-{uuid4().hex[:8]}"
    for _ in range(2):
        with pytest.raises(ClusterError, match=f"topic {topic} cannot be read"):
            cluster.read(topic)
