"""The partitions that the groups of these tests read, and their committed offsets, from a stock admin client."""

from __future__ import annotations

from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.kit.waits import PATIENCE_S, poll_until

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
    found: dict[int, int] = {}

    def is_loaded() -> bool:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        try:
            found.update(
                {each.partition: each.offset for each in asked[group].result(PATIENCE_S).topic_partitions}
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False
        return True

    poll_until(is_loaded, f"the coordinator of {group} is loaded")  # the first group of a cluster has to wait
    return found
