"""A follower cuts no committed records for a leader that lacks them, unless the metadata says that they may be lost."""

from __future__ import annotations

import pytest

from raftlog.base.errors import KafkaStorageError
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.role import FailedRole
from tests.replication.replica_cluster import ReplicaCluster


def with_an_older_leader(cluster: ReplicaCluster) -> None:
    """Node 1 leads with a copy of its disk on which the record "b" is missing, which both had committed."""
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    copied = cluster[1].disk.snapshot()
    cluster[1].produce("b")
    cluster.catch_up(1, 2)
    assert cluster[2].consume() == ["a", "b"]
    cluster[1].disk.restore(copied, "/data")
    cluster[1].boot()
    cluster.elect(1, tell=(1, 2))


def test_a_follower_stops_rather_than_cut_committed_records() -> None:
    """It keeps all, says why, reports itself, and answers readers with KAFKA_STORAGE_ERROR."""
    cluster = ReplicaCluster(size=2)
    with_an_older_leader(cluster)
    with pytest.raises(KafkaStorageError, match="leader 1 lacks committed records from offset 1 to 1"):
        cluster[2].fetch_from(cluster[1])
    partition = cluster[2].partition
    assert cluster[2].values() == ["a", "b"]
    assert partition.failure == "leader 1 lacks committed records from offset 1 to 1"
    assert cluster[2].host.damaged == [partition]
    assert [event for event, _ in cluster[2].host.events][-1] == "replica_failed"
    assert partition.read(0, 1000).error_code == KafkaStorageError.code


def test_a_replica_that_stopped_leads_once_it_is_elected() -> None:
    """Its records are the acknowledged records, and the older copy follows it."""
    cluster = ReplicaCluster(size=2)
    with_an_older_leader(cluster)
    with pytest.raises(KafkaStorageError):
        cluster[2].fetch_from(cluster[1])
    cluster.change(isr=(1,), tell=(1, 2))
    assert isinstance(cluster[2].partition.role, FailedRole), "the same leader epoch gives no other role"
    cluster.elect(2, isr=(2,), tell=(1, 2))
    assert cluster[2].partition.failure is None
    cluster.catch_up(2, 1)
    assert cluster[1].values() == cluster[2].consume() == ["a", "b"]


def test_a_replica_that_stopped_looks_again_at_each_leader() -> None:
    """The next leader may have everything; this leader has not."""
    cluster = ReplicaCluster(isr=(1, 2))
    with_an_older_leader(cluster)
    with pytest.raises(KafkaStorageError):
        cluster[2].fetch_from(cluster[1])
    cluster.change(isr=(1, 3))
    cluster.elect(3, tell=(2, 3))
    with pytest.raises(KafkaStorageError):
        cluster[2].fetch_from(cluster[3])
    assert "leader 3" in (cluster[2].partition.failure or "")


def test_what_an_unclean_election_gave_up_is_cut() -> None:
    """An operator asked for it, and the log says so."""
    cluster = ReplicaCluster(size=2)
    with_an_older_leader(cluster)
    cluster.change(isr=(2,), tell=(1, 2))
    cluster.elect(1, isr=(1,), tell=(1, 2))
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].values() == ["a"]
    assert cluster[2].partition.failure is None
    assert "committed_records_truncated" in [event for event, _ in cluster[2].host.events]


def test_an_unclean_election_excuses_no_later_records() -> None:
    """Records that were committed after it are cut for a later unclean election alone."""
    cluster = ReplicaCluster(size=2, isr=(2,))
    cluster.elect(1, isr=(1,), tell=(1, 2))
    cluster.change(isr=(1, 2), tell=(1, 2))
    with_an_older_leader(cluster)
    with pytest.raises(KafkaStorageError):
        cluster[2].fetch_from(cluster[1])
    assert cluster[2].values() == ["a", "b"]


def test_what_is_not_committed_is_cut_as_ever() -> None:
    """Only the high watermark makes a difference."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].produce("lost", acks=1)
    cluster.elect(2, tell=(1, 2))
    cluster[2].produce("b")
    cluster.catch_up(2, 1)
    assert cluster[1].values() == ["a", "b"]


def test_with_syncs_left_to_the_kernel_committed_records_are_cut() -> None:
    """Kafka's contract: a power cut of the leader may take what was acknowledged (log.flush.policy=os)."""
    cluster = ReplicaCluster(size=2)
    with_an_older_leader(cluster)
    cluster[2].host.flush_before_commit = False
    cluster[2].fetch_from(cluster[1])
    assert cluster[2].values() == ["a"]


def test_a_follower_does_not_begin_anew_before_its_committed_end() -> None:
    """A leader with a log elsewhere altogether: its response would drop everything."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a", "b")
    cluster.catch_up(1, 2)
    role = cluster[2].partition.role
    assert isinstance(role, FollowerRole)
    with pytest.raises(KafkaStorageError, match="from offset 1 to 1"):
        role.restart_at(1, leader_epoch=0)
    assert cluster[2].values() == ["a", "b"]


def test_a_follower_far_behind_begins_anew_at_its_leaders_start() -> None:
    """The records between have expired there, so none of them is lost by that."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a", "b")
    cluster.catch_up(1, 2)
    role = cluster[2].partition.role
    assert isinstance(role, FollowerRole)
    role.restart_at(7, leader_epoch=0)
    assert cluster[2].partition.high_watermark == 7


def test_a_checkpoint_of_what_was_cut_is_not_believed() -> None:
    """The records that come after an unclean cut are not committed, whatever the checkpoint says of their offsets."""
    cluster = ReplicaCluster(size=2)
    with_an_older_leader(cluster)
    cluster[2].checkpointed = cluster[2].partition.high_watermark
    cluster.change(isr=(2,), tell=(1, 2))
    cluster.elect(1, isr=(1,), tell=(1, 2))
    cluster[2].fetch_from(cluster[1])
    cluster[1].produce("c")
    cluster[2].fetch_from(cluster[1])
    cluster[2].crash()
    cluster[2].boot()
    assert cluster[2].values() == ["a", "c"]
    assert (cluster[2].checkpointed, cluster[2].partition.high_watermark) == (2, 1)
