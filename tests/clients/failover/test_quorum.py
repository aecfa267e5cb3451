"""The metadata quorum as clients see it: a minority lost, the majority lost, all back; and a node without a vote.

Without a majority no change of metadata succeeds and none is left half done. Meanwhile partitions with live in-sync
replicas go on serving produce and fetch requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient

from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.nodes import leader_of, restore_nodes, run_checked, wait_isr
from tests.clients.raw_client import PRODUCE, RawClient, produce_body, produced, view_topic
from tests.clients.stock import StockClient
from tests.clients.with_confluent import Confluent
from tests.kit.marks import nightly
from tests.kit.waits import PATIENCE_S

SOME = 50
REQUEST_TIMED_OUT, NOT_CONTROLLER = 7, 41
NO_AUTO_CREATION = {"auto.create.topics.enable": "false"}
"""A topic that was deleted late must not come back because a producer still asks for it."""

RETRIABLE = {REQUEST_TIMED_OUT, NOT_CONTROLLER}


def survivors_of(cluster: Cluster) -> Confluent:
    """A client that knows only nodes that run."""
    return Confluent(",".join(cluster.nodes[node_id].address for node_id in sorted(cluster.running_ids())))


def place(client: StockClient, topic: str, replicas: Sequence[Sequence[int]], **configs: str) -> None:
    """Create a topic with partitions on these brokers; the first replica of each leads."""
    admin = AdminClient({"bootstrap.servers": client.bootstrap})
    new = NewTopic(
        topic,
        num_partitions=len(replicas),
        replica_assignment=[list(each) for each in replicas],
        config={name.replace("_", "."): value for name, value in configs.items()},
    )
    admin.create_topics([new])[topic].result(PATIENCE_S)
    client.wait_known(topic)


def change_metadata(client: StockClient, topic: str) -> Mapping[str, int]:
    """Try to create a topic, to delete and to grow another; returns the code with which each was refused."""
    admin = AdminClient({"bootstrap.servers": client.bootstrap})
    patience = {"operation_timeout": 1.0, "request_timeout": PATIENCE_S}
    asked = {
        "create": admin.create_topics([NewTopic(f"{topic}-made", 3, 1)], **patience),
        "delete": admin.delete_topics([topic], **patience),
        "grow": admin.create_partitions([NewPartitions(topic, 9)], **patience),
    }
    codes = {}
    for what, futures in asked.items():
        (future,) = futures.values()
        try:
            future.result(2 * PATIENCE_S)
            codes[what] = 0
        except KafkaException as error:
            codes[what] = error.args[0].code()
    return codes


def check_nothing_is_half_done(cluster: Cluster, topic: str, partitions: int) -> None:
    """A change that was refused without a majority happened as a whole later, or not at all."""
    made = view_topic(cluster.nodes[1].address, f"{topic}-made")
    assert made is None or (len(made) == 3 and all(each.leader > 0 for each in made))
    known = view_topic(cluster.nodes[1].address, topic)
    assert known is None or (len(known) in (partitions, 9) and all(each.leader > 0 for each in known))


def produce_once(cluster: Cluster, node_id: int, topic: str, *, acks: int) -> int:
    """Produce one record to a node with a timeout of half a second; returns the error code."""
    from tests.clients.test_bad_input import ONE

    with RawClient(cluster.nodes[node_id].address) as wire:
        body = produce_body(topic, ONE, acks=acks, timeout_ms=500)
        return produced(wire.ask(PRODUCE, 3, body))[0]


def test_a_minority_is_not_missed(cluster: Cluster, topic: str) -> None:
    """One voter of three gone, the active controller: topics are created and records flow; back, it catches up."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 1, 3, min_insync_replicas="2")
    controller = cluster.controller_id()
    assert controller is not None
    with BackgroundProducer(client, topic) as stream:
        stream.wait_acked(SOME)
        cluster.kill(controller)
        stream.wait_acked(SOME)
        survivors = survivors_of(cluster)
        survivors.create_topic(f"{topic}-meanwhile", 2, 2)
        assert cluster.controller_id() not in (None, controller)
        restore_nodes(cluster, topic)
        stream.wait_acked(SOME)
    assert stream.read_back(client) == stream.values
    assert view_topic(cluster.nodes[controller].address, f"{topic}-meanwhile") is not None
    client.close()
    survivors.close()


@pytest.mark.parametrize("who", [nightly("the controller"), "a follower"])
def test_one_voter_of_three_alone_serves_what_is_wholly_its_own(
    cluster: Cluster, topic: str, who: str
) -> None:
    """Its own partition takes and gives records; a shared one gives what is committed; no metadata change succeeds."""
    controller = cluster.controller_id()
    others = [node_id for node_id in cluster.nodes if node_id != controller]
    alone = controller if who == "the controller" else others[0]
    assert alone is not None
    dead = [node_id for node_id in cluster.nodes if node_id != alone]
    client = Confluent(cluster.bootstrap_servers)
    shared = f"{topic}-shared"
    place(client, topic, [[alone]])
    place(client, shared, [[alone, *dead]])
    for each in (topic, shared):
        client.produce(each, [b"before"])
    for node_id in dead:
        cluster.kill(node_id)
    survivor = survivors_of(cluster)
    assert survivor.produce(topic, [b"alone"], partition=0) == [(0, 1)]
    assert [each.value for each in survivor.read(topic, 0, 0, 2)] == [b"before", b"alone"]
    assert produce_once(cluster, alone, shared, acks=1) == 0
    assert produce_once(cluster, alone, shared, acks=-1) == REQUEST_TIMED_OUT
    assert survivor.bounds(shared, 0) == (0, 1)
    assert survivor.read(shared, 0, 0, 1)[0].value == b"before"
    codes = change_metadata(survivor, topic)
    assert set(codes.values()) <= RETRIABLE, codes
    restore_nodes(cluster, shared)
    check_nothing_is_half_done(cluster, topic, 1)
    assert client.produce(shared, [b"after"]) == [(0, 3)]
    assert [each.value for each in client.read(shared, 0, 0, 4)] == [b"before", b"value", b"value", b"after"]
    client.create_topic(f"{topic}-after", 1, 3)
    client.close()
    survivor.close()


@pytest.mark.nightly
def test_five_voters_lose_two_then_three_and_recover(topic: str) -> None:
    """Two of five are not missed; with three gone the pair that is left serves its own; then all goes on by itself."""
    with run_checked(5, settings=NO_AUTO_CREATION) as cluster:
        controller = cluster.controller_id()
        assert controller is not None
        others = [node_id for node_id in cluster.nodes if node_id != controller]
        minority, third, pair = [controller, others[0]], others[1], others[2:]
        client = Confluent(cluster.bootstrap_servers)
        place(client, topic, [[*pair, third, *minority]], min_insync_replicas="2")
        place(client, f"{topic}-pair", [pair], min_insync_replicas="2")
        with BackgroundProducer(client, topic) as stream:
            stream.wait_acked(SOME)
            for node_id in minority:
                cluster.kill(node_id)
            stream.wait_acked(SOME)
            wait_isr(cluster, topic, [*pair, third])
            survivors_of(cluster).create_topic(f"{topic}-by-three", 1, 3)
            cluster.kill(third)
            _check_a_pair_alone(cluster, f"{topic}-pair")
            restore_nodes(cluster, topic)
            stream.wait_acked(SOME)
        assert stream.read_back(client) == stream.values
        check_nothing_is_half_done(cluster, f"{topic}-pair", 1)
        client.create_topic(f"{topic}-after", 2, 5)
        client.close()


def _check_a_pair_alone(cluster: Cluster, topic: str) -> None:
    survivors = survivors_of(cluster)
    values = [b"pair %d" % number for number in range(20)]
    assert len(survivors.produce(topic, values)) == len(values)
    assert [each.value for each in survivors.read(topic, 0, 0, len(values))] == values
    codes = change_metadata(survivors, topic)
    assert set(codes.values()) <= RETRIABLE, codes
    survivors.close()


def test_a_node_that_does_not_vote_hosts_replicas_and_follows(topic: str) -> None:
    """A fourth node with the broker's role only: it leads, fails over, is an observer, and never the controller."""
    with run_checked(4, voters=3, settings=NO_AUTO_CREATION) as cluster:
        client = Confluent(cluster.bootstrap_servers)
        place(client, topic, [[4, 1, 2], [3, 4, 2]], min_insync_replicas="2")
        assert leader_of(cluster, topic) == 4
        with (
            BackgroundProducer(client, topic) as led,
            BackgroundProducer(Confluent(cluster.bootstrap_servers), topic, partition=1) as followed,
        ):
            _wait_acked([led, followed])
            _check_quorum(cluster, voters={1, 2, 3}, observers={4})
            controller = cluster.controller_id()
            assert controller in (1, 2, 3)
            cluster.kill(controller)
            # one replica could be placed on the dead node, which is not fenced yet, and would have no leader
            survivors_of(cluster).create_topic(f"{topic}-seen", 1, 3)
            assert view_topic(cluster.nodes[4].address, f"{topic}-seen") is not None
            restore_nodes(cluster, topic)
            _wait_acked([led, followed])
            cluster.kill(4)
            cluster.wait_until(lambda: leader_of(cluster, topic) != 4, "another node leads")
            _wait_acked([led, followed])
            restore_nodes(cluster, topic)
            _wait_acked([led, followed])
        assert led.read_back(client) == led.values
        assert followed.read_back(client) == followed.values
        _check_that_an_observer_counts_for_nothing(cluster, topic)
        client.close()


def _wait_acked(streams: Iterable[BackgroundProducer]) -> None:
    for stream in streams:
        stream.wait_acked(SOME)


def _check_quorum(cluster: Cluster, *, voters: set[int], observers: set[int]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))

    def as_expected() -> bool:
        described = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
        assert described["leader_id"] in voters
        members = [described[kind] for kind in ("current_voters", "observers")]
        ids = [{each["replica_id"] for each in kind} for kind in members]
        offsets = {each["log_end_offset"] for kind in members for each in kind}
        return ids == [voters, observers] and offsets == {described["high_watermark"]}

    cluster.wait_until(as_expected, "DescribeQuorum shows all members caught up")
    admin.close()


def _check_that_an_observer_counts_for_nothing(cluster: Cluster, topic: str) -> None:
    """Two nodes of four live, but only one voter of three: no majority."""
    other = f"{topic}-other"
    survivors_of(cluster).create_topic(other, 2, 1)
    for node_id in (2, 3):
        cluster.kill(node_id)
    survivors = survivors_of(cluster)
    codes = change_metadata(survivors, other)
    assert set(codes.values()) <= RETRIABLE, codes
    restore_nodes(cluster, topic)
    check_nothing_is_half_done(cluster, other, 2)
    survivors.close()
