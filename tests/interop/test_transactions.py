"""Transactions of every library: visibility, fencing, and the state after a death at any step."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import GroupMembers, MemberKind, group_members
from tests.clients.nodes import leader_of
from tests.clients.test_group_of_all import kill_coordinator
from tests.clients.with_confluent import Confluent
from tests.interop.groups import PARTITIONS, Orders, stored_offsets
from tests.interop.member_kinds import (
    TransactorKind,
    case,
    copier_kinds,
    go_maker,
    java_command,
    java_maker,
    kafkajs_maker,
    python_maker,
)
from tests.interop.transactions import transactors, values
from tests.kit.waits import until

LIBRARIES = [
    python_maker("confluent"),
    python_maker("kafka-python"),
    python_maker("aiokafka"),
    kafkajs_maker(),
    java_maker(),
    go_maker("sarama"),
    go_maker("franz-go"),
]
every_library = pytest.mark.parametrize("library", [case(each) for each in LIBRARIES])

SHORT_MS = 5_000
"""Of a transaction that is to take too long: still long enough for what is to be done within it on a busy machine."""

FENCED = {
    "confluent": "_FENCED",
    "kafka-python": "ProducerFenced",
    "aiokafka": "ProducerFenced",
    "kafkajs": "INVALID_PRODUCER_EPOCH",  # EndTxn knows no other word before version 2
    "java": "ProducerFenced",
    "sarama": "Error code = 90",
    "franz-go": "PRODUCER_FENCED",
}
"""How each reports that another producer has its id, or that its transaction took too long: it cannot go on."""


@every_library
@pytest.mark.taste
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    cluster: Cluster, client: Confluent, topic: str, library: TransactorKind
) -> None:
    """read_committed: no record of an open transaction, all of a committed transaction, never an aborted record
    (KIP-98).
    """
    client.create_topic(topic, 1, 3)
    with transactors(library, cluster, f"tx-{topic}") as (producer,):
        producer.take("init", "begin", f"send {topic} 0 committed", "flush")
        client.produce(topic, [b"plain"], partition=0)
        assert values(cluster, topic, committed=True) == []
        assert values(cluster, topic, committed=False) == ["committed", "plain"]
        producer.take("commit")
        until(
            lambda: values(cluster, topic, committed=True) == ["committed", "plain"],
            "the marker is written, which the answer to a commit does not wait for",
        )
        producer.take("begin", f"send {topic} 0 aborted", "abort", "begin", f"send {topic} 0 after", "commit")
    until(
        lambda: values(cluster, topic, committed=True) == ["committed", "plain", "after"],
        "the aborted one is left out",
    )
    assert values(cluster, topic, committed=False) == ["committed", "plain", "aborted", "after"]


@every_library
def test_a_successor_fences_its_predecessor(
    cluster: Cluster, client: Confluent, topic: str, library: TransactorKind
) -> None:
    """A producer that initialises with an id aborts its predecessor's open transaction and fences it."""
    client.create_topic(topic, 1, 3)
    with transactors(library, cluster, f"tx-{topic}", f"tx-{topic}") as (former, successor):
        former.take("init", "begin", f"send {topic} 0 former")
        successor.take("init", "begin", f"send {topic} 0 successor")
        refused = former.attempt("commit")
        assert FENCED[library.name] in refused, refused
        successor.take("commit")
    until(lambda: values(cluster, topic, committed=True) == ["successor"], "the successor's alone is there")


@every_library
def test_a_producer_that_took_too_long_gets_an_error_and_may_begin_anew(
    cluster: Cluster, client: Confluent, topic: str, library: TransactorKind
) -> None:
    """After transaction.timeout.ms its commit is refused as a fenced producer's; readers see the next transaction."""
    client.create_topic(topic, 1, 3)
    with transactors(library, cluster, f"tx-{topic}", timeout_ms=SHORT_MS) as (slow,):
        slow.take("init", "begin", f"send {topic} 0 late", "flush")
        client.produce(topic, [b"plain"], partition=0)
        until(lambda: values(cluster, topic, committed=True) == ["plain"], "the transaction is aborted")
        refused = slow.attempt("commit")
        assert FENCED[library.name] in refused, refused
    with transactors(library, cluster, f"tx-{topic}") as (next_one,):
        next_one.take("init", "begin", f"send {topic} 0 next", "commit")
    until(lambda: values(cluster, topic, committed=True) == ["plain", "next"], "the next one's is there")


@pytest.mark.java
def test_a_producer_that_goes_on_after_its_time_aborts_and_begins_anew(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """As with Apache Kafka 4.1 and transaction.version 2: INVALID_PRODUCER_EPOCH for a batch, which it can abort."""
    client.create_topic(topic, 1, 3)
    with transactors(java_maker(), cluster, f"tx-{topic}", timeout_ms=SHORT_MS) as (slow,):
        slow.take("init", "begin", f"send {topic} 0 late", "flush")
        client.produce(topic, [b"plain"], partition=0)
        until(lambda: values(cluster, topic, committed=True) == ["plain"], "the transaction is aborted")
        refused = slow.attempt(f"send {topic} 0 later")
        assert "InvalidProducerEpochException" in refused, refused
        slow.take("abort", "begin", f"send {topic} 0 prompt", "commit")
    until(
        lambda: values(cluster, topic, committed=True) == ["plain", "prompt"], "what it does in time is there"
    )
    assert values(cluster, topic, committed=False) == ["late", "plain", "prompt"]


@pytest.mark.java
def test_a_dead_producers_transaction_is_aborted_after_its_timeout(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Killed within a transaction of a few seconds: readers go on, without what it wrote."""
    client.create_topic(topic, 1, 3)
    with transactors(java_maker(), cluster, f"tx-{topic}", timeout_ms=SHORT_MS) as (producer,):
        producer.take("init", "begin", f"send {topic} 0 lost", "flush")
        producer.kill()
    client.produce(topic, [b"plain"], partition=0)
    until(
        lambda: values(cluster, topic, committed=True) == ["plain"],
        "the transaction is aborted",
    )


TOO_LONG = {
    "confluent": "INVALID_TRANSACTION_TIMEOUT",
    "kafka-python": "InvalidTransactionTimeout",
    "aiokafka": "InvalidTransactionTimeout",
    "kafkajs": "INVALID_TRANSACTION_TIMEOUT",
    "sarama": "transaction timeout is larger than the maximum",
    "franz-go": "INVALID_TRANSACTION_TIMEOUT",
    "java": "larger than the maximum value allowed",
}


@every_library
def test_a_timeout_over_the_maximum_is_refused(cluster: Cluster, topic: str, library: TransactorKind) -> None:
    """transaction.max.timeout.ms is 15 minutes: INVALID_TRANSACTION_TIMEOUT."""
    with transactors(library, cluster, f"tx-{topic}", timeout_ms=900_001) as (producer,):
        refused = producer.attempt("init")
        if refused == "done":  # fetches its producer id later
            refused = producer.attempt("begin")
        assert TOO_LONG[library.name] in refused, refused


@pytest.mark.parametrize("library", [case(each) for each in LIBRARIES if each.name != "franz-go"])
def test_offsets_are_committed_with_their_transaction_or_not_at_all(
    cluster: Cluster, client: Confluent, topic: str, library: TransactorKind
) -> None:
    """KIP-447: what a transaction commits for a group is not shown before it is committed, and never if aborted."""
    client.create_topic(topic, 1, 3)
    name = f"of-{topic}"
    with transactors(library, cluster, f"tx-{topic}") as (producer,):
        producer.take("init", "begin", f"offset {name} {topic} 0 3", "abort")
        assert stored_offsets(cluster, name).get(0, -1) < 0
        producer.take("begin", f"send {topic} 0 x", f"offset {name} {topic} 0 5")
        assert stored_offsets(cluster, name).get(0, -1) < 0
        producer.take("commit")
        until(
            lambda: stored_offsets(cluster, name) == {0: 5},
            "the offset is there",
            seen=lambda: stored_offsets(cluster, name),
        )


@pytest.mark.java
def test_a_transaction_outlives_the_death_of_any_node_at_any_step(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """A node is killed and comes back after each step: every transaction is committed whole, once."""
    client.create_topic(topic, 3, 3)
    expected: list[str] = []
    with transactors(java_maker(), cluster, f"tx-{topic}") as (producer,):
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
    until(
        lambda: len(values(cluster, topic, 3, committed=True)) >= len(expected),
        "the last markers are written, which the answer to a commit does not wait for",
    )
    assert sorted(values(cluster, topic, 3, committed=True)) == sorted(expected)


def read_copies(cluster: Cluster, copies: str) -> list[str]:
    """The values that readers of committed records see, in order."""
    return sorted(values(cluster, copies, PARTITIONS, committed=True))


def wait_copied(cluster: Cluster, copies: str, orders: Orders, group: GroupMembers) -> None:
    wanted = sorted(map(bytes.decode, orders.sent))
    until(
        lambda: read_copies(cluster, copies) == wanted,
        "each record is there once",
        seen=lambda: (len(read_copies(cluster, copies)), len(wanted), group),
    )


@pytest.mark.java
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "consumer"])
def test_consume_transform_produce_is_exactly_once_whoever_dies(
    cluster: Cluster, client: Confluent, topic: str, assignor: str
) -> None:
    """Copiers are killed and added, the coordinator dies: each record is there once, and the next offset is stored."""
    copies = f"copies-of-{topic}"
    orders = Orders(client, topic)
    client.create_topic(copies, PARTITIONS, 3)
    kind = MemberKind("copier", java_command("raftlog.Copier"), assignor)
    with group_members(cluster.bootstrap_servers, topic, copies, kind, kind, partitions=PARTITIONS) as group:
        orders.send(50)
        group.wait_shares([2, 2])
        orders.send(50)
        group.kill(0)
        orders.send(50)
        group.join(kind)
        group.wait_shares([2, 2])
        kill_coordinator(cluster, copies)
        orders.send(50)
        wait_copied(cluster, copies, orders, group)
    until(
        lambda: stored_offsets(cluster, copies) == dict.fromkeys(range(PARTITIONS), 200),
        "the next offsets are stored, by a marker of their own",
        seen=lambda: stored_offsets(cluster, copies),
    )
    surprises = [line for each in group.everybody for line in each.complaints if b"Unexpected" in line]
    assert not surprises, "what a client does not expect is fatal to it"


COPIERS = ("kafka-python", "aiokafka", "kafkajs", "sarama", "franz-go")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("holder", "kind"), [case(*copier_kinds(each)) for each in COPIERS])
def test_a_successor_of_a_copier_that_died_before_its_commit_copies_each_record_once(
    cluster: Cluster, client: Confluent, topic: str, holder: MemberKind, kind: MemberKind
) -> None:
    """The dead copier's records stay invisible; each record is there once (KIP-447, or an id for each partition)."""
    copies = f"copies-of-{topic}"
    orders = Orders(client, topic)
    client.create_topic(copies, PARTITIONS, 3)
    with group_members(cluster.bootstrap_servers, topic, copies, holder, partitions=PARTITIONS) as group:
        orders.send(50)
        dead = group.members[0]
        until(lambda: b"holds" in dead.complaints, "records are produced", seen=lambda: group)
        group.kill(0)
        assert read_copies(cluster, copies) == []
        group.join(kind, kind)
        group.wait_shares([2, 2])
        orders.send(50)
        wait_copied(cluster, copies, orders, group)
        until(
            lambda: stored_offsets(cluster, copies) == dict.fromkeys(range(PARTITIONS), 100),
            "the next offsets are stored",
            seen=lambda: stored_offsets(cluster, copies),
        )
    assert len(values(cluster, copies, PARTITIONS, committed=False)) > len(orders.sent), (
        "the dead one's are there"
    )
