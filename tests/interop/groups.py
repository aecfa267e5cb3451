"""The partitions that the groups of these tests read, and their committed offsets, as a stock admin client is told."""

from __future__ import annotations

from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.kit.waits import PATIENCE_S

PARTITIONS: Final = 4


class Orders:
    """Records in all partitions of a new topic, and what they were."""

    def __init__(self, client: Confluent, topic: str, *, partitions: int = PARTITIONS) -> None:
        client.create_topic(topic, partitions, 3)
        self.sent: set[bytes] = set()
        self._client = client
        self._topic = topic
        self._partitions = partitions

    def send(self, count: int) -> None:
        """Send so many to each partition, all of them different."""
        for index in range(self._partitions):
            values = [b"%d-%d" % (index, len(self.sent) + number) for number in range(count)]
            self._client.produce(self._topic, values, partition=index)
            self.sent.update(values)


def stored_offsets(cluster: Cluster, group: str) -> dict[int, int]:
    """Return what a group has committed, by partition (of the one topic that it reads)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {each.partition: each.offset for each in asked[group].result(PATIENCE_S).topic_partitions}
