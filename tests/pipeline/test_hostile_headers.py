"""Headers with names that are not UTF-8: confluent-kafka fails on them, and the record at fault is named."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from raftlog.cli.target import Target
from raftlog.client.producer import ALL, Producer
from raftlog.records.batch import new_record
from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics


@pytest.mark.spark
def test_a_record_whose_headers_cannot_be_read_is_named(cluster: Cluster, topics: Topics) -> None:
    """The library reports a SystemError without a place. The record before it is read."""
    from raftlog.pipeline.fetch import UnreadableHeaders, _headers

    topic, target = "hostile-headers", Target(cluster.bootstrap_servers)
    topics.make(topic)
    producer = Producer(target.cluster, topic, acks=ALL, codec=0, idempotent=True)
    for name in (b"trace", b"\xff"):
        header = (name.decode(errors="surrogateescape"), b"\xff")
        producer.send(new_record(None, b"v", timestamp=1, headers=(header,)), 0)
    producer.flush()
    producer.close()
    target.close()
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    for _ in range(10):
        found += [each for each in consumer.consume(2 - len(found), 1.0) if each.error() is None]
    first, second = found[:2]
    assert _headers(first) == [{"key": "trace", "value": b"\xff"}]
    with pytest.raises(UnreadableHeaders, match=f"the record {topic} 0 at offset 1 has a header"):
        _headers(second)
    consumer.close()
