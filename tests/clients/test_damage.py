"""Bit rot in a replica's log: it is never served, another replica leads, and its log is repaired from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from raftlog.records.header import iter_headers
from raftlog.testing.cluster import Cluster
from tests.clients.nodes import (
    batches_on_disk,
    bytes_on_disk,
    events,
    folder,
    leader_of,
    restore_nodes,
    run_checked,
    wait_isr,
)
from tests.clients.stock import Record, StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.marks import nightly, taste
from tests.kit.waits import PATIENCE_S, until

LIBRARIES: list[type[Any]] = [Confluent, KafkaPython, Aiokafka]
DAMAGE = {"log_damaged", "log_damage_set_aside", "damaged_log_cut", "damaged_replica_leads", "isr_lost"}
ACCEPTED = {"damaged_log_accepted", "unclean_leader_election_asked_for", "unclean_leader_elected"}
VALUES = [b"%06d" % number * 100 for number in range(2_000)]
SEGMENTED = {"segment_bytes": "262144", "min_insync_replicas": "2"}


def is_told_of(event: dict[str, Any]) -> bool:
    """Damage is an error that an operator must hear of."""
    return event["event"] in DAMAGE | ACCEPTED


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """Three nodes; each test leaves all of them running. However long it takes, no log counts as checked before."""
    settings = {"log.flush.offset.checkpoint.interval.ms": str(60 * 60 * 1000)}
    with run_checked(3, errors=is_told_of, settings=settings) as running:
        yield running


def rot(cluster: Cluster, node_id: int, topic: str, *, segment: int) -> int:
    """Flip a bit in the middle of a segment of a stopped node; returns the base offset of the batch it hit."""
    path = sorted(folder(cluster, node_id, topic).glob("*.log"))[segment]
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    hit = next(
        header for position, header in iter_headers(bytes(content)) if position + header.length > middle
    )
    content[middle] ^= 4
    path.write_bytes(content)
    return hit.base_offset


def filled(cluster: Cluster, topic: str, replicas: int = 3, **configs: str) -> list[Record]:
    """Make a topic of several segments and read it back."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 1, replicas, **configs)
    for start in range(0, len(VALUES), 100):
        client.produce(topic, VALUES[start : start + 100])
    records = client.read(topic, 0, 0, len(VALUES))
    client.close()
    return records


def lead(cluster: Cluster, topic: str, kind: ElectionType = ElectionType.PREFERRED) -> None:
    """Have a leader elected, once that is possible. A request whose answer was lost may have elected it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    answers: list[object] = []

    def elected() -> bool:
        try:
            results = admin.elect_leaders(kind, [TopicPartition(topic, 0)]).result(PATIENCE_S)
        except KafkaException as error:
            answers.append(error)
            return False
        answers.extend(results.values())
        return all(
            error is None or error.args[0].code() == KafkaError.ELECTION_NOT_NEEDED
            for error in results.values()
        )

    until(elected, f"{topic} has another leader", seen=lambda: answers[-1:])


def said(cluster: Cluster, node_id: int, topic: str) -> list[str]:
    """The events of a node that name a topic."""
    return [each["event"] for each in events(cluster, node_id) if each.get("topic") == topic]


def repaired(cluster: Cluster, topic: str) -> None:
    """All replicas are in sync, and are the same files again."""
    wait_isr(cluster, topic, cluster.nodes)
    logs = [bytes_on_disk(cluster, node_id, topic) for node_id in cluster.nodes]
    assert logs[0] == logs[1] == logs[2]
    names = [
        sorted(path.name for path in folder(cluster, node_id, topic).glob("*.log"))
        for node_id in cluster.nodes
    ]
    assert names[0] == names[1] == names[2]


@pytest.mark.parametrize("library", taste([Aiokafka], LIBRARIES), ids=lambda each: each.name)
def test_leader_that_reads_rotten_bytes_hands_over_and_is_repaired(
    own_cluster: Cluster, topic: str, library: type[StockClient]
) -> None:
    """A clean start trusts its files until they are read: then the client gets the right bytes from another."""
    records = filled(own_cluster, topic, **SEGMENTED)
    victim = leader_of(own_cluster, topic)
    assert own_cluster.stop(victim) == 0
    rot(own_cluster, victim, topic, segment=1)
    restore_nodes(own_cluster, topic)
    lead(own_cluster, topic)
    until(lambda: leader_of(own_cluster, topic) == victim, f"node {victim} leads")
    client = library(own_cluster.bootstrap_servers)
    assert client.read(topic, 0, 0, len(VALUES)) == records
    client.close()
    until(lambda: "damaged_log_repaired" in said(own_cluster, victim, topic), f"node {victim} is whole")
    repaired(own_cluster, topic)
    assert said(own_cluster, victim, topic).count("log_damaged") == 1
    after = Confluent(own_cluster.bootstrap_servers)
    assert after.produce(topic, [b"next"]) == [(0, len(VALUES))]
    after.close()


@pytest.mark.parametrize("segment", [0, nightly(-1)])
def test_killed_node_whose_log_rotted_refetches_before_it_counts(
    own_cluster: Cluster, topic: str, segment: int
) -> None:
    """After kill -9 all is checked: it leaves the ISR, or stays out of it, until it has everything again."""
    records = filled(own_cluster, topic, **SEGMENTED)
    victim = leader_of(own_cluster, topic)
    own_cluster.kill(victim)
    wait_isr(own_cluster, topic, set(own_cluster.nodes) - {victim})
    rot(own_cluster, victim, topic, segment=segment)
    restore_nodes(own_cluster, topic)
    repaired(own_cluster, topic)
    assert "damaged_log_repaired" in said(own_cluster, victim, topic)
    lead(own_cluster, topic)
    for library in LIBRARIES:
        client = library(own_cluster.bootstrap_servers)
        assert client.read(topic, 0, 0, len(VALUES)) == records
        client.close()


def test_damaged_node_that_comes_back_first_waits_for_the_other(own_cluster: Cluster, topic: str) -> None:
    """All die at once: only the damaged one returns at first; it must not lead, for the others have everything."""
    records = filled(own_cluster, topic, **SEGMENTED)
    victim = leader_of(own_cluster, topic)
    for node_id in own_cluster.nodes:
        own_cluster.pause(node_id)  # so that none sees another die, and the ISR stays whole
    for node in own_cluster.nodes.values():
        node.kill()
    rot(own_cluster, victim, topic, segment=0)
    other = next(node_id for node_id in own_cluster.nodes if node_id != victim)
    led_before = said(own_cluster, victim, topic).count("partition_became_leader")
    for node_id in (victim, other):
        own_cluster.nodes[node_id].start()
    own_cluster.wait_until(lambda: leader_of(own_cluster, topic) == other, "the sound replica leads")
    restore_nodes(own_cluster, topic)
    client = Confluent(own_cluster.bootstrap_servers)
    assert client.read(topic, 0, 0, len(VALUES)) == records
    client.close()
    repaired(own_cluster, topic)
    assert said(own_cluster, victim, topic).count("partition_became_leader") == led_before


def test_only_replica_that_is_damaged_serves_what_is_sound_until_an_unclean_election(
    own_cluster: Cluster, topic: str
) -> None:
    """No other replica has the records: readable up to the damage, closed for producers, until an operator decides."""
    records = filled(own_cluster, topic, replicas=1, segment_bytes="262144")
    victim = leader_of(own_cluster, topic)
    own_cluster.kill(victim)
    sound = rot(own_cluster, victim, topic, segment=0)
    own_cluster.restart(victim)
    client = Confluent(own_cluster.bootstrap_servers)
    until(lambda: "damaged_replica_leads" in said(own_cluster, victim, topic), "it leads for reading")
    assert client.read(topic, 0, 0, sound) == records[:sound]
    batches = len(batches_on_disk(own_cluster, victim, topic))
    producer = Confluent(own_cluster.bootstrap_servers)
    lead(own_cluster, topic, ElectionType.UNCLEAN)
    assert producer.produce(topic, [b"next"]) == [(0, sound)]
    assert len(batches_on_disk(own_cluster, victim, topic)) == batches + 1
    until(lambda: "damaged_log_accepted" in said(own_cluster, victim, topic), "it accepts its log")
    for each in (client, producer):
        each.close()
