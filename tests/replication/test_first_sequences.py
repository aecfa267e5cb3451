"""A producer's first batch in a partition: its second batch, which comes with it, isn't taken for the first."""

from __future__ import annotations

import pytest

from raftlog.base.errors import NotLeaderOrFollower, OutOfOrderSequenceNumber
from tests.replication.replica_cluster import NAME, NOW_MS, ReplicaCluster, ReplicaNode, batch

PRODUCER = 7


def produce(node: ReplicaNode, sequence: int, *, epoch: int = 0) -> None:
    node.produce("x", producer=(PRODUCER, epoch, sequence))


def refuse(node: ReplicaNode, sequence: int, *, epoch: int = 0) -> None:
    """The node refuses a batch and notes it, as the handler of Produce does."""
    records = memoryview(batch("x", producer=(PRODUCER, epoch, sequence)))
    with pytest.raises(NotLeaderOrFollower) as refused:
        node.partition.append_produced(records, acks=-1, now_ms=NOW_MS)
    node.partition.note_refused_batch(records, refused.value)


def test_a_log_that_never_held_a_record_begins_with_sequence_0() -> None:
    """KAFKA-15591: the first batch was refused before the partition was there, and comes again."""
    leader = ReplicaCluster(1)[1]
    with pytest.raises(OutOfOrderSequenceNumber, match="begins with sequence 0, not 17"):
        produce(leader, 17)
    produce(leader, 0)
    produce(leader, 1)


def test_a_sequence_without_a_producer_says_nothing() -> None:
    """Kafka ignores the sequence of a batch with producer id -1."""
    leader = ReplicaCluster(1)[1]
    leader.produce("x", producer=(-1, -1, 17))
    assert leader.partition.log.log_end_offset == 1


def test_a_producer_whose_records_were_deleted_goes_on_with_any_sequence() -> None:
    """KIP-360: DeleteRecords and retention take its state, and the log once held records."""
    leader = ReplicaCluster(1)[1]
    leader.produce("x")
    leader.host.flush()
    leader.partition.delete_records(1)
    produce(leader, 17)
    assert leader.partition.log.log_end_offset == 2


def test_a_producer_of_a_topic_that_was_deleted_goes_on_in_its_successor() -> None:
    """Its client doesn't know that the topic is new. librdkafka and aiokafka would give up."""
    leader = ReplicaCluster(1)[1]
    leader.host.deleted.add(NAME.topic)
    produce(leader, 17)


def test_what_a_follower_refused_comes_first_when_it_leads() -> None:
    """Two batches are in flight, and this replica is elected between them."""
    cluster = ReplicaCluster(2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    refuse(cluster[2], 0)
    cluster.elect(2)
    with pytest.raises(NotLeaderOrFollower, match="sequence 1 waits for 0, which was refused"):
        produce(cluster[2], 1)
    produce(cluster[2], 0)
    produce(cluster[2], 1)


def test_what_a_client_gave_up_is_waited_for_no_more_and_its_next_epoch_begins_in_order() -> None:
    """librdkafka goes on in the next epoch, with sequence 0. It has two batches in flight, and is refused again."""
    cluster = ReplicaCluster(2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    refuse(cluster[2], 0)
    refuse(cluster[2], 0, epoch=1)
    refuse(cluster[2], 1)
    cluster.elect(2)
    with pytest.raises(NotLeaderOrFollower, match="sequence 1 waits for 0, which was refused"):
        produce(cluster[2], 1, epoch=1)
    produce(cluster[2], 0, epoch=1)
    produce(cluster[2], 1, epoch=1)


def test_what_a_follower_refused_and_its_leader_took_is_waited_for_no_more() -> None:
    """The batch comes by replication: its producer found the leader."""
    cluster = ReplicaCluster(2)
    cluster[1].produce("a")
    refuse(cluster[2], 0)
    produce(cluster[1], 0)
    cluster.catch_up(1, 2)
    cluster.elect(2)
    produce(cluster[2], 1)


def test_a_batch_that_is_in_the_log_is_not_waited_for() -> None:
    """The leader took it, its answer was lost, and the client asks a follower before it asks the leader again."""
    cluster = ReplicaCluster(2)
    produce(cluster[1], 0)
    cluster.catch_up(1, 2)
    refuse(cluster[2], 0)
    cluster.elect(2)
    produce(cluster[2], 1)


def test_a_new_leaders_followers_wait_for_no_refused_batch() -> None:
    """Producers send it to that leader, and may be far ahead when this replica leads."""
    cluster = ReplicaCluster(3)
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    refuse(cluster[2], 0)
    cluster.elect(3)
    cluster.elect(2)
    produce(cluster[2], 1)


def test_an_unclean_leader_waits_for_no_refused_batch() -> None:
    """The former leader may have acknowledged it, and it is lost: it won't come again."""
    cluster = ReplicaCluster(2, isr=(1,))
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    refuse(cluster[2], 0)
    cluster.elect(2, isr=(2,))
    produce(cluster[2], 1)
