"""Partitions that move while they are written to, asked for by kafka-python's admin client (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from raftlog.base.errors import InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition
from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.failover.test_quorum import place
from tests.clients.nodes import folder, restore_nodes, run_checked, view, wait_isr
from tests.clients.with_confluent import Confluent
from tests.kit.waits import PATIENCE_S

SOME = 50
NODES = 4


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    with run_checked(NODES, voters=3, settings={"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def admin(four: Cluster) -> Iterator[KafkaAdminClient]:
    with admin_of(four) as client:
        yield client


@contextmanager
def admin_of(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    """A client that knows only running nodes: it does not try another when a node is away."""
    bootstrap = [cluster.nodes[node_id].address for node_id in sorted(cluster.running_ids())]
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


@pytest.fixture
def client(four: Cluster) -> Iterator[Confluent]:
    with closing(Confluent(four.bootstrap_servers)) as confluent:
        yield confluent


def move(admin: KafkaAdminClient, topic: str, replicas: Sequence[int] | None, partition: int = 0) -> Any:
    """Ask for these replicas (None: cancel); returns the error, None if there is none."""
    return admin.alter_partition_reassignments({TopicPartition(topic, partition): replicas})[
        TopicPartition(topic, partition)
    ]


def wait_moved(cluster: Cluster, topic: str, replicas: Sequence[int]) -> None:
    """Wait until exactly these brokers hold the topic's first partition, all in sync, and no other has its folder."""

    def moved() -> bool:
        seen = view(cluster, topic)
        return seen is not None and seen.replicas == frozenset(replicas) == seen.isr

    cluster.wait_until(moved, f"{topic}-0 is on {replicas}")
    others = set(cluster.nodes) - set(replicas)
    cluster.wait_until(
        lambda: not any(folder(cluster, each, topic).exists() for each in others), "the others' logs are gone"
    )


def test_partition_moves_to_other_brokers_under_a_producer(
    four: Cluster, client: Confluent, admin: KafkaAdminClient, topic: str
) -> None:
    """KIP-455: no acknowledged record is lost, the leader hands over at the end, the old replicas' logs go."""
    place(client, topic, [[1, 2]], min_insync_replicas="2")
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
        assert move(admin, topic, [3, 4]) is None
        wait_moved(four, topic, [3, 4])
        stream.wait_acked(SOME)
    assert stream.read_back(client) == stream.values
    assert admin.list_partition_reassignments() == {}


def test_reassignment_that_cannot_go_on_is_listed_and_cancelled(
    four: Cluster, client: Confluent, topic: str
) -> None:
    """The old replicas serve on while the new replica is away; cancelling leaves them alone again."""
    place(client, topic, [[1, 2]])
    four.kill(4)
    try:
        four.wait_ready()
        with admin_of(four) as admin, BackgroundProducer(client, topic) as stream:
            assert move(admin, topic, [4, 1]) is None
            moves = {"replicas": [4, 1, 2], "adding_replicas": [4], "removing_replicas": [2]}
            assert admin.list_partition_reassignments() == {TopicPartition(topic, 0): moves}
            assert admin.list_partition_reassignments([TopicPartition("elsewhere", 0)]) == {}
            stream.wait_acked(SOME)
            assert move(admin, topic, None) is None
            assert admin.list_partition_reassignments() == {}
            assert move(admin, topic, None).errno == NoReassignmentInProgress.code
        wait_isr(four, topic, [1, 2])
        assert stream.read_back(client) == stream.values
    finally:
        restore_nodes(four)


def test_replication_factor_grows_and_shrinks(
    four: Cluster, client: Confluent, admin: KafkaAdminClient, topic: str
) -> None:
    """More replicas for a topic, then fewer: both are reassignments."""
    place(client, topic, [[2]])
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
        assert move(admin, topic, [2, 3, 1]) is None
        wait_moved(four, topic, [1, 2, 3])
        assert move(admin, topic, [3]) is None
        wait_moved(four, topic, [3])
        stream.wait_acked(SOME)
    assert stream.read_back(client) == stream.values


@pytest.mark.parametrize("replicas", [[1, 1], [1, 99], [-1]])
def test_impossible_replicas_are_refused(
    four: Cluster, client: Confluent, admin: KafkaAdminClient, topic: str, replicas: list[int]
) -> None:
    """Each partition is judged on its own, and refused changes have no effect."""
    place(client, topic, [[1, 2], [2, 1]])
    asked_for = {TopicPartition(topic, 0): replicas, TopicPartition(topic, 1): [1, 2]}
    answers = admin.alter_partition_reassignments({**asked_for, TopicPartition(topic, 9): [1]})
    assert {place.partition: error and error.errno for place, error in answers.items()} == {
        0: InvalidReplicaAssignment.code,
        1: None,
        9: UnknownTopicOrPartition.code,
    }
    seen = view(four, topic, 0)
    assert seen is not None
    assert seen.replicas == frozenset({1, 2})


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MEGABYTES = 3


def alter(cluster: Cluster, kind: ResourceType, name: str, configs: Sequence[str], value: str | None) -> None:
    """Set configs of a topic or a broker, or (None) take them back."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entries = [ConfigEntry(each, value or "", incremental_operation=operation) for each in configs]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_throttled_move_waits_and_goes_on_when_the_throttle_is_lifted(
    four: Cluster, client: Confluent, admin: KafkaAdminClient, topic: str
) -> None:
    """KIP-73, with the configs that kafka-reassign-partitions sets; replicas in sync go on as ever."""
    place(client, topic, [[1, 2]], min_insync_replicas="2")
    megabyte = bytes(900_000)
    client.produce(topic, [megabyte] * MEGABYTES, partition=0, acks="all")
    alter(four, ResourceType.TOPIC, topic, LISTS, "*")
    for broker_id in four.nodes:
        alter(four, ResourceType.BROKER, str(broker_id), RATES, "1")
    assert move(admin, topic, [1, 2, 3]) is None
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
    assert TopicPartition(topic, 0) in admin.list_partition_reassignments()
    for broker_id in four.nodes:
        alter(four, ResourceType.BROKER, str(broker_id), RATES, None)
    wait_moved(four, topic, [1, 2, 3])


OFFSETS = "__consumer_offsets"


def test_groups_go_on_where_their_offsets_move(
    four: Cluster, client: Confluent, admin: KafkaAdminClient, topic: str
) -> None:
    """The coordinator is the leader of the group's partition: it moves along, with everything committed."""
    place(client, topic, [[1]])
    first, second = OffsetAndMetadata(7, "", -1), OffsetAndMetadata(9, "", -1)
    where = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": four.bootstrap_servers.split(","), "group_id": f"group-{topic}"}
    with closing(KafkaConsumer(**settings)) as consumer:
        consumer.assign([where])
        consumer.commit({where: first})
        seen = view(four, OFFSETS)
        assert seen is not None
        target = [seen_id for seen_id in (4, 3, 2, 1) if seen_id != seen.leader][:2]
        assert move(admin, OFFSETS, target) is None
        wait_moved(four, OFFSETS, target)
        assert consumer.committed(where) == first.offset
        consumer.commit({where: second})
    with closing(KafkaConsumer(**settings)) as another:
        assert another.committed(where) == second.offset
