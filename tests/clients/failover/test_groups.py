"""Groups of stock consumers on a real cluster: they subscribe, share, commit, and lose no commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.testing.cluster import Cluster
from tests.kit.marks import nightly
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, poll_until, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

RECORDS = 300
MOVING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}


@pytest.fixture(scope="module", autouse=True)
def records(cluster: Cluster) -> None:
    """A topic of three partitions with records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("groups", 3, 3)])["groups"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("groups", b"%d" % number, key=b"%d" % (number % 20))
    assert producer.flush(PATIENCE_S) == 0


def consumer_of(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            **settings,
        }
    )
    consumer.subscribe(["groups"])
    return consumer


def read(consumer: Consumer, count: int) -> set[tuple[int, int]]:
    """Read that many records; returns where they were."""
    found: set[tuple[int, int]] = set()

    def enough() -> bool:
        record = consumer.poll(0.2)
        if record is not None and record.error() is None:
            found.add((record.partition(), record.offset()))
        return len(found) == count

    poll_until(enough, f"{count} records are read", seen=lambda: len(found))
    return found


def first_error(consumer: Consumer) -> KafkaError:
    found: list[KafkaError] = []

    def failed() -> bool:
        record = consumer.poll(0.2)
        if record is not None and record.error() is not None:
            found.append(record.error())
        return bool(found)

    poll_until(failed, "the program is told of an error")
    return found[0]


def insist(call: Callable[[], Any]) -> Any:
    """Ask again while the coordinator moves: librdkafka leaves that to the program."""
    found: list[Any] = []
    said: list[str] = []

    def answered() -> bool:
        try:
            found.append(call())
        except KafkaException as error:
            if error.args[0].code() not in MOVING:
                raise
            said[:] = [str(error)]
        return bool(found)

    until(answered, "the coordinator answers", seen=lambda: said)
    return found[0]


def committed(consumer: Consumer) -> list[tuple[int, str | None]]:
    topic_partitions = [TopicPartition("groups", index) for index in range(3)]
    found = insist(lambda: consumer.committed(topic_partitions, PATIENCE_S))
    return [(each.offset, each.metadata) for each in found]


def kill_all(cluster: Cluster) -> None:
    for node_id in cluster.nodes:
        cluster.kill(node_id)
    for node_id in cluster.nodes:
        cluster.restart(node_id, wait=False)
    cluster.wait_ready()


def kill_coordinator(cluster: Cluster, group: str = "killed-coordinator") -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    node_id = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).coordinator.id
    cluster.kill(node_id)
    cluster.restart(node_id)


@pytest.mark.parametrize(
    ("group", "harm"), [("killed-all", kill_all), ("killed-coordinator", kill_coordinator)]
)
def test_a_member_goes_on_after_kills_and_every_commit_is_there(
    cluster: Cluster, group: str, harm: Callable[[Cluster], None]
) -> None:
    """Commits with their text survive kill -9 of the coordinator and of all nodes; no record comes twice."""
    consumer = consumer_of(cluster, group)
    first = read(consumer, RECORDS // 2)
    topic_partitions = [TopicPartition("groups", index) for index in range(3)]
    read_to = [each for each in consumer.position(topic_partitions) if each.offset >= 0]
    texts = [
        TopicPartition(each.topic, each.partition, each.offset, metadata=f"at {each.offset}")
        for each in read_to
    ]
    consumer.commit(offsets=texts, asynchronous=False)
    before = committed(consumer)
    assert any(metadata and metadata.startswith("at ") for _, metadata in before)
    harm(cluster)
    assert committed(consumer) == before
    rest = read(consumer, RECORDS - len(first))
    assert not first & rest
    insist(lambda: consumer.commit(asynchronous=False))
    consumer.close()
    successor = consumer_of(cluster, group)
    assert sum(offset for offset, _ in committed(successor)) == RECORDS
    successor.close()


@pytest.mark.parametrize("strategy", ["range", nightly("cooperative-sticky")])
def test_two_members_share_and_the_one_that_stays_gets_the_rest(cluster: Cluster, strategy: str) -> None:
    """A second consumer takes its share; when it leaves, the first goes on with all (KIP-429 keeps what it had)."""
    settings = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 500}
    group = f"shared-{strategy}"
    first = consumer_of(cluster, group, **settings)
    read(first, 1)
    assert shares(first) == (3,)
    second = consumer_of(cluster, group, **settings)
    until(lambda: sorted(shares(first, second)) == [1, 2], "they share")
    second.close()
    until(lambda: shares(first) == (3,), "it has all")
    first.close()


def shares(*consumers: Consumer) -> tuple[int, ...]:
    """How many partitions each has, after it had a look at its group."""
    for each in consumers:
        each.poll(0.1)
    return tuple(len(each.assignment()) for each in consumers)


def test_the_program_learns_that_its_group_is_too_big() -> None:
    """GROUP_MAX_SIZE_REACHED of a cluster with group.max.size=1; after a leave the next one gets in."""
    with Cluster(1, settings={"group.max.size": "1", **SMALL}) as small:
        admin = AdminClient({"bootstrap.servers": small.bootstrap_servers})
        admin.create_topics([NewTopic("groups", 3, 1)])["groups"].result(PATIENCE_S)
        first = consumer_of(small, "full")
        until(lambda: shares(first) == (3,), "it has all")
        second = consumer_of(small, "full")
        assert first_error(second).code() == KafkaError.GROUP_MAX_SIZE_REACHED
        second.close()
        first.close()
        third = consumer_of(small, "full")
        until(lambda: shares(third) == (3,), "it has all")
        third.close()


def test_groups_and_offsets_are_deleted_by_stock_admins(cluster: Cluster) -> None:
    """DeleteGroups and OffsetDelete: refused while a member reads, done after."""
    from kafka.admin import KafkaAdminClient

    reader = consumer_of(cluster, "to-go", **{"heartbeat.interval.ms": 500})
    read(reader, RECORDS)
    reader.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups(["to-go"])["to-go"].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    topic_partitions = [TopicPartition("groups", index) for index in range(3)]
    assert all(each.offset > 0 for each in insist(lambda: reader.committed(topic_partitions, PATIENCE_S)))
    reader.close()
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    from kafka import TopicPartition as Place

    python.delete_group_offsets("to-go", [Place("groups", 0)])
    after = consumer_of(cluster, "to-go")
    assert [each.offset >= 0 for each in insist(lambda: after.committed(topic_partitions, PATIENCE_S))] == [
        False,
        True,
        True,
    ]
    after.close()
    python.delete_groups(["to-go"])
    assert "to-go" not in {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
    python.close()


def test_kafka_python_subscribes_and_commits(cluster: Cluster) -> None:
    """The pure Python client in a group, with its commit read back by another client."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        group_id="kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(["groups"])
    consumer.partitions_for_topic("groups")  # once joined, it may forget to rejoin for what it learns then
    found: list[Any] = []

    def read_all() -> bool:
        for records in consumer.poll(200).values():
            found.extend(records)
        return len(found) >= RECORDS

    poll_until(read_all, "every record is read", seen=lambda: len(found))
    consumer.commit()
    assert sum(consumer.committed(Place("groups", index)) or 0 for index in range(3)) == RECORDS
    consumer.close()


async def test_aiokafka_subscribes_and_an_assigned_consumer_commits(cluster: Cluster) -> None:
    """The asyncio client in a group; and without a group, committing with generation -1."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Place

    settings = {"bootstrap_servers": cluster.bootstrap_servers, "enable_auto_commit": False}
    member = AIOKafkaConsumer("groups", group_id="aiokafka", auto_offset_reset="earliest", **settings)
    await member.start()
    count = 0
    while count < RECORDS:
        count += sum(map(len, (await member.getmany(timeout_ms=200)).values()))
    await member.commit()
    await member.stop()
    simple = AIOKafkaConsumer(group_id="aiokafka", **settings)
    await simple.start()
    simple.assign([Place("groups", 0)])
    await simple.commit({Place("groups", 0): (7, "rewound")})
    assert await simple.committed(Place("groups", 0)) == 7
    await simple.stop()
