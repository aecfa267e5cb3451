"""The promises of an introduction to Kafka about consumer groups, with each stock library and protocol."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import MemberKind, group_members, python_kind
from tests.clients.with_confluent import Confluent
from tests.interop.groups import PARTITIONS, Orders, stored_offsets
from tests.interop.member_kinds import case, java_kind, kafkajs_kind
from tests.kit.waits import until

SHARES = {1: [4], 2: [2, 2], 3: [1, 1, 2], 4: [1, 1, 1, 1], 5: [0, 1, 1, 1, 1]}
"""How four partitions are shared by so many consumers: the fifth is idle."""


EVERY_KIND = [
    case(python_kind("confluent")),
    case(python_kind("kafka-python")),
    case(python_kind("aiokafka")),
    case(kafkajs_kind()),
    case(java_kind("roundrobin")),
    case(python_kind("confluent", "consumer")),
    case(java_kind("consumer")),
]
STEADY_KINDS = [
    case(python_kind("confluent", "cooperative-sticky")),
    case(python_kind("kafka-python", "cooperative-sticky")),
    case(java_kind("cooperative-sticky")),
    case(python_kind("confluent", "consumer")),
    case(java_kind("consumer")),
]
"""Assignors that promise the healthy members of a group that they keep their partitions."""


@pytest.mark.taste
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_four_partitions_are_read_by_one_to_five_consumers(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """Each consumer that comes takes its share, the fifth has none; all is read once the last is there."""
    orders = Orders(client, topic)
    with group_members(cluster.bootstrap_servers, topic, f"of-{topic}", partitions=PARTITIONS) as group:
        for shares in SHARES.values():
            group.join(kind)
            group.wait_shares(shares)
            orders.send(3)
            group.wait_read(orders.sent)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_two_groups_each_get_everything_and_store_the_next_offset(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """Two groups of two: every record goes to each of both; what is stored is the offset behind the last."""
    orders = Orders(client, topic)
    orders.send(10)
    where = (cluster.bootstrap_servers, topic)
    behind_the_last = dict.fromkeys(range(PARTITIONS), 20)
    with (
        group_members(*where, f"billing-{topic}", kind, kind, partitions=PARTITIONS) as billing,
        group_members(*where, f"shipping-{topic}", kind, kind, partitions=PARTITIONS) as shipping,
    ):
        for group in (billing, shipping):
            group.wait_shares([2, 2])
        orders.send(10)
        for group in (billing, shipping):
            group.wait_read(orders.sent)
            until(
                lambda name=group.group: stored_offsets(cluster, name) == behind_the_last,  # type: ignore[misc]
                "what was read is committed, after it was told",
                seen=lambda name=group.group: stored_offsets(cluster, name),  # type: ignore[misc]
            )
            group.leave(0)
            group.leave(0)
            assert stored_offsets(cluster, group.group) == behind_the_last


@pytest.mark.parametrize("kind", STEADY_KINDS)
def test_one_of_three_consumers_dies_and_the_healthy_ones_keep_theirs(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """The two live consumers keep theirs, they get the rest, and every record is read (KIP-429, KIP-848)."""
    orders = Orders(client, topic)
    with group_members(
        cluster.bootstrap_servers, topic, f"of-{topic}", *[kind] * 3, partitions=PARTITIONS
    ) as group:
        group.wait_shares([1, 1, 2])
        orders.send(5)
        group.wait_read(orders.sent)
        before = [(set(each.partitions), len(each.revoked)) for each in group.members]
        group.kill(0)
        orders.send(5)
        group.wait_shares([2, 2])
        group.wait_read(orders.sent)
        for each, (kept, gave) in zip(group.members, before[1:], strict=True):
            assert each.partitions >= kept
            assert len(each.revoked) == gave, f"{each} gave up {each.revoked[gave:]}"
