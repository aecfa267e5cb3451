"""Followers serve consumers (KIP-392): up to their own high watermark, and nothing that is not certainly committed."""

from __future__ import annotations

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from raftlog.base.types import EpochEnd
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.replica_host import PartitionRead
from tests.replication.replica_cluster import RecordingWaiter, ReplicaCluster, ReplicaNode, values_in
from tests.replication.test_transactions import confirm, end, write


def consume(node: ReplicaNode, offset: int, *, committed: bool = False, epoch: int = -1) -> PartitionRead:
    """Read as a consumer that may read from followers, with its last record of that leader epoch."""
    return node.partition.read(
        offset, 1 << 20, leader_only=False, read_committed=committed, last_fetched_epoch=epoch
    )


def parked_at(node: ReplicaNode) -> RecordingWaiter:
    waiter = RecordingWaiter()
    node.partition.park(waiter)
    return waiter


def wakes(node: ReplicaNode, waiter: RecordingWaiter) -> int:
    node.host.wake()
    return waiter.wakes


def test_a_follower_serves_up_to_its_own_high_watermark() -> None:
    """A record whose commit the leader has not sent yet is not there: an empty answer without an error."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a", "b")
    cluster.catch_up(1, 2)
    cluster[1].produce("c")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].partition.log_end_offset == 3
    read = consume(cluster[2], 0)
    assert values_in(read.records) == ["a", "b"]
    assert (read.error_code, read.high_watermark, read.last_stable_offset) == (0, 2, 2)
    for offset in (2, 3):
        assert (*consume(cluster[2], offset)[:2], consume(cluster[2], offset).records) == (0, 2, b"")


def test_a_reader_of_leaders_only_is_sent_away() -> None:
    """Before Fetch 11 a client does not know of followers that serve."""
    cluster = ReplicaCluster(size=2)
    assert cluster[2].partition.read(0, 100).error_code == NotLeaderOrFollower.code
    assert consume(cluster[2], 0).error_code == 0


def test_a_waiting_consumer_is_woken_when_the_follower_hears_of_a_commit() -> None:
    """Not when it fetches the record: it may not be served yet."""
    cluster = ReplicaCluster(size=2)
    waiter = parked_at(cluster[2])
    cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    assert wakes(cluster[2], waiter) == 0
    cluster[2].fetch_from(cluster[1])
    assert wakes(cluster[2], waiter) == 1
    assert values_in(consume(cluster[2], 0).records) == ["a"]


@pytest.mark.parametrize("commit", [True, False])
def test_read_committed_ends_at_the_followers_own_last_stable_offset(commit: bool) -> None:
    """Its own log says which transactions are open or aborted, as far as it knows that the markers are committed."""
    cluster = ReplicaCluster(2)
    cluster.elect(1, tell=(1, 2))
    confirm(cluster[1])
    write(cluster[1], 0)
    cluster.catch_up(1, 2)
    assert consume(cluster[2], 0, committed=True)[1:3] == (1, 0)
    end(cluster[1], commit=commit)
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].partition.log_end_offset == 2
    assert consume(cluster[2], 0, committed=True)[1:3] == (1, 0)
    cluster[2].fetch_from(cluster[1])
    read = consume(cluster[2], 0, committed=True)
    assert read[1:3] == (2, 2)
    assert read.aborted == (() if commit else ((9, 0),))
    assert read.records


def test_an_offset_outside_the_followers_log_is_out_of_range_without_any_offset() -> None:
    """With a high watermark in this answer librdkafka would reset by auto.offset.reset instead of asking the leader."""
    cluster = ReplicaCluster(size=2)
    for value in "abc":
        cluster[1].produce(value)
    cluster.catch_up(1, 2)
    cluster[1].partition.delete_records(1)
    cluster[2].fetch_from(cluster[1])
    for offset in (0, 4):
        assert consume(cluster[2], offset) == PartitionRead(OffsetOutOfRange.code, -1, -1, -1, b"")


def test_epochs_are_checked_as_at_a_leader() -> None:
    """KIP-320: an older epoch is fenced, a newer one is unknown here yet."""
    cluster = ReplicaCluster()
    cluster.elect(1, tell=(1, 2, 3))
    codes = [
        cluster[2].partition.read(0, 100, current_leader_epoch=epoch, leader_only=False).error_code
        for epoch in range(3)
    ]
    assert codes == [FencedLeaderEpoch.code, 0, UnknownLeaderEpoch.code]


def test_a_follower_that_lags_does_not_say_that_its_readers_diverge() -> None:
    """The reader has records of an epoch that this follower has not fetched yet: only its leader can judge them."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster.elect(1, tell=(1, 2, 3))
    cluster[1].produce("b")
    cluster.catch_up(1, 3)
    assert consume(cluster[3], 2, epoch=1).error_code == 0
    ahead = consume(cluster[2], 2, epoch=1)
    assert (ahead.error_code, ahead.diverging) == (OffsetOutOfRange.code, None)
    cluster.catch_up(1, 2)
    assert consume(cluster[2], 2, epoch=1)[:2] == (0, 2)
    strange = consume(cluster[2], 2, epoch=0)
    assert (strange.error_code, strange.diverging) == (0, EpochEnd(0, 1))


def rotten_follower() -> ReplicaCluster:
    """Follower 2 stopped cleanly, and its third batch rotted meanwhile."""
    cluster = ReplicaCluster(size=2)
    for value in ("a", "b", "c", "d" * 5_000, "e"):
        cluster[1].produce(value)
    cluster.catch_up(1, 2)
    cluster[2].checkpointed = 5
    cluster[2].corrupt_batch(2)
    cluster[2].reboot(clean=True)
    cluster.publish(2)
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].partition.high_watermark == 5
    return cluster


def test_a_follower_with_a_damaged_batch_serves_none_of_it_and_fetches_it_again() -> None:
    """KAFKA_STORAGE_ERROR sends the reader to the leader; the broker cuts the log, as a follower that starts does."""
    cluster = rotten_follower()
    partition = cluster[2].partition
    assert consume(cluster[2], 2).error_code == KafkaStorageError.code
    assert cluster[2].host.damaged == [partition]
    waiter = parked_at(cluster[2])
    assert partition.cut_damage() and not partition.cut_damage()
    assert wakes(cluster[2], waiter) == 1
    assert (partition.log_end_offset, partition.high_watermark) == (2, 2)
    for offset in (2, 4, 5):
        assert consume(cluster[2], offset).error_code == KafkaStorageError.code
    assert values_in(consume(cluster[2], 0).records) == ["a", "b"]
    cluster.catch_up(1, 2)
    assert partition.log.damage is None
    assert values_in(consume(cluster[2], 4).records) == ["e"]


def test_a_leader_is_not_cut_when_damage_is_found() -> None:
    """It keeps what it has, since no other replica may have it."""
    cluster = rotten_follower()
    assert not cluster[1].partition.cut_damage()
    assert cluster[1].partition.log_end_offset == 5


def test_a_waiting_consumer_is_woken_when_the_follower_takes_another_role_or_leaves() -> None:
    """It reads its error at once, or what the new role has for it."""
    cluster = ReplicaCluster()
    waiter = parked_at(cluster[2])
    cluster.elect(3, tell=(2,))
    assert wakes(cluster[2], waiter) == 1
    cluster[2].partition.fail_following("lost records")
    assert wakes(cluster[2], waiter) == 2
    assert consume(cluster[2], 0).error_code == KafkaStorageError.code
    cluster[2].partition.stop_replica(elsewhere=True)
    assert wakes(cluster[2], waiter) == 3
    assert consume(cluster[2], 0).error_code == NotLeaderOrFollower.code


def test_a_waiting_consumer_is_woken_when_its_offset_is_cut_off_or_deleted() -> None:
    """A consumer past the end has to ask the leader; so does one before the start."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster[1].produce("b")
    cluster[2].fetch_from(cluster[1])
    cluster.elect(3, isr=(3,), tell=(2, 3))
    cluster[2].host.wake()
    waiter = parked_at(cluster[2])
    cluster[3].produce("c")
    cluster[2].fetch_from(cluster[3])
    assert cluster[2].partition.log_end_offset == 1
    assert wakes(cluster[2], waiter) == 1
    assert consume(cluster[2], 2).error_code == OffsetOutOfRange.code
    role = cluster[2].partition.role
    assert isinstance(role, FollowerRole)
    role.restart_at(7, leader_epoch=role.leader_epoch)
    assert wakes(cluster[2], waiter) == 2
    assert consume(cluster[2], 1).error_code == OffsetOutOfRange.code


def test_a_deposed_leader_goes_on_with_what_it_knew_to_be_committed() -> None:
    """Its log may end in records that the new leader lacks: they are behind its high watermark."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster[1].produce("lost")
    cluster[1].host.flush()
    cluster.elect(2, isr=(2, 3), tell=(1, 2, 3))
    read = consume(cluster[1], 0)
    assert (values_in(read.records), read.high_watermark) == (["a"], 1)
    assert consume(cluster[1], 1).records == b""


def test_a_follower_that_has_not_heard_of_its_leader_sends_its_readers_back() -> None:
    """It may be cut off, and learn neither of records nor of leaders. Kafka's serves on, up to five minutes."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    host = cluster[2].host
    host.clock += host.replica_lag_time_max
    assert values_in(consume(cluster[2], 0).records) == ["a"]
    host.clock += 0.1
    assert cluster[2].partition.has_lost_leader()
    assert consume(cluster[2], 0).error_code == NotLeaderOrFollower.code
    host.heard_at = host.clock
    assert not cluster[2].partition.has_lost_leader()
    assert values_in(consume(cluster[2], 0).records) == ["a"]
    cluster[1].host.clock += 1_000
    assert not cluster[1].partition.has_lost_leader()


def test_a_follower_that_is_cut_off_with_its_leader_serves_old_records_and_nothing_uncommitted() -> None:
    """It still hears from that leader. Its readers miss what others commit meanwhile, and get it afterwards."""
    cluster = ReplicaCluster(min_isr=1)
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster.elect(3, isr=(3,), tell=(3,))
    cluster[3].produce("b")
    cluster[3].host.flush()
    assert cluster[3].partition.high_watermark == 2
    cluster[1].produce("never", acks=1)
    cluster[1].host.flush()
    for _ in range(5):
        cluster[2].host.clock += cluster[2].host.replica_lag_time_max - 1
        cluster[2].fetch_from(cluster[1])
        cluster[2].host.heard_at = cluster[2].host.clock
        read = consume(cluster[2], 0)
        assert (read.error_code, values_in(read.records), read.high_watermark) == (0, ["a"], 1)
    assert cluster[2].partition.log_end_offset == 2
    cluster.change(tell=(1, 2))
    cluster.catch_up(3, 2)
    assert values_in(consume(cluster[2], 0).records) == ["a", "b"]


def test_a_new_leader_has_the_whole_time_to_be_heard_of() -> None:
    """The metadata that named it is news, too; likewise if there is no leader."""
    cluster = ReplicaCluster()
    host = cluster[2].host
    host.clock += 1_000
    for leader in (3, -1):
        assert consume(cluster[2], 0).error_code == NotLeaderOrFollower.code
        cluster.elect(leader, tell=(2,))
        assert consume(cluster[2], 0).error_code == 0
        host.clock += host.replica_lag_time_max + 1


def test_the_first_reader_has_the_follower_ask_its_leader_again() -> None:
    """So that the leader knows that each new high watermark is wanted at once; not with each read."""
    cluster = ReplicaCluster()
    partition, host = cluster[2].partition, cluster[2].host
    for seconds, asked in ((0, 1), (1, 1), (9, 1), (11, 2)):
        host.clock += seconds
        host.heard_at = host.clock
        consume(cluster[2], 0)
        assert host.asked == [partition] * asked


@pytest.mark.parametrize("compacted", [False, True])
def test_a_response_that_arrives_after_a_reader_found_damage_is_dropped(compacted: bool) -> None:
    """Its records do not follow the log that is cut. A compacted log would take the missing records for a hole."""
    cluster = rotten_follower()
    leader, partition = cluster[1], cluster[2].partition
    if compacted:
        partition.log.config = TopicConfig(min_insync_replicas=1, cleanup_policy=("compact",))
    leader.produce("f")
    leader.produce("g")
    leader.host.flush()
    role = partition.role
    assert isinstance(role, FollowerRole)
    in_flight = leader.partition.read(
        5, 1 << 20, current_leader_epoch=role.leader_epoch, replica=cluster[2].replica
    )
    assert values_in(in_flight.records) == ["f", "g"]
    assert consume(cluster[2], 2).error_code == KafkaStorageError.code
    waiter = parked_at(cluster[2])
    with pytest.raises(CorruptMessage):
        role.append_fetched(
            memoryview(in_flight.records or b""),
            leader_epoch=role.leader_epoch,
            high_watermark=in_flight.high_watermark,
            log_start_offset=0,
        )
    assert partition.log.damage is not None
    assert wakes(cluster[2], waiter) == 1
    assert (partition.log_end_offset, partition.high_watermark) == (2, 2)
    assert values_in(consume(cluster[2], 0).records) == ["a", "b"]
    cluster[2].fetch_from(leader, max_bytes=1)
    assert (partition.log_end_offset, partition.log.damage is None) == (3, False)
    assert not partition.cut_damage()
    cluster.catch_up(1, 2)
    assert partition.log.damage is None
    assert cluster[2].values() == ["a", "b", "c", "d" * 5_000, "e", "f", "g"]


def test_committed_markers_stay_committed_when_damage_behind_them_is_cut() -> None:
    """The cut reads the producers back from the log, and the last stable offset must not go back to the transaction."""
    cluster = ReplicaCluster(2)
    cluster.elect(1, tell=(1, 2))
    confirm(cluster[1])
    write(cluster[1], 0)
    end(cluster[1], commit=True)
    for value in ("b", "c", "d" * 5_000, "e"):
        cluster[1].produce(value)
    cluster.catch_up(1, 2)
    partition = cluster[2].partition
    cluster[2].checkpointed = partition.high_watermark
    cluster[2].corrupt_batch(4)
    cluster[2].reboot(clean=True)
    cluster.publish(2)
    cluster[2].fetch_from(cluster[1])
    partition = cluster[2].partition
    assert consume(cluster[2], 4, committed=True).error_code == KafkaStorageError.code
    assert partition.cut_damage()
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 4)
