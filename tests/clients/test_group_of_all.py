"""confluent-kafka, kafka-python and aiokafka in one group, members killed and added: every record is processed.

Each member is a process of its own, so that a kill is a kill. It prints each record, then commits.
"""

from __future__ import annotations

import sys

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import MemberKind, MemberProcess, group_members, python_kind
from tests.clients.with_confluent import Confluent
from tests.kit.waits import PATIENCE_S, until

PARTITIONS = 6
KINDS = [python_kind(library) for library in ("confluent", "kafka-python", "aiokafka")]


@pytest.mark.nightly
def test_clients_of_all_libraries_share_a_group_while_members_come_and_go(
    cluster: Cluster, topic: str
) -> None:
    """Three libraries; members are killed, added and leave, and the coordinator is killed: no record is skipped."""
    writer = Confluent(cluster.bootstrap_servers)
    writer.create_topic(topic, PARTITIONS, 3)
    sent: set[bytes] = set()

    def write(count: int) -> None:
        for index in range(PARTITIONS):
            values = [b"%d-%d" % (index, len(sent) + number) for number in range(count)]
            writer.produce(topic, values, partition=index)
            sent.update(values)

    with group_members(
        cluster.bootstrap_servers, topic, f"all-of-{topic}", *KINDS, partitions=PARTITIONS
    ) as group:
        group.wait_shares([2, 2, 2])
        write(30)
        group.wait_read(sent)
        group.kill(0)
        write(30)
        group.wait_read(sent)
        group.join(python_kind("kafka-python"))
        group.wait_shares([2, 2, 2])
        kill_coordinator(cluster, group.group)
        write(30)
        group.wait_read(sent)
        group.leave(1)
        write(30)
        group.wait_read(sent)
    writer.close()


PUT_OUT = "print('fenced by its coordinator', flush=True); import sys; sys.stdin.read()"


@pytest.mark.parametrize("stood_still", [False, True])
def test_a_member_that_was_put_out_of_its_group_has_failed_unless_it_stood_still(stood_still: bool) -> None:
    """A broker that says so to a member which beats is wrong, whatever the member makes of it."""
    member = MemberProcess(
        MemberKind("told", (sys.executable, "-c", PUT_OUT)), "nowhere", "nothing", "nobody"
    )
    try:
        if stood_still:
            member.pause()
            member.resume()
        until(lambda: bool(member.fenced), "it is heard")
        assert member.has_failed != stood_still
    finally:
        member.kill()


def kill_coordinator(cluster: Cluster, group: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    node_id = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).coordinator.id
    cluster.kill(node_id)
    cluster.restart(node_id)
    cluster.wait_ready()
