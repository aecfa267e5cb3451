"""KafkaJS, Go and Java in one group with confluent-kafka, kafka-python and aiokafka, members killed and added."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import MemberKind, group_members, python_kind
from tests.clients.test_group_of_all import kill_coordinator
from tests.clients.with_confluent import Confluent
from tests.interop.groups import Orders
from tests.interop.member_kinds import GO_LIBRARIES, case, go_kind, java_kind, kafkajs_kind

PYTHON = [python_kind(library) for library in ("confluent", "kafka-python", "aiokafka")]
PARTITIONS = 8
GO_READERS = [each for each in GO_LIBRARIES if each != "kafka-go"]
"""kafka-go cannot read what a member of another library says of itself, nor the other way round."""


@pytest.mark.parametrize(
    "stranger",
    [case(kafkajs_kind()), case(java_kind("roundrobin")), *(case(go_kind(each)) for each in GO_READERS)],
)
def test_one_group_of_four_libraries_processes_every_record(
    cluster: Cluster, client: Confluent, topic: str, stranger: MemberKind
) -> None:
    """Members are killed, leave and join, the coordinator is killed: all is read, and the end is committed."""
    orders = Orders(client, topic, partitions=PARTITIONS)

    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", stranger, *PYTHON, partitions=PARTITIONS
    ) as group:
        group.wait_shares([2, 2, 2, 2])
        orders.send(20)
        group.wait_read(orders.sent)
        group.kill(1)
        orders.send(20)
        group.wait_shares([2, 3, 3])
        group.wait_read(orders.sent)
        group.join(stranger)
        group.wait_shares([2, 2, 2, 2])
        kill_coordinator(cluster, group.group)
        orders.send(20)
        group.wait_read(orders.sent)
        group.kill(0)
        orders.send(20)
        group.wait_shares([2, 3, 3])
        group.leave(0)
        orders.send(20)
        group.wait_read(orders.sent)


@pytest.mark.kafkajs
def test_classic_members_of_every_library_go_on_in_a_group_that_goes_over(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """A member of KIP-848 joins members of four libraries: the coordinator assigns to all; members die and leave."""
    orders = Orders(client, topic, partitions=PARTITIONS)
    modern = python_kind("confluent", "consumer")

    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", kafkajs_kind(), *PYTHON, partitions=PARTITIONS
    ) as group:
        group.wait_shares([2, 2, 2, 2])
        orders.send(20)
        group.join(modern)
        group.wait_shares([1, 1, 2, 2, 2])
        orders.send(20)
        group.wait_read(orders.sent)
        group.kill(1)
        orders.send(20)
        group.wait_shares([2, 2, 2, 2])
        group.wait_read(orders.sent)
        kill_coordinator(cluster, group.group)
        orders.send(20)
        group.wait_read(orders.sent)
        group.leave(3)
        orders.send(20)
        group.wait_shares([2, 3, 3])
        group.wait_read(orders.sent)
