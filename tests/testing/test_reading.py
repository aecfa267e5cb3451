"""Records are read for a test's assertions: all that there are, or once there are enough."""

from __future__ import annotations

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
    monkeypatch.setattr(reading, "STALL_S", 0.3)
    waiting, longer = f"waiting for 2 records of topic {topic}", "timeout=SECONDS waits longer"
    monkeypatch.setattr(cluster, "errors_have_logs", False)
    with pytest.raises(
        ClusterError, match=f"{waiting}: no progress .* last seen: 1 record; {longer}$"
    ) as caught:
        cluster.read(topic, 2)
    assert caught.value.__suppress_context__, "a traceback of the wait says nothing more"


def test_a_limit_ends_the_wait_for_records_and_for_a_topic(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number of seconds, also after a minute without progress; the error says what came."""
    produce(cluster, topic, b"a")
    waiting = f"waiting for 2 records of topic {topic}: timed out after . s; last seen: 1 record$"
    monkeypatch.setattr(reading, "STALL_S", 0.1)
    monkeypatch.setattr(cluster, "errors_have_logs", False)
    with pytest.raises(ClusterError, match=waiting):
        cluster.read(topic, 2, timeout=0.5)
    assert [each.value for each in cluster.read(topic, 1, timeout=PATIENCE_S)] == [b"a"]
    missing = f"read-{uuid4().hex[:8]}"
    with pytest.raises(ClusterError, match=f"timed out after . s; last seen: there is no topic {missing}"):
        cluster.read(missing, 1, timeout=0.5)


def test_a_topic_that_is_not_there_is_not_waited_for_as_long_as_records(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is mistyped fails the test soon; a program that creates its topic late needs a limit of its own."""
    monkeypatch.setattr(reading, "MISSING_S", 0.2)
    missing = f"read-{uuid4().hex[:8]}"
    expected = f"there is no topic {missing}, and none came in . s; timeout=SECONDS waits longer"
    with pytest.raises(ClusterError, match=expected) as caught:
        cluster.read(missing, 1)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_an_error_of_a_topic_that_is_there_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader is being elected, for example: that is no missing topic."""

    def partitions(*_: object) -> list[int]:
        raise LeaderNotAvailable("an election is under way")

    monkeypatch.setattr(reading, "_partitions", partitions)
    monkeypatch.setattr(reading, "STALL_S", 0.01)
    nothing: Any = None
    with pytest.raises(progress.Stalled, match="last seen: an election is under way"):
        reading._read(nothing, nothing, "there", 1)
    with pytest.raises(LeaderNotAvailable):
        reading._read(nothing, nothing, "there", 0)


def test_a_topic_that_is_not_there_is_an_error_without_a_number(cluster: Cluster) -> None:
    """At once: the topic is not created, and no record is waited for."""
    topic = f"read-{uuid4().hex[:8]}"
    for _ in range(2):
        with pytest.raises(ClusterError, match=f"there is no topic {topic}"):
            cluster.read(topic)
