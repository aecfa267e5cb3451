"""The follower's side, and the scenarios of two or three replicas that KIP-101, KIP-279 and KIP-595 were written
for.
"""

from __future__ import annotations

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import CorruptMessage, NotLeaderOrFollower
from raftlog.base.types import EpochEnd
from raftlog.records.batch import build_batch, new_record
from raftlog.replication.follower_role import FollowerRole, up_to_epoch
from raftlog.replication.isr import CommittedIsr
from raftlog.replication.leader_role import LeaderRole
from tests.replication.replica_cluster import NOW_MS, ReplicaCluster, ReplicaNode, values_in


def stamped(offset: int, epoch: int, value: str = "x") -> bytes:
    """A batch of one record as a leader of that epoch stamped it."""
    return build_batch(
        [new_record(None, value.encode(), timestamp=NOW_MS)], base_offset=offset, leader_epoch=epoch
    )


def following(node: ReplicaNode) -> FollowerRole:
    role = node.partition.role
    assert isinstance(role, FollowerRole)
    return role


def test_a_follower_appends_what_its_leader_sends_and_learns_the_high_watermark() -> None:
    """The high watermark comes with the fetch after the commit, bounded by the own log end."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a", "b")
    cluster.catch_up(1, 2)
    assert cluster[2].values() == ["a", "b"]
    assert cluster[2].partition.high_watermark == 2


def test_batches_of_a_later_epoch_than_the_fetch_are_refused() -> None:
    """KAFKA-18723: the leader's log changed between reading and answering."""
    old, new = stamped(0, 0), stamped(1, 3)
    assert up_to_epoch(memoryview(old + new), 2) == old
    assert up_to_epoch(memoryview(old + new), 3) == old + new
    assert up_to_epoch(memoryview(old + new[:-1]), 3) == old
    assert up_to_epoch(memoryview(b""), 3) == b""


def test_an_answer_asked_in_another_leader_epoch_is_dropped() -> None:
    """The old leader's answer arrives after the election: none of it may be appended or truncated."""
    cluster = ReplicaCluster()
    cluster.elect(3, tell=(2,))
    role = following(cluster[2])
    with pytest.raises(NotLeaderOrFollower):
        role.append_fetched(memoryview(stamped(0, 0)), leader_epoch=0, high_watermark=1, log_start_offset=0)
    with pytest.raises(NotLeaderOrFollower):
        role.truncate_to(EpochEnd(0, 0), leader_epoch=0, log_start_offset=0)
    with pytest.raises(NotLeaderOrFollower):
        role.restart_at(5, leader_epoch=0)
    assert cluster[2].partition.log_end_offset == 0


def test_a_damaged_batch_is_not_appended() -> None:
    """The follower checks every CRC before it writes."""
    cluster = ReplicaCluster(size=2)
    bad = bytearray(stamped(0, 0))
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage):
        following(cluster[2]).append_fetched(
            memoryview(bad), leader_epoch=0, high_watermark=1, log_start_offset=0
        )
    assert cluster[2].partition.log_end_offset == 0


def test_a_follower_drops_what_the_leader_deleted() -> None:
    """DeleteRecords reaches followers with the leader's log start, never past their own high watermark."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster[1].produce("b")
    cluster.catch_up(1, 2)
    cluster[1].partition.delete_records(1)
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].partition.log_start_offset == 1


def test_a_follower_that_lies_before_the_leaders_log_start_begins_anew_there() -> None:
    """OFFSET_OUT_OF_RANGE: what lies between is gone."""
    cluster = ReplicaCluster(isr=(1, 2))
    cluster[1].produce("a")
    cluster[1].produce("b")
    cluster.catch_up(1, 2)
    cluster[1].partition.delete_records(1)
    cluster.catch_up(1, 3)
    assert cluster[3].values() == ["b"]
    assert (cluster[3].partition.log_start_offset, cluster[3].partition.high_watermark) == (1, 2)


def test_a_follower_begins_anew_where_the_leaders_log_starts_within_a_batch() -> None:
    """DeleteRecords to an offset within a batch: the follower gets the whole batch, and deletes its first records."""
    cluster = ReplicaCluster(isr=(1, 2))
    cluster[1].produce("a", "b", "c")
    cluster[1].produce("d")
    cluster.catch_up(1, 2)
    cluster[1].partition.delete_records(1)
    cluster[3].fetch_from(cluster[1])
    with pytest.raises(CorruptMessage):
        cluster[3].fetch_from(cluster[1])  # once more, before it is believed
    cluster.catch_up(1, 3)
    third = cluster[3].partition
    assert cluster[3].values() == cluster[1].values()
    assert (third.log_start_offset, third.high_watermark, third.log_end_offset) == (1, 4, 4)


def test_a_base_offset_before_an_empty_log_must_be_sent_twice() -> None:
    """A single wrong base offset may be a broken memory's: no CRC covers it."""
    cluster = ReplicaCluster(isr=(1, 2))
    role = following(cluster[3])
    role.restart_at(5, leader_epoch=0)
    batch = build_batch(
        [new_record(None, b"x", timestamp=NOW_MS) for _ in range(3)], base_offset=4, leader_epoch=0
    )

    def append(records: bytes) -> None:
        role.append_fetched(memoryview(records), leader_epoch=0, high_watermark=7, log_start_offset=5)

    for wrong in (stamped(4, 0), batch):
        with pytest.raises(CorruptMessage):
            append(wrong)
        assert cluster[3].partition.log_end_offset == 5
    with pytest.raises(CorruptMessage):
        append(batch[:-1] + b"?")
    partition = cluster[3].partition
    assert partition.high_watermark == partition.log_end_offset == 4
    append(batch)
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (5, 7, 7)


def test_a_follower_serves_no_client() -> None:
    """Only leaders append and are read from."""
    cluster = ReplicaCluster()
    partition = cluster[2].partition
    assert partition.read(0, 100).error_code == NotLeaderOrFollower.code
    assert partition.pending_isr_change() is None
    with pytest.raises(NotLeaderOrFollower):
        partition.epoch_end(0)
    with pytest.raises(NotLeaderOrFollower):
        partition.delete_records(0)


def test_kip_101_scenario_1_a_restarted_follower_keeps_what_was_committed() -> None:
    """Truncating to the high watermark would lose m2: B restarts before it learns HW=2, then A dies and B leads."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("m1")
    cluster.catch_up(1, 2)
    producer = cluster[1].produce("m2")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    cluster[1].partition.read(2, 1 << 20, replica=cluster[2].replica)
    assert producer.outcome == "committed"
    assert cluster[2].partition.high_watermark == 1
    cluster[2].crash()
    cluster[2].boot()
    cluster.publish(2)
    cluster[2].fetch_from(cluster[1])
    cluster.elect(2, isr=(2,), tell=(2,))
    cluster[2].host.flush()
    assert cluster[2].consume() == ["m1", "m2"]


def test_kip_101_scenario_2_replicas_that_both_lost_their_tails_end_up_equal() -> None:
    """Both crash; B leads first with other records at the offsets that A still holds from the old epoch."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("m1")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    cluster[1].produce("m2")
    cluster[1].host.flush()
    for each in (1, 2):
        cluster[each].crash()
        cluster[each].boot()
    cluster.elect(2, isr=(2,), tell=(1, 2))  # unclean, as the KIP's scenario is under Kafka's flush contract
    cluster[2].produce("m3")
    cluster[2].host.flush()
    for _ in range(3):
        cluster[1].fetch_from(cluster[2])
    assert cluster[1].values() == cluster[2].values() == ["m1", "m3"]


def test_kip_279_a_follower_of_a_fast_double_failover_truncates_step_by_step() -> None:
    """The leader does not know the follower's last epoch, and returns a smaller epoch that the follower lacks."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster.elect(2, tell=(2,))
    cluster[2].produce("lost-1", acks=1)  # epoch 1, only on node 2
    cluster[2].host.flush()
    cluster.elect(3, tell=(1, 3))
    cluster[3].produce("kept", acks=1)  # epoch 2
    cluster.catch_up(3, 1)
    cluster.elect(1, tell=(1, 3))
    cluster[1].produce("later", acks=1)  # epoch 3
    cluster.publish(2)
    for _ in range(5):
        cluster[2].fetch_from(cluster[1])
        cluster[3].fetch_from(cluster[1])
    assert cluster[2].values() == cluster[3].values() == cluster[1].values() == ["a", "kept", "later"]


def test_elections_without_writes_leave_nothing_to_truncate() -> None:
    """Empty epochs are in no log, and followers of the same records go on where they are."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    for leader in (2, 3, 1, 2):
        cluster.elect(leader, tell=(1, 2, 3))
    for each in (1, 3):
        cluster[each].fetch_from(cluster[2])
    cluster[2].host.flush()
    cluster[2].produce("b")
    cluster.catch_up(2, 1, 3)
    assert [cluster[each].values() for each in (1, 2, 3)] == [["a", "b"]] * 3
    events = [event for each in (1, 2, 3) for event, _ in cluster[each].host.events]
    assert "log_truncated" not in events


def test_a_new_leader_may_answer_for_an_epoch_older_than_all_it_knows() -> None:
    """An unclean leader with an empty log: the follower gives up records that no replica can confirm, and says so."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("a")
    cluster[1].host.flush()
    cluster.elect(2, isr=(2,), tell=(1, 2))
    cluster[2].produce("b")
    for _ in range(3):
        cluster[1].fetch_from(cluster[2])
    assert cluster[1].values() == ["b"]
    assert "committed_records_truncated" in [event for event, _ in cluster[1].host.events]


def test_a_log_that_began_anew_has_left_its_old_epochs_behind() -> None:
    """Kafka's truncateFullyAndStartAt clears the epoch cache: an old epoch would make the leader diverge for ever."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    for value in ("b", "c", "d"):
        cluster[1].produce(value)  # epoch 0, only on node 1
    cluster.elect(2, isr=(2,), tell=(2,))
    cluster[2].produce("lost")  # epoch 1, only on node 2
    cluster[2].host.flush()
    cluster.elect(1, isr=(1,), tell=(1,))
    cluster[1].produce("e")  # epoch 2
    cluster[1].host.flush()
    cluster[1].partition.delete_records(3)
    cluster.publish(2)
    for _ in range(4):
        cluster[2].fetch_from(cluster[1])
    assert cluster[2].values() == cluster[1].values() == ["d", "e"]


def test_a_log_whose_leader_epoch_rotted_upwards_is_cut_where_that_begins() -> None:
    """No CRC covers a batch's leader epoch: no later batch of the leader could follow an epoch from the future."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].produce("b")
    cluster[1].host.flush()
    cluster[2].partition.log.append_as_follower(stamped(1, 1 << 14, "b"), now_ms=NOW_MS)
    cluster[1].produce("c")
    cluster.catch_up(1, 2)
    assert cluster[2].values() == ["a", "b", "c"]
    assert cluster[2].partition.log.latest_epoch == cluster[1].partition.log.latest_epoch


def test_an_empty_log_that_diverges_begins_anew() -> None:
    """All of its records expired: only its claimed epoch is left to cut."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster.elect(2, isr=(2,), tell=(2,))
    cluster[2].produce("lost")
    cluster[2].host.flush()
    cluster[2].partition.delete_records(-1)
    cluster.elect(1, isr=(1,), tell=(1,))
    for value in ("b", "c"):
        cluster[1].produce(value)
    cluster[1].host.flush()
    cluster.publish(2)
    for _ in range(4):
        cluster[2].fetch_from(cluster[1])
    assert cluster[2].values() == ["c"]


def test_a_log_that_parted_before_the_leaders_log_start_begins_anew_there() -> None:
    """The leader dropped what says where: records before its log start that it never had would pass for committed."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster.elect(2, isr=(2,), tell=(2,))
    for value in ("b", "c", "d"):
        cluster[2].produce(value)
    cluster[2].host.flush()
    for value in ("x", "y", "z"):
        cluster[1].produce(value)
    cluster[1].host.flush()
    cluster[2].partition.delete_records(3)
    cluster.publish(1)
    cluster[1].fetch_from(cluster[2])
    assert cluster[1].values() == []
    assert cluster[1].partition.log.segments[0].base_offset == 3
    cluster[1].fetch_from(cluster[2])
    assert cluster[1].values() == ["d"]


def test_a_zombie_leader_acknowledges_nothing_with_acks_all() -> None:
    """Its followers fetch in the new epoch from the new leader; its suffix is neither committed nor consumed."""
    cluster = ReplicaCluster(min_isr=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster.elect(2, isr=(2, 3), tell=(2, 3))
    zombie_all, zombie_one = cluster[1].produce("z1"), cluster[1].produce("z2", acks=1)
    cluster[1].host.flush()
    assert cluster[3].fetch_from(cluster[2]) == 0
    read = cluster[1].partition.read(1, 1 << 20, current_leader_epoch=1, replica=cluster[3].replica)
    assert read.error_code == 75
    cluster[2].produce("b")
    cluster.catch_up(2, 3)
    assert (zombie_all.outcome, zombie_one.outcome) == (None, None)
    assert cluster[1].consume() == ["a"]
    cluster.publish(1)
    assert isinstance(zombie_all.outcome, NotLeaderOrFollower)
    for _ in range(3):
        cluster[1].fetch_from(cluster[2])
    assert cluster[1].values() == ["a", "b"]


def test_a_wiped_follower_is_not_taken_for_the_replica_it_was() -> None:
    """It fetches from 0 in its new incarnation, so the high watermark stands until the controller removes it."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster.nodes[2] = ReplicaNode(2, cluster.registered)
    cluster.publish(2)
    producer = cluster[1].produce("b")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1], flush=False)
    assert producer.outcome is None
    assert cluster[1].leading.progress[2].end_offset == 0


def test_a_follower_that_becomes_leader_counts_only_what_it_has_flushed() -> None:
    """An append without a sync may still be lost; the log is dirty, and the append counts after the next round."""
    cluster = ReplicaCluster(size=2, isr=(1, 2))
    cluster[1].produce("a", acks=1)
    cluster[2].fetch_from(cluster[1], flush=False)
    cluster[2].host.dirty.clear()
    cluster.elect(2, isr=(2,), tell=(2,))
    assert cluster[2].partition.high_watermark == 0
    cluster[2].host.flush()
    assert cluster[2].partition.high_watermark == 1


def test_a_new_leader_waits_for_a_fetch_of_its_epoch_before_it_counts_a_follower() -> None:
    """A follower's report to the old leader is no evidence for the new leader."""
    cluster = ReplicaCluster()
    cluster[1].produce("a")
    cluster.catch_up(1, 2, 3)
    cluster.elect(2, tell=(1, 2, 3))
    cluster[2].produce("b")
    cluster[2].host.flush()
    cluster[3].fetch_from(cluster[2])
    assert cluster[2].partition.high_watermark == 1
    assert cluster[2].leading.isr == CommittedIsr((1, 2, 3))
    cluster.catch_up(2, 1, 3)
    assert cluster[2].partition.high_watermark == 2
    assert isinstance(cluster[2].partition.role, LeaderRole)


def test_a_replica_that_restarts_takes_its_checkpointed_high_watermark_but_not_beyond_its_log() -> None:
    """replication-offset-checkpoint may be ahead of a log that lost its tail."""
    cluster = ReplicaCluster(size=1)
    cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[1].checkpointed = 9
    cluster[1].boot()
    assert cluster[1].partition.high_watermark == 1


def test_a_reader_gets_the_same_bytes_from_the_next_leader() -> None:
    """Records never change: a batch's bytes are as the first leader stamped them."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a", "b")
    cluster.catch_up(1, 2)
    before = cluster[1].partition.read(0, 1 << 20).records
    cluster.elect(2, tell=(1, 2))
    cluster.catch_up(2, 1)
    after = cluster[2].partition.read(0, 1 << 20).records
    assert before == after
    assert values_in(after) == ["a", "b"]


def test_a_follower_of_a_compacted_topic_asks_again_before_it_believes_in_a_hole() -> None:
    """A rotten offset looks the same without a witness: the leader checks before it sends it again."""
    cluster = ReplicaCluster(size=2)
    log = cluster[2].partition.log
    log.config = TopicConfig(cleanup_policy=("compact",))
    role = following(cluster[2])
    for shown in (stamped(4, 0), stamped(8, 0), stamped(4, 0)):
        role.append_fetched(memoryview(shown), leader_epoch=0, high_watermark=5, log_start_offset=0)
        assert log.log_end_offset == 0
    role.append_fetched(memoryview(stamped(4, 0)), leader_epoch=0, high_watermark=5, log_start_offset=0)
    assert log.log_end_offset == 5
