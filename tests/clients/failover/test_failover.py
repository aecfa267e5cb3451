"""Nodes are killed, paused and stopped under stock clients: what was acknowledged stays, once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.nodes import (
    bytes_on_disk,
    events,
    leader_of,
    restore_nodes,
    view,
    wait_isr,
)
from tests.clients.stock import StockClient
from tests.clients.with_aiokafka import Aiokafka
from tests.clients.with_confluent import Confluent
from tests.clients.with_kafka_python import KafkaPython
from tests.kit.marks import nightly, taste

LIBRARIES: list[type[Any]] = [Confluent, KafkaPython, Aiokafka]
SOME = 100
each_library = pytest.mark.parametrize("library", taste([Confluent], LIBRARIES), ids=lambda each: each.name)
Harm = Callable[[Cluster, int], None]


@pytest.fixture
def home(cluster: Cluster, topic: str) -> Iterator[str]:
    """A topic of one partition on all three nodes, of which two must have a record before it is acknowledged."""
    admin = Confluent(cluster.bootstrap_servers)
    admin.create_topic(topic, 1, 3, min_insync_replicas="2")
    admin.close()
    yield topic
    restore_nodes(cluster, topic)


@each_library
def test_an_idempotent_producer_loses_and_doubles_nothing_when_its_leader_is_killed(
    cluster: Cluster, home: str, library: type[StockClient]
) -> None:
    """acks=all, bootstrapped from the node that dies: each record once, in order; then the node rejoins the ISR."""
    victim = leader_of(cluster, home)
    client = library(cluster.nodes[victim].address)
    with BackgroundProducer(client, home) as stream:
        stream.wait_acked(SOME)
        cluster.kill(victim)
        stream.wait_acked(SOME)
        wait_isr(cluster, home, set(cluster.nodes) - {victim})
        cluster.restart(victim)
        wait_isr(cluster, home, cluster.nodes)
        stream.wait_acked(SOME)
    client.close()
    reader = Confluent(cluster.bootstrap_servers)
    assert stream.read_back(reader) == stream.values
    assert [record_metadata.offset for record_metadata in stream.acknowledged] == list(range(stream.sent))
    reader.close()
    logs = [bytes_on_disk(cluster, node_id, home) for node_id in cluster.nodes]
    assert logs[0] == logs[1] == logs[2]


def test_the_same_bytes_are_read_after_a_failover(cluster: Cluster, home: str) -> None:
    """Offsets, keys, values and timestamps of every codec; by every library, from the old leader and the new leader."""
    client = Confluent(cluster.bootstrap_servers)
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        client.produce(home, [b"%d " % number * 30 for number in range(40)], key=b"key", compression=codec)
    before = client.read(home, 0, 0, 200)
    cluster.kill(leader_of(cluster, home))
    leader_of(cluster, home)
    survivors = ",".join(cluster.nodes[node_id].address for node_id in cluster.running_ids())
    for library in LIBRARIES:
        reader = library(survivors)
        assert reader.read(home, 0, 0, 200) == before
        reader.close()
    client.close()


@pytest.mark.parametrize("acks", [nightly(0), 1])
def test_less_than_all_acknowledgements_may_lose_records_but_nothing_else(
    cluster: Cluster, home: str, acks: int
) -> None:
    """acks 0 and 1 under a leader kill: what is there was sent, in an order that was sent, and the end is there."""
    client = Confluent(cluster.bootstrap_servers)
    with BackgroundProducer(client, home, acks=acks) as stream:
        stream.wait_acked(SOME)
        cluster.kill(leader_of(cluster, home))
        leader_of(cluster, home)
        stream.wait_acked(2 * SOME)
    reader = Confluent(cluster.bootstrap_servers)
    numbers = [int(value) for value in stream.read_back(reader)]
    assert numbers[: SOME // 2] == list(range(SOME // 2))
    assert numbers[-1] == stream.sent - 1
    assert set(numbers) <= set(range(stream.sent))
    reader.close()
    client.close()


def test_a_paused_leader_is_replaced_and_takes_nothing_back_when_it_wakes(
    cluster: Cluster, home: str
) -> None:
    """SIGSTOP drops no connection: the session timeout fences it, and what it alone appended is truncated."""
    victim = leader_of(cluster, home)
    client = Confluent(cluster.bootstrap_servers)
    with BackgroundProducer(client, home) as stream:
        stream.wait_acked(SOME)
        cluster.pause(victim)
        cluster.wait_until(
            lambda: (seen := view(cluster, home)) is not None and seen.leader != victim, "a new leader"
        )
        cluster.resume(victim)
        stream.wait_acked(SOME)
    restore_nodes(cluster, home)
    assert stream.read_back(client) == stream.values
    client.close()


def test_below_min_insync_replicas_nothing_is_acknowledged_and_nothing_lost(
    cluster: Cluster, home: str
) -> None:
    """One replica of three is too few for min.insync.replicas=2; the producer waits until another is back."""
    leader = leader_of(cluster, home)
    follower, controller = _followers(cluster, leader)
    client = Confluent(cluster.bootstrap_servers)
    with BackgroundProducer(client, home) as stream:
        stream.wait_acked(SOME)
        cluster.kill(follower)
        wait_isr(cluster, home, {leader, controller})
        cluster.pause(controller)
        acked = stream.acked
        cluster.wait_until(lambda: stream.sent > acked + SOME, "the producer goes on sending")
        assert stream.acked < acked + SOME
        cluster.resume(controller)
        stream.wait_acked(SOME)
    restore_nodes(cluster, home)
    assert stream.read_back(client) == stream.values
    client.close()


def _followers(cluster: Cluster, leader: int) -> tuple[int, int]:
    first, second = sorted(set(cluster.nodes) - {leader})
    return first, second


def test_stopping_one_node_after_the_other_is_not_noticed_by_clients(cluster: Cluster, home: str) -> None:
    """A rolling restart by SIGTERM under three producing libraries and a reading library: no error, no lost record."""
    clients = [library(cluster.bootstrap_servers) for library in LIBRARIES]
    admin = Confluent(cluster.bootstrap_servers)
    admin.grow_topic(home, 3)
    admin.wait_known(home, 3)
    with ExitStack() as stack:
        take = stack.enter_context(admin.reading(home, 0))
        streams = [
            stack.enter_context(BackgroundProducer(client, home, partition=partition))
            for partition, client in enumerate(clients)
        ]
        for node_id in cluster.nodes:
            for stream in streams:
                stream.wait_acked(SOME // 4)
            assert len(take(SOME // 4)) == SOME // 4
            assert cluster.stop(node_id) == 0
            cluster.restart(node_id)
            for partition in range(3):
                wait_isr(cluster, home, cluster.nodes, partition)
        for stream in streams:
            stream.wait_acked(SOME // 4)
        assert len(take(SOME // 4)) == SOME // 4
    for stream in streams:
        assert stream.read_back(admin) == stream.values
    for client in (*clients, admin):
        client.close()
    for node_id in cluster.nodes:
        recovered = [event for event in events(cluster, node_id) if event["event"] == "logs_recovered"]
        assert recovered[-1]["clean"] is True


@pytest.mark.parametrize("node_id", [1, nightly(2), nightly(3)])
def test_a_client_whose_bootstrap_node_is_killed_goes_on(cluster: Cluster, home: str, node_id: int) -> None:
    """Its producer and its consumer learnt of the other nodes, and go on with them."""
    client = Confluent(cluster.nodes[node_id].address)
    assert client.produce(home, [b"before"]) == [(0, 0)]
    with client.reading(home, 0) as take:
        assert [record.value for record in take(1)] == [b"before"]
        cluster.kill(node_id)
        leader_of(cluster, home)
        assert client.produce(home, [b"after"]) == [(0, 1)]
        assert [record.value for record in take(1)] == [b"after"]
    client.close()
