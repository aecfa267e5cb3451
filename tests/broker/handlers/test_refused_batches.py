"""Batches that Produce refuses for a reason that passes: what their producers sent after them waits for them."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.base.errors import (
    CorruptMessage,
    KafkaError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from raftlog.broker.replicas.early_batches import EARLY_KNOWN_S, MAX_EARLY_PARTITIONS, EarlyBatches
from raftlog.replication.partition import Partition
from tests.broker.fakes import FakePartitionServer, batch, produce
from tests.kit.clock import Clock
from tests.replication.replica_cluster import ReplicaCluster
from tests.replication.replica_cluster import batch as sequenced

WAITS = UnknownTopicOrPartition("there is no such partition yet")


@pytest.mark.parametrize(
    "error, is_noted",
    [
        (NotEnoughReplicas, True),
        (NotLeaderOrFollower, True),
        (MessageTooLarge, False),
        (CorruptMessage, False),
    ],
)
async def test_a_batch_is_noted_if_it_may_come_again(error: type[KafkaError], is_noted: bool) -> None:
    """The producer of a batch with a wrong CRC is unknown."""
    fake = FakePartitionServer()
    fake.partition.error = error()
    records = batch()
    fake.connect().send(produce(1, (0, records)))
    assert fake.partition.refused == ([records] if is_noted else [])


async def test_a_leader_that_is_cut_off_notes_what_it_refuses() -> None:
    """It may find others again a moment later, between two batches of a producer."""
    fake = FakePartitionServer()
    broker = fake.server.broker
    broker.silent_members = frozenset({2, 3})
    records = batch()
    fake.connect().send(produce(1, (0, records)))
    assert fake.partition.refused == [records]


def new_partition() -> Partition:
    return ReplicaCluster(1)[1].partition


def waits(partition: Partition, sequence: int, epoch: int = 0) -> bool:
    """Return whether a batch is refused for the same reason as the previous batch."""
    records = memoryview(sequenced("x", producer=(7, epoch, sequence)))
    try:
        partition.append_produced(records, acks=1, now_ms=0)
    except UnknownTopicOrPartition:
        return True
    return False


@pytest.mark.parametrize("by_id", [False, True])
def test_a_new_replica_hears_what_came_before_it_was_made(by_id: bool) -> None:
    """Two batches are in flight while the partition is made: the second isn't taken for the first (KAFKA-15591)."""
    partition = new_partition()
    topic: str | UUID = partition.topic_id if by_id else partition.topic
    early = EarlyBatches(lambda: 0.0)
    early.note(topic, partition.index, memoryview(sequenced("x", producer=(7, 0, 3))), WAITS)
    early.note(topic, partition.index, memoryview(b"no batch"), WAITS)
    early.hand_over(partition)
    assert waits(partition, 4)
    early.hand_over(new_partition())


@pytest.mark.parametrize("epochs", [(0, 1), (1, 0), (0, 0)])
def test_a_new_replica_takes_refusals_by_topic_name_and_by_topic_id(
    epochs: tuple[int, int],
) -> None:
    """Clients of Produce before version 13 send the topic's name, newer clients its id."""
    partition = new_partition()
    early = EarlyBatches(lambda: 0.0)
    for topic, epoch in zip((partition.topic, partition.topic_id), epochs, strict=True):
        early.note(topic, partition.index, memoryview(sequenced("x", producer=(7, epoch, 3))), WAITS)
    early.hand_over(partition)
    assert all(waits(partition, 4, epoch) for epoch in epochs)


def test_of_one_batch_noted_by_name_and_of_one_by_id_the_first_is_awaited() -> None:
    """Whichever was handed over last."""
    for sequences in ((2, 3), (3, 2)):
        partition = new_partition()
        early = EarlyBatches(lambda: 0.0)
        for topic, sequence in zip((partition.topic, partition.topic_id), sequences, strict=True):
            early.note(topic, partition.index, memoryview(sequenced("x", producer=(7, 0, sequence))), WAITS)
        early.hand_over(partition)
        assert waits(partition, 3)


def test_what_came_early_long_ago_is_forgotten() -> None:
    """Its producer may have gone far ahead elsewhere since."""
    clock = Clock()
    partition = new_partition()
    early = EarlyBatches(clock)
    early.note(partition.topic, 0, memoryview(sequenced("x", producer=(7, 0, 3))), WAITS)
    clock.advance(EARLY_KNOWN_S)
    early.hand_over(partition)
    assert not partition.log.producers.refused_batches


def test_a_bounded_number_of_early_partitions_is_known() -> None:
    """Of more, the last: clients can make names up."""
    early = EarlyBatches(lambda: 0.0)
    records = memoryview(sequenced("x", producer=(7, 0, 3)))
    partition = new_partition()
    early.note(partition.topic, partition.index, records, WAITS)
    for number in range(MAX_EARLY_PARTITIONS):
        early.note(f"made-up-{number}", 0, records, WAITS)
    early.hand_over(partition)
    assert not partition.log.producers.refused_batches
