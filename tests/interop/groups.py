"""What a group has committed, as a stock admin client is told."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from raftlog.testing.cluster import Cluster


def stored_offsets(cluster: Cluster, group: str) -> dict[int, int]:
    """Return what a group has committed, by partition (of the one topic that it reads)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {each.partition: each.offset for each in asked[group].result(10).topic_partitions}
