"""The leader's side: commits, refusals, and the ISR."""

from __future__ import annotations

import errno

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import (
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from raftlog.metadata.broker_requests import IsrChangeResult
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.compression import ZSTD
from raftlog.records.validation import NeedsStepwiseValidation
from raftlog.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import ReplicaId
from raftlog.storage.producers import LogAppendInfo
from tests.records.forged_batches import claiming, with_payload
from tests.replication.replica_cluster import (
    NOW_MS,
    RecordingWaiter,
    ReplicaCluster,
    registration,
    values_in,
)


def answer(cluster: ReplicaCluster, leader: int, **fields: object) -> bool:
    """Give the leader the controller's answer to what it proposed; success unless `error_code` is set."""
    partition = cluster[leader].partition
    change = partition.pending_isr_change()
    assert change is not None
    accepted = {
        "topic_id": change.topic_id,
        "partition": 0,
        "error_code": 0,
        "leader": leader,
        "leader_epoch": change.leader_epoch,
        "isr": tuple(member.broker_id for member in change.isr),
        "partition_epoch": change.partition_epoch + 1,
    }
    return partition.complete_isr_change(change, IsrChangeResult(**{**accepted, **fields}))


# -- what is appended --------------------------------------------------------------------------------------------


def test_a_batch_is_appended_only_if_it_can_hold_what_it_claims() -> None:
    """61 bytes that claim 2^31-1 records once took that many offsets; compressed batches are walked first."""
    partition = ReplicaCluster(size=1)[1].partition

    def produce(batch: bytes, *, max_timestamp: int | None = None) -> int:
        appended = partition.append_produced(
            memoryview(batch), acks=1, now_ms=NOW_MS, max_timestamp=max_timestamp
        )
        return appended.end_offset

    with pytest.raises(InvalidRecord, match="0 bytes cannot hold 2147483647 records"):
        produce(claiming(2**31 - 1, timestamp=NOW_MS))
    honest = build_batch([new_record(None, None, timestamp=NOW_MS)] * 5_000, codec=ZSTD)
    with pytest.raises(NeedsStepwiseValidation):
        produce(honest)
    assert partition.log_end_offset == 0
    assert produce(honest, max_timestamp=NOW_MS) == 5_000
    with pytest.raises(InvalidRecord, match="the batch has 1 records, but its header claims 150"):
        one = build_batch([new_record(None, None, timestamp=NOW_MS)], codec=ZSTD)
        produce(with_payload(one, one[61:], codec=ZSTD, count=150))
    assert partition.log_end_offset == 5_000


def test_times_outside_the_window_are_refused() -> None:
    """message.timestamp.after.max.ms and before.max.ms bound CreateTime (KIP-937); -1 is no timestamp at all."""
    partition = ReplicaCluster(size=1)[1].partition
    partition.configure(TopicConfig(message_timestamp_after_max_ms=10, message_timestamp_before_max_ms=20))
    for timestamp in (NOW_MS + 11, NOW_MS - 21):
        with pytest.raises(InvalidTimestamp):
            produce_at(partition, timestamp)
    for timestamp in (NOW_MS + 10, NOW_MS - 20, -1):
        produce_at(partition, timestamp)
    assert partition.log_end_offset == 3


def test_a_retry_is_answered_though_its_timestamps_are_out_of_range_by_now() -> None:
    """It was acknowledged within the window, and refusing it would have its client drop what is in the log."""
    partition = ReplicaCluster(size=1)[1].partition
    partition.configure(TopicConfig(message_timestamp_before_max_ms=20))
    first = produce_at(partition, NOW_MS, producer=(5, 0, 0))
    retry = produce_at(partition, NOW_MS, producer=(5, 0, 0), now_ms=NOW_MS + 21)
    assert retry.duplicate and retry.base_offset == first.base_offset
    with pytest.raises(InvalidTimestamp):
        produce_at(partition, NOW_MS, producer=(5, 0, 1), now_ms=NOW_MS + 21)


def produce_at(
    partition: Partition,
    timestamp: int,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    now_ms: int = NOW_MS,
) -> LogAppendInfo:
    """Produce a record of that time."""
    record = new_record(None, b"v", timestamp=timestamp)
    records = build_batch([record], producer=ProducerIdAndSequence(*producer))
    return partition.append_produced(memoryview(records), acks=1, now_ms=now_ms)


# -- the high watermark -------------------------------------------------------------------------------------------


def test_a_record_commits_once_every_isr_member_has_flushed_it() -> None:
    """HW = least flushed end offset over the ISR, the leader's own included (KIP-98; durable before acknowledged)."""
    cluster = ReplicaCluster()
    producer = cluster[1].produce("a")
    cluster[2].fetch_from(cluster[1])
    cluster[2].fetch_from(cluster[1])
    cluster[3].fetch_from(cluster[1])
    cluster[1].host.flush()
    assert producer.outcome is None
    cluster[3].fetch_from(cluster[1])
    assert producer.outcome == "committed"
    assert cluster[1].partition.high_watermark == 1


def test_the_leaders_own_unflushed_records_do_not_count() -> None:
    """Both followers have it on disk, the leader only in memory: not committed until its own sync."""
    cluster = ReplicaCluster()
    producer = cluster[1].produce("a")
    for each in (2, 3, 2, 3):
        cluster[each].fetch_from(cluster[1])
    assert producer.outcome is None
    cluster[1].host.flush()
    assert producer.outcome == "committed"


def test_under_flush_policy_os_what_is_written_counts_at_once() -> None:
    """log.flush.policy=os is Kafka's contract: the page cache counts."""
    cluster = ReplicaCluster(size=1)
    cluster[1].host.flush_before_commit = False
    assert cluster[1].produce("a").outcome == "committed"


def test_under_flush_policy_os_a_sync_takes_nothing_back_that_was_written_meanwhile() -> None:
    """The sync was begun before the second record was written, and ends after it: both count."""
    cluster = ReplicaCluster(size=2)
    leader = cluster[1]
    for each in (1, 2):
        cluster[each].host.flush_before_commit = False
    leader.produce("a")
    ticket = leader.partition.log.begin_flush()
    assert ticket is not None
    second = leader.produce("b")
    ticket.run()
    leader.partition.log.complete_flush(ticket)
    leader.partition.note_flushed(leader.partition.log.flushed_end_offset)
    for _ in range(2):
        cluster[2].fetch_from(leader)
    assert (second.outcome, leader.partition.high_watermark) == ("committed", 2)


def test_a_replica_outside_the_isr_is_not_waited_for() -> None:
    """Only ISR members gate the high watermark."""
    cluster = ReplicaCluster(isr=(1, 2))
    producer = cluster[1].produce("a")
    cluster.catch_up(1, 2)
    assert producer.outcome == "committed"


def test_the_high_watermark_never_moves_back() -> None:
    """A follower that comes back with less does not lower it (KIP-207)."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].partition.read(0, 1 << 20, replica=cluster[2].replica)
    assert cluster[1].partition.high_watermark == 1


def test_a_fetch_that_is_read_for_again_proves_nothing_new() -> None:
    """It has said what it has flushed when it came, and has only waited since (Kafka: DelayedFetch)."""
    cluster = ReplicaCluster(size=2)
    producer = cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[1].partition.read(1, 1 << 20, replica=cluster[2].replica, is_new=False)
    assert producer.outcome is None
    cluster[1].partition.read(1, 1 << 20, replica=cluster[2].replica)
    assert producer.outcome == "committed"


def test_waiting_producers_are_answered_in_order_and_only_up_to_the_high_watermark() -> None:
    """The deque is popped by the high watermark."""
    cluster = ReplicaCluster(size=2)
    first = cluster[1].produce("a", "b")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    second = cluster[1].produce("c")
    cluster[2].fetch_from(cluster[1])
    assert (first.outcome, second.outcome) == ("committed", None)


def test_a_duplicate_waits_for_the_commit_of_its_original() -> None:
    """Answering a retry earlier would acknowledge what may still be lost (KIP-98)."""
    cluster = ReplicaCluster(size=2)
    original = cluster[1].produce("a", producer=(5, 0, 0))
    later = cluster[1].produce("b", producer=(5, 0, 1))
    retry = cluster[1].produce("a", producer=(5, 0, 0))
    assert cluster[1].partition.log_end_offset == 2
    assert retry.outcome is None
    cluster[1].host.flush()
    cluster[1].partition.read(1, 1 << 20, replica=cluster[2].replica)
    assert (original.outcome, retry.outcome, later.outcome) == ("committed", "committed", None)
    assert cluster[1].produce("a", producer=(5, 0, 0)).outcome == "committed"


# -- min.insync.replicas ------------------------------------------------------------------------------------------


def test_below_min_isr_acks_all_is_refused_before_the_append_and_acks_1_is_not() -> None:
    """NOT_ENOUGH_REPLICAS leaves no record in the log."""
    cluster = ReplicaCluster(min_isr=2, isr=(1,))
    with pytest.raises(NotEnoughReplicas):
        cluster[1].produce("a")
    assert cluster[1].partition.log_end_offset == 0
    cluster[1].produce("b", acks=1)
    assert cluster[1].partition.log_end_offset == 1


def test_replicas_that_are_being_added_make_no_demands_yet() -> None:
    """With min.insync.replicas=2 a lone replica serves on while others are added, and then needs another in sync."""
    cluster = ReplicaCluster(min_isr=2, isr=(1,))
    cluster.change(adding=(2, 3), tell=(1,))
    cluster[1].produce("a")
    cluster[1].host.flush()
    assert cluster[1].partition.high_watermark == 1
    cluster.change(tell=(1,))
    with pytest.raises(NotEnoughReplicas):
        cluster[1].produce("b")


def test_below_min_isr_the_high_watermark_stands_still() -> None:
    """KIP-966: one replica's copy is not a commit when two are asked for."""
    cluster = ReplicaCluster(min_isr=2, isr=(1,))
    cluster[1].produce("a", acks=1)
    cluster[1].host.flush()
    assert cluster[1].partition.high_watermark == 0


def test_waiting_producers_get_an_error_at_once_when_the_isr_falls_below_the_minimum() -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND, without waiting for the request's timeout."""
    cluster = ReplicaCluster(min_isr=2)
    producer = cluster[1].produce("a")
    cluster.change(isr=(1,), tell=(1,))
    assert isinstance(producer.outcome, NotEnoughReplicasAfterAppend)
    cluster[1].host.flush()
    assert cluster[1].partition.high_watermark == 0


def test_what_stood_below_the_minimum_commits_when_the_isr_grows_again() -> None:
    """The record stayed in the log; it is not lost."""
    cluster = ReplicaCluster(size=2, min_isr=2)
    cluster[1].produce("a")
    cluster.change(isr=(1,), tell=(1,))
    cluster.catch_up(1, 2)
    assert cluster[1].partition.high_watermark == 0
    answer(cluster, 1)
    assert cluster[1].partition.high_watermark == 1


def test_min_isr_above_the_replication_factor_means_all_replicas() -> None:
    """Kafka's effective min ISR: min(min.insync.replicas, replicas)."""
    cluster = ReplicaCluster(size=1, min_isr=2)
    producer = cluster[1].produce("a")
    cluster[1].host.flush()
    assert producer.outcome == "committed"


# -- the ISR ------------------------------------------------------------------------------------------------------


def test_a_follower_joins_at_the_high_watermark_and_counts_while_the_change_is_pending() -> None:
    """Maximal ISR (KIP-497): the controller may have taken it in before we hear of it."""
    cluster = ReplicaCluster(isr=(1,))
    cluster.catch_up(1, 2)
    assert cluster[1].leading.isr == PendingExpand((1,), 2)
    producer = cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[1].host.clock += 60
    cluster[1].partition.maybe_shrink_isr()
    assert producer.outcome is None
    cluster.catch_up(1, 2)
    assert producer.outcome == "committed"


def test_a_follower_below_the_high_watermark_does_not_join() -> None:
    """It would be electable and lack committed records."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1], flush=False)
    assert cluster[1].leading.isr == CommittedIsr((1,))


def test_a_follower_before_the_start_of_this_epoch_does_not_join() -> None:
    """It may be past the high watermark and yet not have what this leader took over."""
    cluster = ReplicaCluster(isr=(1, 2))
    cluster[1].produce("a", acks=1)
    cluster[2].fetch_from(cluster[1])
    cluster.elect(2, isr=(2, 1), tell=(2, 3))
    assert cluster[2].leading.epoch_start_offset == 1
    cluster[3].fetch_from(cluster[2])
    assert cluster[2].leading.isr == CommittedIsr((2, 1))
    cluster[3].fetch_from(cluster[2])
    assert cluster[2].leading.isr == PendingExpand((2, 1), 3)


@pytest.mark.parametrize(
    "broker",
    [registration(2, fenced=True), registration(2, leaving=True), registration(2, epoch=11), None],
    ids=["fenced", "shutting down", "another incarnation", "unregistered"],
)
def test_an_ineligible_follower_does_not_join(broker: object) -> None:
    """KIP-841: neither fenced nor in controlled shutdown. KIP-903: the incarnation that fetched."""
    cluster = ReplicaCluster(isr=(1,))
    fetched_as = cluster[2].replica
    cluster.registered.pop(2)
    if broker is not None:
        cluster.registered[2] = broker  # type: ignore[assignment]
    cluster[1].partition.read(0, 1 << 20, replica=fetched_as)
    assert cluster[1].leading.isr == CommittedIsr((1,))


def test_an_idle_follower_joins_when_it_becomes_eligible() -> None:
    """Fetch sessions do not name an idle partition again, so the image's change must be enough."""
    cluster = ReplicaCluster(isr=(1,))
    cluster.registered[2] = registration(2, fenced=True)
    cluster[2].fetch_from(cluster[1])
    assert cluster[1].leading.isr == CommittedIsr((1,))
    cluster.registered[2] = registration(2)
    cluster[1].partition.reevaluate_isr()
    assert cluster[1].leading.isr == PendingExpand((1,), 2)


def test_an_earlier_incarnations_fetch_is_refused() -> None:
    """KIP-903: broker epochs only grow."""
    cluster = ReplicaCluster()
    cluster[1].partition.read(0, 1 << 20, replica=ReplicaId(2, 12))
    read = cluster[1].partition.read(0, 1 << 20, replica=ReplicaId(2, 10))
    assert read.error_code == NotLeaderOrFollower.code


def test_a_broker_that_is_no_replica_moves_nothing() -> None:
    """Only replicas of the partition have progress."""
    cluster = ReplicaCluster(size=2)
    read = cluster[1].partition.read(0, 1 << 20, replica=ReplicaId(9, 1))
    assert read.error_code == NotLeaderOrFollower.code


def test_the_next_follower_is_proposed_once_the_one_before_is_committed() -> None:
    """One change at a time, none forgotten."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[2].fetch_from(cluster[1])
    cluster[3].fetch_from(cluster[1])
    assert cluster[1].leading.isr == PendingExpand((1,), 2)
    answer(cluster, 1)
    assert cluster[1].leading.isr == PendingExpand((1, 2), 3)
    answer(cluster, 1)
    assert cluster[1].leading.isr == CommittedIsr((1, 2, 3))


def test_the_proposal_names_the_epochs_that_the_members_fetched_with() -> None:
    """KIP-903: -1 where the member has not fetched in this epoch."""
    cluster = ReplicaCluster(isr=(1, 3))
    cluster[2].fetch_from(cluster[1])
    change = cluster[1].partition.pending_isr_change()
    assert change is not None
    assert [
        tuple(member.broker_id for member in change.isr),
        change.leader_epoch,
        change.partition_epoch,
    ] == [
        (1, 3, 2),
        0,
        0,
    ]
    assert [member.broker_epoch for member in change.isr] == [10, -1, 10]


def test_a_proposal_that_is_sent_again_still_names_the_life_that_proved_it() -> None:
    """KIP-903: a replica that came back with an empty disk meanwhile has no proof (simulated: wiped, seed 1015)."""
    cluster = ReplicaCluster(isr=(1, 3))
    cluster[2].fetch_from(cluster[1])
    partition = cluster[1].partition
    partition.read(0, 1 << 20, replica=ReplicaId(2, 12))
    change = partition.pending_isr_change()
    assert change is not None
    assert {member.broker_id: member.broker_epoch for member in change.isr}[2] == 10


def test_a_laggard_leaves_after_the_lag_time_and_counts_until_that_is_committed() -> None:
    """replica.lag.time.max.ms; a pending shrink still waits for the old member (KIP-497)."""
    cluster = ReplicaCluster(size=2)
    cluster.catch_up(1, 2)
    producer = cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[1].host.clock += 4.9
    cluster[1].partition.maybe_shrink_isr()
    assert cluster[1].leading.isr == CommittedIsr((1, 2))
    cluster[1].host.clock += 0.2
    cluster[1].partition.maybe_shrink_isr()
    assert cluster[1].leading.isr == PendingShrink((1, 2), frozenset({2}))
    assert producer.outcome is None
    answer(cluster, 1)
    assert producer.outcome == "committed"


def test_an_idle_partitions_follower_stays_however_long_ago_it_fetched() -> None:
    """It has everything; the lag clock starts with the first append after that."""
    cluster = ReplicaCluster(size=2)
    cluster.catch_up(1, 2)
    cluster[1].host.clock += 3600
    cluster[1].produce("a")
    cluster[1].partition.maybe_shrink_isr()
    assert cluster[1].leading.isr == CommittedIsr((1, 2))


def test_a_follower_that_chases_a_busy_leader_stays() -> None:
    """Always one fetch behind, but each fetch reaches the log end of the fetch before: caught up (Kafka's rule)."""
    cluster = ReplicaCluster(size=2)
    for _ in range(20):
        cluster[1].produce("a")
        cluster[2].fetch_from(cluster[1])
        cluster[1].produce("b")
        cluster[1].host.clock += 1
        cluster[1].partition.maybe_shrink_isr()
    assert cluster[1].leading.isr == CommittedIsr((1, 2))


def test_a_chasing_follower_outside_the_isr_holds_the_high_watermark_until_it_joins() -> None:
    """Otherwise it would never reach a high watermark that runs ahead of each of its fetches."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster[1].produce("a")
    cluster[1].host.flush()
    for _ in range(3):
        cluster[2].fetch_from(cluster[1])
        cluster[1].produce("b")
        cluster[1].host.flush()
    assert cluster[1].leading.isr == PendingExpand((1,), 2)


def test_a_follower_that_comes_back_far_behind_does_not_hold_the_high_watermark() -> None:
    """Killed, restarted within the lag time, and a gap to catch up: commits go on meanwhile."""
    cluster = ReplicaCluster(size=2)
    cluster.catch_up(1, 2)
    cluster.registered[2] = registration(2, epoch=11)
    cluster.change(isr=(1,), tell=(1,))
    for _ in range(3):
        cluster[1].produce("a")
    cluster[1].host.flush()
    assert cluster[1].partition.high_watermark == 3
    cluster[2].fetch_from(cluster[1], max_bytes=1)
    producer = cluster[1].produce("b")
    cluster[1].host.flush()
    assert producer.outcome == "committed"


def test_a_stalled_joiner_holds_the_high_watermark_only_for_the_lag_time() -> None:
    """A follower outside the ISR may slow commits down for replica.lag.time.max.ms at most."""
    cluster = ReplicaCluster(size=2, isr=(1,))
    cluster.catch_up(1, 2)
    answer(cluster, 1, error_code=107)
    cluster.registered[2] = registration(2, leaving=True)
    producer = cluster[1].produce("a")
    cluster[1].host.flush()
    assert producer.outcome == "committed"
    cluster.registered[2] = registration(2)
    producer = cluster[1].produce("b")
    cluster[1].host.flush()
    cluster[1].host.clock += 6
    cluster[1].partition.maybe_shrink_isr()
    assert producer.outcome == "committed"


@pytest.mark.parametrize(
    ("code", "again"), [(7, True), (41, True), (77, True), (95, False), (74, False), (3, False)]
)
def test_a_proposal_with_an_unsure_or_overtaken_answer_goes_on_counting(code: int, again: bool) -> None:
    """Retried while its outcome is unknown; when overtaken, the image will show it (KIP-497)."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[2].fetch_from(cluster[1])
    assert answer(cluster, 1, error_code=code) is again
    assert cluster[1].leading.isr == PendingExpand((1,), 2)


@pytest.mark.parametrize("code", [107, 55])
def test_a_refused_proposal_is_taken_back(code: int) -> None:
    """INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED: it did not happen."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[2].fetch_from(cluster[1])
    assert answer(cluster, 1, error_code=code) is False
    assert cluster[1].leading.isr == CommittedIsr((1,))


def test_an_answer_that_the_image_outran_changes_nothing() -> None:
    """The image already holds a later partition epoch."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[2].fetch_from(cluster[1])
    partition = cluster[1].partition
    change = partition.pending_isr_change()
    assert change is not None
    cluster.change(isr=(1, 2, 3), tell=(1,))
    late = IsrChangeResult(change.topic_id, 0, 0, 1, 0, (1, 2), 1)
    assert partition.complete_isr_change(change, late) is False
    assert cluster[1].leading.isr == CommittedIsr((1, 2, 3))


def test_an_image_older_than_the_answer_changes_nothing() -> None:
    """The answer came first; the image of the same partition epoch follows."""
    cluster = ReplicaCluster(isr=(1,))
    cluster[2].fetch_from(cluster[1])
    answer(cluster, 1)
    cluster.publish(1)
    assert cluster[1].leading.isr == CommittedIsr((1, 2))


# -- reading ------------------------------------------------------------------------------------------------------


def test_consumers_see_what_is_committed_and_replicas_everything() -> None:
    """Between high watermark and log end the answer is empty, never OFFSET_OUT_OF_RANGE."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].produce("b")
    partition = cluster[1].partition
    assert values_in(partition.read(0, 1 << 20).records) == ["a"]
    for offset in (1, 2):
        read = partition.read(offset, 1 << 20)
        assert (read.error_code, read.records, read.high_watermark) == (0, b"", 1)
    assert partition.read(3, 1 << 20).error_code == OffsetOutOfRange.code
    assert values_in(partition.read(0, 1 << 20, replica=cluster[2].replica).records) == ["a", "b"]


def test_fetches_are_fenced_by_leader_epoch() -> None:
    """KIP-320: an older epoch is fenced, a newer epoch is not known yet."""
    cluster = ReplicaCluster()
    cluster.elect(2)
    cluster.elect(1, tell=(1,))
    partition = cluster[1].partition
    assert partition.read(0, 100, current_leader_epoch=1).error_code == FencedLeaderEpoch.code
    assert partition.read(0, 100, current_leader_epoch=2).error_code == 0
    assert partition.read(0, 100, current_leader_epoch=3).error_code == UnknownLeaderEpoch.code
    for older in (0, -2):
        with pytest.raises(FencedLeaderEpoch):
            partition.offset_for_timestamp(-1, current_leader_epoch=older)
    with pytest.raises(UnknownLeaderEpoch):
        partition.epoch_end(0, current_leader_epoch=3)


def test_the_start_of_an_empty_log_is_of_the_leaders_epoch() -> None:
    """ListOffsets -2, as Kafka's leaders note their epoch before its first record."""
    cluster = ReplicaCluster()
    cluster.elect(2)
    cluster.elect(1)
    assert cluster[1].partition.offset_for_timestamp(-2) == (0, -1, 2)


def test_a_new_leader_has_what_was_read_though_its_high_watermark_lags() -> None:
    """KIP-320: consumers go back to their reset policy if an epoch that they read in is unknown or ends too early."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].produce("b")
    cluster[2].fetch_from(cluster[1])
    cluster.elect(2)
    partition = cluster[2].partition
    assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
    assert partition.read(2, 1 << 20, current_leader_epoch=1).error_code == 0
    assert partition.epoch_end(0, current_leader_epoch=1) == (0, 2)
    assert partition.epoch_end(1, current_leader_epoch=1) == (1, 2), (
        "its own, in which nothing is written yet"
    )
    assert partition.epoch_end(2, current_leader_epoch=1) == (-1, -1), "nobody led in that"
    cluster.elect(2, tell=(2,))
    assert partition.epoch_end(1, current_leader_epoch=2) == (0, 2), (
        "nothing was written in 1: the one before it"
    )


def test_a_reader_that_diverged_from_the_leader_learns_where() -> None:
    """KIP-595/KIP-320: the diverging epoch comes instead of records, and the fetch is no evidence."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster.elect(2)
    cluster.elect(1, tell=(1, 2))
    cluster[1].produce("b")
    read = cluster[1].partition.read(5, 1 << 20, last_fetched_epoch=0, replica=cluster[2].replica)
    assert (read.error_code, read.records, read.diverging) == (0, b"", (0, 1))
    assert cluster[1].leading.progress[2].end_offset == -1


def test_a_deletion_is_woken_when_a_followers_log_start_moves_and_when_the_role_changes() -> None:
    """KIP-107: it waits for the low watermark. A fetch with the same start again wakes no waiter."""
    cluster = ReplicaCluster(size=2)
    partition, wakes = cluster[1].partition, list[int]()
    partition.low_watermark_waiters = (lambda: wakes.append(partition.leader_epoch),)
    for start in (5, 5, 6):
        partition.note_log_start(cluster[2].replica, start)
    assert len(wakes) == 2
    cluster.elect(2)
    assert wakes[2:] == [partition.leader_epoch]
    partition.go_offline()
    assert len(wakes) == 4


def test_latest_offset_is_not_returned_before_the_new_leader_committed_its_start() -> None:
    """KIP-207: else ListOffsets(latest) would go back after an election."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster[1].host.flush()
    cluster[2].fetch_from(cluster[1])
    cluster[2].fetch_from(cluster[1])
    cluster.elect(2, tell=(1, 2))
    assert cluster[2].partition.high_watermark == 1
    cluster[2].produce("b", acks=1)
    cluster.elect(1, isr=(1,))
    cluster.elect(2, isr=(2, 1), tell=(1, 2))
    assert cluster[2].leading.epoch_start_offset == 2
    with pytest.raises(OffsetNotAvailable):
        cluster[2].partition.offset_for_timestamp(-1)
    with pytest.raises(OffsetNotAvailable):
        cluster[2].partition.offset_for_timestamp(cluster_time_ahead())
    assert cluster[2].partition.offset_for_timestamp(-2) == (0, -1, 0)
    cluster.catch_up(2, 1)
    assert cluster[2].partition.offset_for_timestamp(-1) == (2, -1, 3)


def cluster_time_ahead() -> int:
    return 1 << 60


def test_offsets_by_timestamp_stay_below_the_high_watermark() -> None:
    """A record that is not committed is not found."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    assert cluster[1].partition.offset_for_timestamp(0) is None
    assert cluster[1].partition.offset_for_timestamp(-3) is None
    cluster.catch_up(1, 2)
    found = cluster[1].partition.offset_for_timestamp(0)
    assert found is not None and found[0] == 0
    assert cluster[1].partition.offset_for_timestamp(-4) == (0, -1, 0)
    assert cluster[1].partition.offset_for_timestamp(-5) is None


def test_delete_records_moves_the_log_start_up_to_the_high_watermark() -> None:
    """-1 means the high watermark; records beyond it may not be deleted."""
    cluster = ReplicaCluster(size=2)
    cluster[1].produce("a")
    cluster.catch_up(1, 2)
    cluster[1].produce("b")
    with pytest.raises(OffsetOutOfRange):
        cluster[1].partition.delete_records(2)
    assert cluster[1].partition.delete_records(-1) == 1
    assert cluster[1].partition.read(0, 100).error_code == OffsetOutOfRange.code


# -- waiting and roles --------------------------------------------------------------------------------------------


def test_consumers_are_woken_once_however_often_the_high_watermark_moved() -> None:
    """One wake-up per loop iteration; a follower's session takes note of each append, and of the high watermark."""
    cluster = ReplicaCluster(size=2)
    partition = cluster[1].partition
    consumer, follower = RecordingWaiter(), RecordingWaiter()
    partition.park(consumer)
    partition.park_replica(follower)
    cluster[1].produce("a")
    cluster[1].produce("b")
    cluster[1].host.wake()
    assert (consumer.wakes, follower.wakes) == (0, 2)
    cluster[1].host.flush()
    for offset in (1, 2):
        partition.read(offset, 1 << 20, replica=cluster[2].replica)
    cluster[1].host.wake()
    assert (consumer.wakes, follower.wakes, follower.high_watermark_moves) == (1, 2, 2)
    partition.unpark(consumer)
    partition.unpark(follower)
    cluster[1].produce("c")
    assert cluster[1].host.told == []


def test_losing_the_leadership_answers_all_waiters() -> None:
    """NOT_LEADER_OR_FOLLOWER to producers; fetches are woken and read the error."""
    cluster = ReplicaCluster()
    producer, consumer = cluster[1].produce("a"), RecordingWaiter()
    cluster[1].partition.park(consumer)
    cluster.elect(2, tell=(1,))
    cluster[1].host.wake()
    assert isinstance(producer.outcome, NotLeaderOrFollower)
    assert consumer.wakes == 1
    assert cluster[1].partition.read(0, 100).error_code == NotLeaderOrFollower.code
    with pytest.raises(NotLeaderOrFollower):
        cluster[1].produce("b")


def test_a_removed_replica_knows_nothing_any_more() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, and later states do not revive it."""
    cluster = ReplicaCluster()
    producer = cluster[1].produce("a")
    cluster[1].partition.stop_replica()
    assert isinstance(producer.outcome, UnknownTopicOrPartition)
    cluster.elect(1, tell=(1,))
    assert cluster[1].partition.read(0, 100).error_code == UnknownTopicOrPartition.code


def test_a_disk_that_fails_is_reported_and_the_client_gets_a_storage_error() -> None:
    """No exception of the operating system reaches a client."""
    cluster = ReplicaCluster(size=1)
    cluster[1].disk.fail("write", error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        cluster[1].produce("a")
    assert [error.errno for error in cluster[1].host.errors] == [errno.EIO]
    cluster[1].partition.go_offline()
    cluster[1].disk.mend()
    with pytest.raises(KafkaStorageError):
        cluster[1].produce("a")
