"""Members that stand still, come back under their name, speak another protocol than the rest, or read a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from raftlog.testing.cluster import Cluster
from tests.clients.members import MemberKind, group_members, python_kind
from tests.clients.nodes import run_checked
from tests.clients.with_confluent import Confluent
from tests.interop.conftest import SETTINGS
from tests.interop.groups import PARTITIONS, Orders
from tests.interop.member_kinds import case, java_kind
from tests.kit.waits import PATIENCE_S, until


@pytest.fixture(scope="module")
def patient_cluster() -> Iterator[Cluster]:
    """Its sessions are as long as Kafka's own: long enough for a member that is started again, however slow that is."""
    heartbeats = {name: value for name, value in SETTINGS.items() if "heartbeat" in name}
    with run_checked(3, settings=heartbeats) as cluster:
        yield cluster


def test_with_an_eager_assignor_everybody_gives_up_everything(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """The other half of the promise: eager consumers do what cooperative consumers are spared."""
    Orders(client, topic)
    kind = python_kind("confluent")
    with group_members(cluster.bootstrap_servers, topic, f"of-{topic}", kind, partitions=PARTITIONS) as group:
        group.wait_shares([4])
        group.join(kind)
        group.wait_shares([2, 2])
        assert sorted(group.members[0].revoked[:PARTITIONS]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "kind",
    [
        case(python_kind("confluent")),
        case(python_kind("kafka-python")),
        case(java_kind("roundrobin")),
        case(python_kind("confluent", "consumer")),
        case(java_kind("consumer")),
    ],
)
def test_a_static_member_that_restarts_causes_no_rebalance(
    patient_cluster: Cluster, topic: str, kind: MemberKind
) -> None:
    """KIP-345: back within its session, it keeps its partitions, and the other gave up none.

    In the classic protocol also after a kill; KIP-848 does not release the id of a member that never left.
    """
    servers = patient_cluster.bootstrap_servers
    with (
        closing(Confluent(servers)) as client,
        group_members(servers, topic, f"of-{topic}", partitions=PARTITIONS) as group,
    ):
        orders = Orders(client, topic)
        group.join(kind, instance_id="steady")
        group.join(kind, instance_id="restarted")
        group.wait_shares([2, 2])
        steady, restarted = group.members
        given_up, owned = len(steady.revoked), restarted.partitions
        if kind.assignor == "consumer":
            group.leave(1)
        else:
            group.kill(1)
        orders.send(5)
        group.join(kind, instance_id="restarted")
        group.wait_shares([2, 2])
        group.wait_read(orders.sent)
        assert group.members[1].partitions == owned
        assert len(steady.revoked) == given_up


@pytest.mark.parametrize(
    "kind",
    [
        case(python_kind("confluent")),
        case(python_kind("aiokafka")),
        case(java_kind("cooperative-sticky")),
        case(java_kind("consumer")),
    ],
)
def test_a_member_that_stood_still_is_replaced_and_comes_back(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """Silent for longer than its session: the other reads all records; awake again, it gets a share.

    Both have read before, so that the sleeper does not ask where to begin: as an unknown member, Java's consumer of
    KIP-848 would throw then.
    """
    orders = Orders(client, topic)
    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", kind, kind, partitions=PARTITIONS
    ) as group:
        group.wait_shares([2, 2])
        orders.send(5)
        group.wait_read(orders.sent)
        sleeper = group.members.pop(1)
        sleeper.pause()
        orders.send(5)
        group.wait_shares([4])
        group.wait_read(orders.sent)
        sleeper.resume()
        group.members.append(sleeper)
        group.wait_shares([2, 2])
        orders.send(5)
        group.wait_read(orders.sent)


@pytest.mark.java
def test_a_member_that_stood_still_before_it_read_hears_of_it_and_comes_back(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Removed while it asks where to begin, Java's consumer of KIP-848 throws; after a further poll it is a member
    again.
    """
    orders = Orders(client, topic)
    kind = java_kind("consumer")
    with group_members(cluster.bootstrap_servers, topic, f"of-{topic}", kind, partitions=PARTITIONS) as group:
        group.wait_shares([4])
        group.join(kind)
        sleeper = group.members.pop(1)
        until(lambda: bool(sleeper.partitions), "it has something")
        sleeper.pause()
        group.wait_shares([4])
        sleeper.resume()
        group.members.append(sleeper)
        group.wait_shares([2, 2])
        orders.send(5)
        group.wait_read(orders.sent)


LIBRDKAFKA = python_kind("confluent", "cooperative-sticky"), python_kind("confluent", "consumer")
JAVA = java_kind("cooperative-sticky"), java_kind("consumer")


@pytest.mark.parametrize(
    ("first", "second"),
    [case(*LIBRDKAFKA), case(*JAVA)],
)
def test_a_group_goes_over_to_the_new_protocol_and_back_while_it_reads(
    cluster: Cluster, client: Confluent, topic: str, first: MemberKind, second: MemberKind
) -> None:
    """KIP-848, online migration: one member after the other is replaced, both ways, and every record is read."""
    replace_members(cluster, client, topic, [first, first], [second, second], [first, first])


@pytest.mark.java
def test_a_group_of_two_libraries_goes_over_to_the_new_protocol_and_back(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Java and librdkafka side by side, in the classic protocol, in both at once, in the new protocol, and back."""
    classic, modern = [LIBRDKAFKA[0], JAVA[0]], [LIBRDKAFKA[1], JAVA[1]]
    replace_members(cluster, client, topic, classic, modern[::-1], classic[::-1])


def replace_members(cluster: Cluster, client: Confluent, topic: str, *lives: list[MemberKind]) -> None:
    """Let the members of a group's lives replace each other, the eldest first, while it reads."""
    orders = Orders(client, topic)
    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", *lives[0], partitions=PARTITIONS
    ) as group:
        group.wait_shares([2, 2])
        for kind in (each for life in lives[1:] for each in life):
            orders.send(5)
            group.leave(0)
            group.join(kind)
            group.wait_shares([2, 2])
            group.wait_read(orders.sent)


@pytest.mark.parametrize(
    "kind",
    [
        case(python_kind("confluent")),
        case(java_kind("cooperative-sticky")),
        case(python_kind("confluent", "consumer")),
        case(java_kind("consumer")),
    ],
)
def test_a_pattern_finds_topics_that_come_later(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """Subscribed to a regular expression before there is such a topic: it is read once there is."""
    pattern = f"^{topic}-.*"
    with group_members(
        cluster.bootstrap_servers, pattern, f"of-{topic}", kind, kind, partitions=PARTITIONS
    ) as group:
        for name in ("first", "second"):
            orders = Orders(client, f"{topic}-{name}")
            orders.send(5)
            group.wait_read(orders.sent)


def test_members_without_a_common_assignor_get_an_error(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """The second member gets INCONSISTENT_GROUP_PROTOCOL; the first is not disturbed."""
    Orders(client, topic)
    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", python_kind("confluent"), partitions=PARTITIONS
    ) as group:
        group.wait_shares([4])
        stranger = Consumer(settings(cluster, f"of-{topic}", **{"partition.assignment.strategy": "range"}))
        stranger.subscribe([topic])
        refused = stranger.poll(PATIENCE_S)
        assert refused is not None
        assert refused.error().code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        stranger.close()
        assert not group.members[0].revoked


def test_a_commit_with_a_text_too_long_is_refused_alone(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """offset.metadata.max.bytes is 4096: OFFSET_METADATA_TOO_LARGE for that partition, the other is committed."""
    client.create_topic(topic, 2, 3)
    consumer = Consumer(settings(cluster, f"of-{topic}"))
    texts = [
        TopicPartition(topic, index, 5, metadata="x" * size) for index, size in enumerate((4_097, 4_000))
    ]
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=texts, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    stored = consumer.committed([TopicPartition(topic, index) for index in range(2)], PATIENCE_S)
    assert [each.offset >= 0 for each in stored] == [False, True]
    consumer.close()


def settings(cluster: Cluster, group: str, **more: str) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
        "log_level": 0,
        **more,
    }
