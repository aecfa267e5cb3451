"""Transactions of the Java client: what readers see, who is fenced, what a death at any step leaves behind."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import Kind, party, until
from tests.clients.nodes import leader_of
from tests.clients.stock import PATIENCE_S
from tests.clients.test_group_of_all import kill_coordinator
from tests.clients.with_confluent import Confluent
from tests.interop.features import needs_kip_848, needs_transactions
from tests.interop.groups import PARTITIONS, Orders, stored_offsets
from tests.interop.kinds import java_command
from tests.interop.transactions import transactors, values

pytestmark = [pytest.mark.java, needs_transactions]


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """read_committed: nothing of an open transaction, all of a committed one, never an aborted one (KIP-98)."""
    client.create_topic(topic, 1, 3)
    with transactors(cluster, f"tx-{topic}") as (producer,):
        producer.take("init", "begin", f"send {topic} 0 committed", "flush")
        client.produce(topic, [b"plain"], partition=0)
        assert values(cluster, topic, committed=True) == []
        assert values(cluster, topic, committed=False) == ["committed", "plain"]
        producer.take("commit")
        assert values(cluster, topic, committed=True) == ["committed", "plain"]
        producer.take("begin", f"send {topic} 0 aborted", "abort", "begin", f"send {topic} 0 after", "commit")
    assert values(cluster, topic, committed=True) == ["committed", "plain", "after"]
    assert values(cluster, topic, committed=False) == ["committed", "plain", "aborted", "after"]


def test_a_successor_fences_its_predecessor(cluster: Cluster, client: Confluent, topic: str) -> None:
    """Who initialises with an id ends what its former holder left open; that one can do nothing more."""
    client.create_topic(topic, 1, 3)
    with transactors(cluster, f"tx-{topic}", f"tx-{topic}") as (former, successor):
        former.take("init", "begin", f"send {topic} 0 former")
        successor.take("init", "begin", f"send {topic} 0 successor")
        refused = former.attempt("commit")
        assert "ProducerFenced" in refused or "InvalidProducerEpoch" in refused, refused
        successor.take("commit")
    assert values(cluster, topic, committed=True) == ["successor"]


def test_a_dead_producers_transaction_is_aborted_after_its_timeout(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Killed within a transaction of two seconds: readers go on, without what it wrote."""
    client.create_topic(topic, 1, 3)
    with transactors(cluster, f"tx-{topic}", timeout_ms=2_000) as (producer,):
        producer.take("init", "begin", f"send {topic} 0 lost", "flush")
        producer.kill()
    client.produce(topic, [b"plain"], partition=0)
    until(
        lambda: values(cluster, topic, committed=True) == ["plain"],
        "the transaction is aborted",
        2 * PATIENCE_S,
    )


def test_a_timeout_over_the_maximum_is_refused(cluster: Cluster, topic: str) -> None:
    """transaction.max.timeout.ms is 15 minutes: INVALID_TRANSACTION_TIMEOUT."""
    with transactors(cluster, f"tx-{topic}", timeout_ms=900_001) as (producer,):
        assert "larger than the maximum value allowed" in producer.attempt("init")


def test_offsets_are_committed_with_their_transaction_or_not_at_all(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """KIP-447: what a transaction commits for a group is not shown before it is committed, and never if aborted."""
    client.create_topic(topic, 1, 3)
    name = f"of-{topic}"
    with transactors(cluster, f"tx-{topic}") as (producer,):
        producer.take("init", "begin", f"offset {name} {topic} 0 3", "abort")
        assert stored_offsets(cluster, name).get(0, -1) < 0
        producer.take("begin", f"send {topic} 0 x", f"offset {name} {topic} 0 5", "commit")
        until(
            lambda: stored_offsets(cluster, name) == {0: 5},
            "the offset is there",
            seen=lambda: stored_offsets(cluster, name),
        )


@pytest.mark.timeout(180)
def test_a_transaction_outlives_the_death_of_any_node_at_any_step(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """A node is killed and comes back after each step: every transaction is committed whole, once."""
    client.create_topic(topic, 3, 3)
    expected: list[str] = []
    with transactors(cluster, f"tx-{topic}") as (producer,):
        producer.take("init")
        for fatal in range(4):
            steps = [
                "begin",
                *(f"send {topic} {index} {fatal}-{index}" for index in range(3)),
                "flush",
                "commit",
            ]
            for number, step in enumerate(steps):
                producer.take(step)
                if number == fatal + 1:
                    victim = leader_of(cluster, topic, fatal % 3)
                    cluster.kill(victim)
                    cluster.restart(victim)
            expected += [f"{fatal}-{index}" for index in range(3)]
    assert sorted(values(cluster, topic, 3, committed=True)) == sorted(expected)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "assignor",
    [
        "cooperative-sticky",
        pytest.param("consumer", marks=needs_kip_848),
    ],
)
def test_consume_transform_produce_is_exactly_once_whoever_dies(
    cluster: Cluster, client: Confluent, topic: str, assignor: str
) -> None:
    """Copiers are killed and added, the coordinator dies: each record is there once, and the next offset is stored."""
    copies = f"copies-of-{topic}"
    orders = Orders(client, topic)
    client.create_topic(copies, PARTITIONS, 3)
    kind = Kind("copier", java_command("raftlog.Copier"), assignor)

    def copied() -> list[str]:
        return sorted(values(cluster, copies, PARTITIONS, committed=True))

    with party(cluster.bootstrap_servers, topic, copies, kind, kind, partitions=PARTITIONS) as group:
        orders.send(50)
        group.wait_shares([2, 2], 2 * PATIENCE_S)
        orders.send(50)
        group.kill(0)
        orders.send(50)
        group.join(kind)
        group.wait_shares([2, 2], 2 * PATIENCE_S)
        kill_coordinator(cluster, copies)
        orders.send(50)
        until(
            lambda: copied() == sorted(map(bytes.decode, orders.sent)),
            "each record is there once",
            2 * PATIENCE_S,
            seen=lambda: (len(copied()), len(orders.sent), group),
        )
    assert stored_offsets(cluster, copies) == dict.fromkeys(range(PARTITIONS), 200)
    surprises = [line for each in group.everybody for line in each.complaints if b"Unexpected" in line]
    assert not surprises, "what a client does not expect is fatal to it"
