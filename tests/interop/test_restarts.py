"""Stock clients go on when a node is killed and soon comes back."""

from __future__ import annotations

from threading import Thread, Timer

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from raftlog.protocol.apis import ApiKey
from raftlog.testing.cluster import Cluster
from tests.clients.coordinator_client import ask
from tests.clients.nodes import run_checked

PATIENCE_S = 60.0
AWAY_S = 8.0
"""Longer than a broker may be silent, shorter than a fenced broker is listed."""


def coordinator_of(cluster: Cluster, group: str) -> int:
    found: list[int] = []

    def is_known() -> bool:
        answer = ask(cluster.nodes[1].address, ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)
        found.append(answer.node_id)
        return not answer.error_code

    cluster.wait_until(is_known, f"{group} has a coordinator")
    return found[-1]


def test_an_exactly_once_program_goes_on_after_a_restart_of_its_groups_coordinator() -> None:
    """librdkafka 2.10 and later waits for ever for a coordinator that was missing in a Metadata response.

    The client keeps asking for metadata, for the leader of a topic with its only replica on the dead node.
    """
    with run_checked(3) as cluster:
        here = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        consumer = Consumer({**here, "group.id": "copiers"})
        group = consumer.consumer_group_metadata()
        producer = Producer({**here, "transactional.id": "copier"})

        def copy(offset: int) -> None:
            producer.begin_transaction()
            for topic, partition in (("lonely", 0), ("wide", 0), ("wide", 1), ("wide", 2)):
                producer.produce(topic, str(offset), partition=partition)
            assert producer.flush(PATIENCE_S) == 0
            producer.send_offsets_to_transaction([TopicPartition("lonely", 0, offset)], group, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)

        victim = coordinator_of(cluster, "copiers")
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        alone = {"num_partitions": -1, "replication_factor": -1, "replica_assignments": {0: [victim]}}
        admin.create_topics([NewTopic("lonely", **alone), NewTopic("wide", 3, 3)])
        admin.close()
        producer.init_transactions(PATIENCE_S)
        copy(1)
        cluster.kill(victim)
        back = Timer(AWAY_S, cluster.restart, [victim], {"wait": False})
        back.start()
        copying = Thread(
            target=copy, args=[2], daemon=True
        )  # a call that never returns can only be left behind
        copying.start()
        copying.join(PATIENCE_S)
        back.join()
        assert not copying.is_alive(), "send_offsets_to_transaction() does not return"
        assert consumer.committed([TopicPartition("lonely", 0)], PATIENCE_S)[0].offset == 2
        consumer.close()
