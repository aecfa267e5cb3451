"""Logs that lost a batch in the middle: such a replica serves no bad record, does not count, and is repaired."""

from __future__ import annotations

import pytest

from raftlog.base.errors import KafkaStorageError, NotEnoughReplicas
from raftlog.base.types import EpochEnd
from raftlog.replication.follower_role import FollowerRole
from raftlog.storage.log import Log
from tests.replication.replica_cluster import ReplicaCluster, registration, values_in

VALUES = ["a", "b", "c", "d" * 5_000, "e"]
"""Long enough that the index has an entry: a clean start only looks at what lies behind it."""


def produced(*values: str, size: int = 2) -> ReplicaCluster:
    """A cluster with a batch for each value on all nodes; the last is not committed yet everywhere."""
    cluster = ReplicaCluster(size)
    for value in values:
        cluster[1].produce(value)
    cluster.catch_up(1, *range(2, size + 1))
    assert cluster[1].partition.high_watermark == len(values)
    return cluster


def log_of(cluster: ReplicaCluster, broker_id: int) -> Log:
    return cluster[broker_id].partition.log


# -- found by a reader --------------------------------------------------------------------------------------------


def rotten_leader(size: int = 2) -> ReplicaCluster:
    """Leader 1 stopped cleanly, and its third batch rotted meanwhile."""
    cluster = produced(*VALUES, size=size)
    cluster[1].checkpointed = len(VALUES)
    cluster[1].corrupt_batch(2)
    cluster[1].reboot(clean=True)
    assert log_of(cluster, 1).damage is None
    cluster.elect(1, tell=(1, 2))
    return cluster


def test_damaged_batch_is_never_served_and_the_broker_is_notified() -> None:
    """What lies before it is; a reader of the rest gets a retriable error, not CORRUPT_MESSAGE nor an end."""
    cluster = rotten_leader()
    partition = cluster[1].partition
    whole = partition.read(0, 1 << 20)
    assert whole.error_code == KafkaStorageError.code
    assert cluster[1].host.damaged == [partition]
    assert partition.log.damage == (2, 5)
    assert partition.read(2, 1 << 20).error_code == KafkaStorageError.code
    assert partition.read(4, 1 << 20).error_code == KafkaStorageError.code
    assert values_in(partition.read(0, 1 << 20).records) == ["a", "b"]


def test_damaged_leader_takes_no_records() -> None:
    """They would follow on a hole."""
    cluster = rotten_leader()
    cluster[1].partition.read(0, 1 << 20)
    for acks in (0, 1, -1):
        with pytest.raises(KafkaStorageError):
            cluster[1].produce("f", acks=acks)


def test_damaged_leader_leaves_the_isr_as_it_is() -> None:
    """It takes in no replica that only has the rest, and drops no replica that may have all."""
    cluster = rotten_leader(size=3)
    cluster.change(isr=(1, 2))
    cluster.registered[3] = registration(3, leaving=True)
    cluster[3].fetch_from(cluster[1])
    cluster[1].partition.read(0, 1 << 20)
    cluster[1].host.clock += 60
    cluster[1].partition.maybe_shrink_isr()
    cluster.registered[3] = registration(3)
    cluster[1].partition.reevaluate_isr()
    assert cluster[1].partition.pending_isr_change() is None


def test_follower_is_not_cut_back_to_what_a_damaged_leader_has_left() -> None:
    """The only sound copy may be the follower's: it keeps it until an operator decides."""
    cluster = produced(*VALUES)
    cluster.change(isr=(1,))
    cluster[1].corrupt_batch(2)
    cluster[1].reboot()
    assert log_of(cluster, 1).log_end_offset == 2
    cluster.change(leader=1, isr=(1,), lost=True, tell=(1, 2))
    assert cluster[2].fetch_from(cluster[1]) == KafkaStorageError.code
    assert cluster[2].values() == VALUES
    with pytest.raises(KafkaStorageError):
        cluster[1].partition.epoch_end(0)


# -- handing over and repair --------------------------------------------------------------------------------------


def test_damaged_leader_that_handed_over_is_repaired_from_its_successor() -> None:
    """It cuts the bad batch and all behind it, fetches them again, and is as good as new."""
    cluster = rotten_leader()
    cluster[1].partition.read(0, 1 << 20)
    cluster.elect(2, isr=(2,), tell=(1, 2))
    assert log_of(cluster, 1).log_end_offset == 2
    cluster.catch_up(2, 1)
    assert log_of(cluster, 1).damage is None
    assert cluster[1].values() == VALUES
    assert [name for name, _ in cluster[1].host.events] == ["damaged_log_cut", "damaged_log_repaired"]
    cluster.change(isr=(1, 2), tell=(1, 2))
    cluster.elect(1, tell=(1, 2))
    cluster[1].produce("f")
    assert cluster[1].values() == [*VALUES, "f"]


def test_damage_that_recovery_found_is_refetched() -> None:
    """An unclean start: the mark is on the disk, and goes once the log is whole."""
    cluster = produced(*VALUES)
    cluster[2].corrupt_batch(1)
    cluster[2].reboot()
    assert (log_of(cluster, 2).damage, log_of(cluster, 2).log_end_offset) == ((1, 5), 1)
    cluster.change(isr=(1,), tell=(1, 2))
    cluster.catch_up(1, 2)
    cluster[2].reboot()
    assert log_of(cluster, 2).damage is None
    assert cluster[2].values() == VALUES


def test_damaged_log_is_trusted_again_when_its_leader_takes_it_into_the_isr() -> None:
    """The lost tail was never committed and the leader does not have it: being in sync is all there is."""
    cluster = produced(*VALUES)
    cluster[2].corrupt_batch(1)
    cluster[2].reboot()
    log_of(cluster, 1).truncate_to(3)
    cluster.elect(1, isr=(1,), tell=(1, 2))
    cluster.catch_up(1, 2)
    assert log_of(cluster, 2).damage == (1, 5)
    cluster.change(isr=(1, 2), tell=(1, 2))
    assert log_of(cluster, 2).damage is None
    cluster.elect(2, tell=(1, 2))
    cluster[2].produce("f")


def test_damaged_log_is_not_trusted_because_it_never_left_the_isr() -> None:
    """The controller does not know yet: it is in the ISR by what it once had."""
    cluster = produced(*VALUES)
    cluster[2].corrupt_batch(1)
    cluster[2].reboot()
    cluster.publish(2)
    cluster.elect(2, isr=(2,), tell=(2,))
    assert log_of(cluster, 2).damage == (1, 5)
    with pytest.raises(KafkaStorageError):
        cluster[2].produce("f")


def test_trust_won_back_does_not_cover_later_damage() -> None:
    """Having left the ISR for a first damage does not cover the next."""
    cluster = produced(*VALUES)
    cluster[2].corrupt_batch(1)
    cluster[2].reboot()
    cluster.change(isr=(1,), tell=(1, 2))
    cluster.catch_up(1, 2)
    cluster.change(isr=(1, 2), tell=(1, 2))
    cluster[2].corrupt_batch(3)
    # what this process wrote itself it does not check again, so another one reads it
    left = cluster[2].partition
    cluster[2].reboot(clean=True)
    left.log = log_of(cluster, 2)
    cluster[2].partition = left
    cluster.elect(2, tell=(2,))
    left.read(3, 1 << 20)
    cluster.change(isr=(2, 1), tell=(2,))
    assert log_of(cluster, 2).damage == (3, 5)


# -- the last of an ISR -------------------------------------------------------------------------------------------


def test_last_isr_member_serves_what_is_sound_and_is_loud() -> None:
    """Readable up to the damage; beyond it an error, so that no reader takes it for the end of the records."""
    cluster = produced(*VALUES, size=1)
    cluster[1].checkpointed = 5
    cluster[1].corrupt_batch(2)
    cluster[1].reboot()
    cluster.change(leader=1, lost=True, tell=(1,))
    partition = cluster[1].partition
    assert values_in(partition.read(0, 1 << 20).records) == ["a", "b"]
    assert partition.read(2, 1 << 20).error_code == KafkaStorageError.code
    assert partition.read(5, 1 << 20).error_code == KafkaStorageError.code
    assert [name for name, _ in cluster[1].host.events] == ["damaged_replica_leads"]
    with pytest.raises(NotEnoughReplicas):
        cluster[1].produce("f")
    with pytest.raises(KafkaStorageError):
        cluster[1].produce("f", acks=1)


def test_unclean_election_of_a_damaged_replica_takes_its_log_as_it_is() -> None:
    """An operator decided (KIP-460): the records are gone, and it goes on in a new leader epoch."""
    cluster = produced(*VALUES, size=1)
    cluster[1].corrupt_batch(2)
    cluster[1].reboot()
    cluster.change(leader=1, lost=True, tell=(1,))
    cluster.elect(1, tell=(1,))
    assert log_of(cluster, 1).damage is None
    cluster[1].produce("f")
    assert cluster[1].values() == ["a", "b", "f"]
    assert cluster[1].partition.epoch_end(0) == EpochEnd(0, 2)
    assert ("damaged_log_accepted", {"offset": 2, "log_end_offset": 2}) in cluster[1].host.events


def test_unclean_election_counts_even_if_the_replica_did_not_see_the_isr_lost() -> None:
    """Images may come several at a time; the election names its epoch."""
    cluster = produced(*VALUES)
    cluster[1].corrupt_batch(2)
    cluster[1].reboot()
    cluster.change(leader=1, isr=(1,), lost=True, tell=(2,))
    cluster.elect(1, tell=(1,))
    assert log_of(cluster, 1).damage is None


def test_unclean_election_of_another_lets_the_damaged_one_follow() -> None:
    """Its damage ends beyond the elected replica's log: it can only be in sync with that."""
    cluster = produced(*VALUES)
    log_of(cluster, 2).truncate_to(3)
    cluster.change(isr=(1,), tell=(1,))
    cluster[1].corrupt_batch(1)
    cluster[1].reboot()
    cluster.change(leader=1, lost=True, tell=(1, 2))
    cluster.elect(2, isr=(2,), tell=(1, 2))
    cluster[2].produce("x")
    cluster.catch_up(2, 1)
    cluster.change(isr=(2, 1), tell=(1, 2))
    assert isinstance(cluster[1].partition.role, FollowerRole)
    assert log_of(cluster, 1).damage is None
    assert cluster[1].values() == [*VALUES[:3], "x"]
