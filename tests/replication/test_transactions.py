"""Transactions at a partition's leader: markers at commit, and what another leader knows of them."""

from __future__ import annotations

import pytest

from raftlog.base.errors import InvalidTxnState, NotEnoughReplicas, NotLeaderOrFollower
from raftlog.base.types import EpochEnd
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LATEST
from raftlog.replication.replica_host import TxnMarker
from tests.replication.replica_cluster import NOW_MS, RecordingWaiter, ReplicaCluster, ReplicaNode

PRODUCER = 9


def transactional(sequence: int = -1, *, epoch: int = 0) -> bytes:
    records = [new_record(None, b"v", timestamp=NOW_MS)]
    stamp = ProducerIdAndSequence(PRODUCER, epoch, sequence)
    return build_batch(records, producer=stamp, attributes=TRANSACTIONAL_BIT)


def confirm(node: ReplicaNode) -> None:
    asked = node.partition.begin_verification(PRODUCER, 0)
    assert asked is not None
    asked.confirm()


def write(node: ReplicaNode, sequence: int) -> None:
    node.partition.append_produced(memoryview(transactional(sequence)), acks=-1, now_ms=NOW_MS)


def end(node: ReplicaNode, *, commit: bool = True) -> RecordingWaiter:
    waiting = RecordingWaiter()
    offset = node.partition.append_marker(TxnMarker(PRODUCER, 0, commit, 1), now_ms=NOW_MS)
    node.partition.await_commit(offset, waiting)
    return waiting


def test_a_marker_is_answered_when_it_is_committed_and_moves_the_last_stable_offset_then() -> None:
    """read_committed must not see what a lost tail could still abort (KIP-98)."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    leader = cluster[1]
    confirm(leader)
    write(leader, 0)
    cluster.catch_up(1, 2)
    waiting = end(leader)
    leader.host.flush()
    assert (waiting.outcome, leader.partition.last_stable_offset) == (None, 0)
    cluster.catch_up(1, 2)
    assert (waiting.outcome, leader.partition.last_stable_offset) == ("committed", 2)
    again = end(leader)
    assert (again.outcome, leader.partition.log_end_offset) == ("committed", 2)


def test_another_leader_goes_on_in_the_open_transaction_but_asks_anew_for_one_that_was_not_begun() -> None:
    """Records in the log are known to all replicas; a confirmation is known to the leader that asked."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    confirm(cluster[1])
    cluster.elect(2)
    with pytest.raises(InvalidTxnState):
        write(cluster[2], 0)
    confirm(cluster[2])
    write(cluster[2], 0)
    cluster.catch_up(2, 1)
    cluster.elect(1)
    write(cluster[1], 1)
    assert [each.last_sequence for each in cluster[2].partition.active_producers()] == [0]
    (producer,) = cluster[1].partition.active_producers()
    assert (producer.producer_id, producer.last_sequence, producer.txn_first_offset) == (PRODUCER, 1, 0)
    assert end(cluster[1]).outcome is None
    with pytest.raises(InvalidTxnState):
        write(cluster[1], 2)


def test_a_coordinators_batch_needs_a_confirmed_transaction_too() -> None:
    """Offsets in a transaction have no sequence; the marker of a transaction that they missed shuts them out."""
    cluster = ReplicaCluster(1)
    cluster.elect(1)
    leader = cluster[1]
    with pytest.raises(InvalidTxnState):
        leader.partition.append_coordinator_batch(transactional(), now_ms=NOW_MS)
    confirm(leader)
    leader.partition.append_coordinator_batch(transactional(), now_ms=NOW_MS)
    assert leader.partition.append_coordinator_batch(transactional(), now_ms=NOW_MS).base_offset == 1
    end(leader)
    with pytest.raises(InvalidTxnState):
        leader.partition.append_coordinator_batch(transactional(), now_ms=NOW_MS)


@pytest.mark.parametrize("ask", ["marker", "coordinated", "verification"])
def test_only_the_leader_takes_part(ask: str) -> None:
    """NOT_LEADER_OR_FOLLOWER: the coordinator looks for the new leader."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    follower = cluster[2].partition
    calls = {
        "marker": lambda: follower.append_marker(TxnMarker(PRODUCER, 0, True, 1), now_ms=NOW_MS),
        "coordinated": lambda: follower.append_coordinator_batch(transactional(), now_ms=NOW_MS),
        "verification": lambda: follower.begin_verification(PRODUCER, 0),
    }
    with pytest.raises(NotLeaderOrFollower):
        calls[ask]()


@pytest.mark.parametrize("what", ["marker", "coordinated"])
def test_below_min_insync_replicas_nothing_is_written(what: str) -> None:
    """Markers and offsets are acks=all; the verification of a batch that was refused stands."""
    cluster = ReplicaCluster(2, min_isr=2, isr=(1,))
    cluster.elect(1, isr=(1,))
    leader = cluster[1]
    confirm(leader)
    with pytest.raises(NotEnoughReplicas):
        if what == "marker":
            end(leader)
        else:
            leader.partition.append_coordinator_batch(transactional(), now_ms=NOW_MS)
    assert leader.partition.log_end_offset == 0
    assert leader.partition.begin_verification(PRODUCER, 0) is None


def test_what_follows_a_batch_that_was_not_verified_waits_for_it() -> None:
    """Its successor would be taken for an unknown producer's first batch; it gets the same response."""
    cluster = ReplicaCluster(1)
    cluster.elect(1)
    leader = cluster[1]
    refusal = NotEnoughReplicas("the transaction could not be verified")
    leader.partition.note_refused_batch(memoryview(transactional(0)), refusal)
    confirm(leader)
    with pytest.raises(NotEnoughReplicas, match=r"sequence 1 waits for 0, .* could not be verified"):
        write(leader, 1)
    write(leader, 0)
    write(leader, 1)


@pytest.mark.parametrize("crashes", [True, False])
def test_what_was_stable_is_stable_after_a_start_though_nothing_moves_any_more(crashes: bool) -> None:
    """Markers that are read back lie below the checkpointed high watermark: no reader may wait for the next append."""
    cluster = ReplicaCluster(1)
    cluster.elect(1)
    node = cluster[1]
    confirm(node)
    write(node, 0)
    end(node)
    node.host.flush()
    assert node.partition.last_stable_offset == 2
    node.checkpointed = 2
    if crashes:
        node.crash()
        node.boot()
    else:
        node.reboot()
    cluster.elect(1)
    node.host.flush()
    assert (node.partition.high_watermark, node.partition.last_stable_offset) == (2, 2)


def test_a_follower_that_was_cut_knows_what_is_stable() -> None:
    """Cutting an open transaction off reads the markers before it again: they are committed as before."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    leader, other = cluster[1], cluster[2]
    confirm(leader)
    write(leader, 0)
    end(leader)
    cluster.catch_up(1, 2)
    confirm(leader)
    write(leader, 1)
    other.fetch_from(leader)
    assert (other.partition.log.log_end_offset, other.partition.high_watermark) == (3, 2)
    assert isinstance(other.partition.role, FollowerRole)
    parting = EpochEnd(other.partition.log.latest_epoch, 2)
    other.partition.role.truncate_to(parting, leader_epoch=1, log_start_offset=0)
    assert (other.partition.log.log_end_offset, other.partition.last_stable_offset) == (2, 2)


def test_a_marker_that_is_there_already_voids_what_was_confirmed_and_is_answered_at_its_commit() -> None:
    """The question may be older than the marker; and its first copy may not be committed yet."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    leader = cluster[1]
    confirm(leader)
    write(leader, 0)
    assert end(leader).outcome is None
    confirm(leader)
    again = end(leader)
    assert (again.outcome, leader.partition.log_end_offset) == (None, 2)
    with pytest.raises(InvalidTxnState):
        write(leader, 1)
    cluster.catch_up(1, 2)
    assert again.outcome == "committed"


def test_a_leader_that_comes_back_asks_anew() -> None:
    """The transaction may have been ended by the leader in between."""
    cluster = ReplicaCluster(2)
    cluster.elect(1)
    confirm(cluster[1])
    cluster.elect(2)
    cluster.elect(1)
    with pytest.raises(InvalidTxnState):
        write(cluster[1], 0)


def test_the_last_stable_offset_is_never_before_the_log_start() -> None:
    """DeleteRecords may pass the beginning of an open transaction (KIP-107, KIP-98).

    A consumer that begins at the latest offset must find it in the log, and then reads what follows.
    """
    cluster = ReplicaCluster(1)
    cluster.elect(1)
    leader = cluster[1]
    confirm(leader)
    for sequence in range(3):
        write(leader, sequence)
    leader.host.flush()
    partition = leader.partition
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 0)
    assert partition.delete_records(2) == 2
    assert partition.last_stable_offset == 2
    latest = partition.offset_for_timestamp(LATEST, read_committed=True)
    assert latest is not None and latest[0] == 2
    read = partition.read(2, 1000, read_committed=True)
    assert (read.error_code, read.log_start_offset, read.last_stable_offset, read.records) == (0, 2, 2, b"")
    partition.delete_records(-1)
    assert partition.last_stable_offset == partition.log_start_offset == 3
    write(leader, 3)
    leader.host.flush()
    assert partition.last_stable_offset == 3
    end(leader)
    leader.host.flush()
    assert partition.last_stable_offset == partition.high_watermark == 5
