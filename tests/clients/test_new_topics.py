"""Claims about a topic of many partitions: it can be written to as soon as its creation was answered."""

from __future__ import annotations

import struct

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.base.types import TopicPartition
from raftlog.protocol.apis import ApiKey
from raftlog.records.batch import build_batch, new_record
from raftlog.testing.cluster import Cluster
from tests.clients.raw_client import PRODUCE, RawClient, produce_body, produced, string, view_topic
from tests.kit.waits import PATIENCE_S

PARTITIONS = 200
PRODUCE_VERSION = 3
CREATE_VERSION = 2
BATCH = build_batch([new_record(None, b"first", timestamp=0)])


def create(client: RawClient, topic: str) -> int:
    """Ask one node for a topic of 200 partitions; return the error code of its answer."""
    shape = struct.pack(">ihii", PARTITIONS, 1, 0, 0)
    body = struct.pack(">i", 1) + string(topic) + shape + struct.pack(">i?", 30_000, False)
    answer = client.ask(int(ApiKey.CREATE_TOPICS), CREATE_VERSION, body)
    answer.int32()  # the throttle time
    assert answer.int32() == 1
    answer.string()
    return answer.int16()


def test_a_node_that_answered_serves_each_partition_that_it_leads(cluster: Cluster, topic: str) -> None:
    """Each of three nodes leads some 67 of 200. They were refused for up to 0.6 s, and for longer under load."""
    node_id = 1
    found = cluster.addresses[node_id]
    address = f"{found.host}:{found.port}"
    with RawClient(address) as client:
        assert create(client, topic) == 0
        view = view_topic(address, topic)
        assert view is not None
        led = [index for index, state in enumerate(view) if state.leader == node_id]
        assert len(led) > PARTITIONS / 4
        codes = {
            produced(client.ask(PRODUCE, PRODUCE_VERSION, produce_body(topic, BATCH, partition=index)))[0]
            for index in led
        }
    assert codes == {0}


def test_a_producer_that_writes_at_once_to_all_partitions_has_no_error_to_report(
    cluster: Cluster, topic: str
) -> None:
    """Other nodes may still make theirs; librdkafka tries again, and idempotence keeps each batch the first."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    errors: list[object] = []
    written: set[TopicPartition] = set()

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            errors.append(error)
        written.add(TopicPartition(message.topic() or "", message.partition() or 0))

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
    producer = Producer({**settings, "error_cb": errors.append})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(PATIENCE_S)
    for index in range(PARTITIONS):
        producer.produce(topic, b"first", partition=index, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert not errors
    assert len(written) == PARTITIONS
