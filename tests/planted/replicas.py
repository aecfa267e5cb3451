"""Bugs of replication: the ISR, the high watermark, acknowledgements, and served records."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import KafkaError, OffsetOutOfRange
from raftlog.base.types import UNKNOWN_EPOCH_END, EpochEnd
from raftlog.broker.network.server import BrokerServer
from raftlog.broker.replicas import fetcher
from raftlog.replication import divergence
from raftlog.replication.follower_progress import FollowerProgress
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.isr import CommittedIsr, Isr, PendingExpand, PendingShrink
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.replica_host import CommitWaiter, PartitionRead
from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.double_failover import double_failover
from raftlog_chaos.scenarios.endurance import endure
from raftlog_chaos.scenarios.jepsen import jepsen
from raftlog_chaos.scenarios.kip_101 import kip_101
from raftlog_chaos.scenarios.last_replica import last_replica
from raftlog_chaos.scenarios.late_bytes import late_bytes
from raftlog_chaos.scenarios.pause_kill import pause_kill
from raftlog_chaos.scenarios.relay import relay
from raftlog_chaos.scenarios.retry import retry
from raftlog_chaos.scenarios.zombie import zombie
from tests.planted.plant import Plant


def leader_counts_the_unflushed(patch: pytest.MonkeyPatch) -> None:
    """The leader counts what it has only written; its followers are honest."""
    appended = LeaderRole._note_appended

    def count_at_once(leading: LeaderRole, end_before: int) -> None:
        appended(leading, end_before)
        leading.note_counted_end(leading.log.log_end_offset)

    patch.setattr(LeaderRole, "_note_appended", count_at_once)


def followers_fetch_unflushed(patch: pytest.MonkeyPatch) -> None:
    """A follower's next fetch says that it has what it did not flush; its leader is honest."""
    patch.setattr(fetcher, "_is_dirty", lambda partition: False)


def acknowledge_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Kafka's own default: a replica counts before it has flushed."""
    leader_counts_the_unflushed(patch)
    followers_fetch_unflushed(patch)


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    """acks=all answers as acks=1 does."""

    def at_once(leading: LeaderRole, end_offset: int, waiter: CommitWaiter) -> None:
        waiter.committed(leading.partition)

    patch.setattr(LeaderRole, "await_commit", at_once)


def acknowledge_on_resigning(patch: pytest.MonkeyPatch) -> None:
    """A leader that was deposed answers its waiting producers as if their records were committed."""

    def resign(leading: LeaderRole, error: type[KafkaError]) -> None:
        waiters, leading._waiters = leading._waiters, type(leading._waiters)()
        for _, waiter in waiters:
            waiter.committed(leading.partition)

    patch.setattr(LeaderRole, "resign", resign)


def ignore_min_insync_replicas(patch: pytest.MonkeyPatch) -> None:
    """A leader that is alone goes on acknowledging."""
    set_isr = LeaderRole._set_isr

    def set_and_forget(leading: LeaderRole, isr: Isr) -> None:
        set_isr(leading, isr)
        leading.below_min_isr = leading._holds_high_watermark = False

    patch.setattr(LeaderRole, "_set_isr", set_and_forget)


def commit_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """A follower counts for one record more than it proved to have."""
    note_fetch = FollowerProgress.note_fetch

    def note_more(
        progress: FollowerProgress, offset: int, epoch: int, *, leader_end_offset: int, now: float
    ) -> None:
        proven = offset + (offset < leader_end_offset)
        note_fetch(progress, proven, epoch, leader_end_offset=leader_end_offset, now=now)

    patch.setattr(FollowerProgress, "note_fetch", note_more)


def serve_the_uncommitted(patch: pytest.MonkeyPatch) -> None:
    """Consumers may read up to the log end."""
    read = LeaderRole.read_as_consumer

    def read_on(leading: LeaderRole, offset: int, max_bytes: int, **rest: Any) -> PartitionRead:
        partition = leading.partition
        committed, partition.high_watermark = partition.high_watermark, leading.log.log_end_offset
        try:
            return read(leading, offset, max_bytes, **rest)
        finally:
            partition.high_watermark = committed

    patch.setattr(LeaderRole, "read_as_consumer", read_on)


def trust_the_isr_at_election(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes its ISR to have its whole log before they fetched in its epoch."""
    begin = LeaderRole.begin

    def begin_trusting(leading: LeaderRole) -> None:
        for progress in leading._counted:
            progress.end_offset = leading.log.log_end_offset
        begin(leading)

    patch.setattr(LeaderRole, "begin", begin_trusting)


def tell_the_end_before_it_is_settled(patch: pytest.MonkeyPatch) -> None:
    """KIP-207: a new leader's high watermark may lie before its predecessor's."""
    offset_for = LeaderRole.offset_for_timestamp

    def as_if_settled(leading: LeaderRole, timestamp_ms: int, **rest: Any) -> tuple[int, int, int] | None:
        start, leading.epoch_start_offset = leading.epoch_start_offset, 0
        try:
            return offset_for(leading, timestamp_ms, **rest)
        finally:
            leading.epoch_start_offset = start

    patch.setattr(LeaderRole, "offset_for_timestamp", as_if_settled)


def call_the_uncommitted_out_of_range(patch: pytest.MonkeyPatch) -> None:
    """A new leader's high watermark lags: a consumer that had read past it gets OFFSET_OUT_OF_RANGE."""
    read = LeaderRole.read_as_consumer

    def read_up_to(leading: LeaderRole, offset: int, max_bytes: int, **rest: Any) -> PartitionRead:
        if offset > leading.partition.high_watermark:
            raise OffsetOutOfRange()
        return read(leading, offset, max_bytes, **rest)

    patch.setattr(LeaderRole, "read_as_consumer", read_up_to)


def end_epochs_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new leader returns its high watermark, which lags, as the end of its latest epoch."""
    epoch_end = LeaderRole.epoch_end

    def end_earlier(leading: LeaderRole, leader_epoch: int) -> EpochEnd:
        end = epoch_end(leading, leader_epoch)
        return end._replace(end_offset=min(end.end_offset, leading.partition.high_watermark))

    patch.setattr(LeaderRole, "epoch_end", end_earlier)


def know_no_epoch_but_its_own(patch: pytest.MonkeyPatch) -> None:
    """A new leader treats epochs before its own as unknown."""
    epoch_end = LeaderRole.epoch_end

    def end_if_own(leading: LeaderRole, leader_epoch: int) -> EpochEnd:
        return epoch_end(leading, leader_epoch) if leader_epoch == leading.leader_epoch else UNKNOWN_EPOCH_END

    patch.setattr(LeaderRole, "epoch_end", end_if_own)


# -- the ISR ------------------------------------------------------------------------------------------------------


def shrink_without_the_controller(patch: pytest.MonkeyPatch) -> None:
    """The leader goes on without a laggard before the controller has agreed."""
    propose = LeaderRole._propose

    def shrink_at_once(leading: LeaderRole, isr: PendingExpand | PendingShrink) -> None:
        if isinstance(isr, PendingShrink):
            leading._set_isr(CommittedIsr(isr.proposed))
            leading.maybe_advance_high_watermark()
        else:
            propose(leading, isr)

    patch.setattr(LeaderRole, "_propose", shrink_at_once)


def shrink_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    """KIP-497: a member that is proposed to leave counts until the controller has answered."""
    patch.setattr(PendingShrink, "maximal", PendingShrink.proposed)


def leave_out_who_is_joining(patch: pytest.MonkeyPatch) -> None:
    """KIP-497: a replica that is proposed to join counts, since the controller may have taken it in."""
    patch.setattr(PendingExpand, "maximal", property(lambda isr: isr.committed))


def join_before_the_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """KIP-497: the high watermark of a new leader lags, so being past it proves too little."""
    consider = LeaderRole._consider_joining

    def consider_early(leading: LeaderRole, progress: FollowerProgress) -> None:
        start, leading.epoch_start_offset = leading.epoch_start_offset, 0
        try:
            consider(leading, progress)
        finally:
            leading.epoch_start_offset = start

    patch.setattr(LeaderRole, "_consider_joining", consider_early)


def join_behind_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Any follower that fetches joins the ISR."""
    consider = LeaderRole._consider_joining

    def consider_anyone(leading: LeaderRole, progress: FollowerProgress) -> None:
        reached, progress.end_offset = progress.end_offset, leading.log.log_end_offset
        try:
            consider(leading, progress)
        finally:
            progress.end_offset = reached

    patch.setattr(LeaderRole, "_consider_joining", consider_anyone)


# -- followers ----------------------------------------------------------------------------------------------------


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: a follower's high watermark lags, so this cuts what was committed."""
    begin = FollowerRole.begin

    def cut_and_begin(following: FollowerRole) -> None:
        begin(following)
        partition = following.partition
        partition.log.truncate_to(max(partition.high_watermark, partition.log_start_offset))

    patch.setattr(FollowerRole, "begin", cut_and_begin)


def truncate_to_the_leaders_epoch_end_only(patch: pytest.MonkeyPatch) -> None:
    """KIP-279: after two fast failovers the follower's own end of that epoch may lie before the leader's."""

    def truncate_to(
        following: FollowerRole, diverging: EpochEnd, *, leader_epoch: int, log_start_offset: int
    ) -> int:
        log = following.partition.log
        following._truncate(max(min(diverging.end_offset, log.log_end_offset), log.log_start_offset))
        return log.log_end_offset

    patch.setattr(FollowerRole, "truncate_to", truncate_to)


def never_diverge(patch: pytest.MonkeyPatch) -> None:
    """The leader does not compare epochs: every fetch within its log is served (KIP-595)."""
    patch.setattr(divergence, "is_diverging", lambda end, offset, last_fetched_epoch: False)


# -- producers ----------------------------------------------------------------------------------------------------


def forget_producers_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know its producers' batches to the old leader."""
    begin = LeaderRole.begin

    def forget_and_begin(leading: LeaderRole) -> None:
        leading.log.producers = ProducerState()
        begin(leading)

    patch.setattr(LeaderRole, "begin", forget_and_begin)


def check_no_sequences(patch: pytest.MonkeyPatch) -> None:
    """Every batch of an idempotent producer is new."""
    patch.setattr(ProducerState, "check_sequence", lambda state, header: None)


def answer_duplicates_with_the_log_end(patch: pytest.MonkeyPatch) -> None:
    """A retry is recognised, but gets the log end instead of the original offset."""

    def append(leading: LeaderRole, *arguments: Any, **rest: Any) -> Any:
        appended = append_produced(leading, *arguments, **rest)
        if appended.duplicate:
            count = appended.end_offset - appended.base_offset
            end = leading.log.log_end_offset
            appended = appended._replace(base_offset=end - count, end_offset=end)
        return appended

    append_produced = LeaderRole.append_produced
    patch.setattr(LeaderRole, "append_produced", append)


def hear_brokers_on_connections_given_up(patch: pytest.MonkeyPatch) -> None:
    """A follower's old request says, when it comes, where the follower stands."""
    patch.setattr(BrokerServer, "take_peer", lambda server, connection, peer, purpose: True)


PLANTS = [
    Plant("ack-before-flush", "ack without fsync", blackouts, acknowledge_before_the_flush),
    Plant(
        "leader-counts-unflushed",
        "ack without fsync",
        blackouts,
        leader_counts_the_unflushed,
        test="tests/replication/test_partition.py::test_the_leaders_own_unflushed_records_do_not_count",
    ),
    Plant("follower-fetches-unflushed", "ack without fsync", blackouts, followers_fetch_unflushed),
    Plant("ack-before-replication", "ack by one replica", relay, acknowledge_before_replication),
    Plant("ack-on-resigning", "zombie leader", zombie, acknowledge_on_resigning),
    Plant("min-isr-ignored", "last replica", last_replica, ignore_min_insync_replicas),
    Plant("high-watermark-one-too-high", "high watermark off by one", endure, commit_one_too_many),
    Plant("uncommitted-served", "read before commit", endure, serve_the_uncommitted),
    Plant("isr-trusted-at-election", "fetch of this epoch", relay, trust_the_isr_at_election),
    Plant("offsets-before-kip-207", "KIP-207", relay, tell_the_end_before_it_is_settled),
    Plant("uncommitted-out-of-range", "offset reset", relay, call_the_uncommitted_out_of_range),
    Plant("epoch-ends-at-high-watermark", "offset reset", relay, end_epochs_at_the_high_watermark),
    Plant("epochs-before-unknown", "offset reset", jepsen, know_no_epoch_but_its_own),
    Plant("shrink-without-controller", "ISR change race", pause_kill, shrink_without_the_controller),
    Plant("shrink-before-answer", "KIP-497", pause_kill, shrink_before_the_answer),
    Plant(
        "joiner-not-counted",
        "KIP-497",
        pause_kill,
        leave_out_who_is_joining,
        test=(
            "tests/replication/test_partition.py"
            "::test_a_follower_joins_at_the_high_watermark_and_counts_while_the_change_is_pending"
        ),
    ),
    Plant("join-before-epoch-start", "stale by epoch", relay, join_before_the_epoch_start),
    Plant("join-behind-high-watermark", "stale by offset", relay, join_behind_the_high_watermark),
    Plant("truncate-to-high-watermark", "KIP-101", kip_101, truncate_to_the_high_watermark),
    Plant("truncate-by-leader-only", "KIP-279", double_failover, truncate_to_the_leaders_epoch_end_only),
    Plant(
        "given-up-connections-heard",
        "stale by connection",
        late_bytes,
        hear_brokers_on_connections_given_up,
    ),
    Plant("divergence-not-seen", "KIP-595", kip_101, never_diverge),
    Plant("dedup-lost-on-failover", "duplicates on retry", retry, forget_producers_on_failover),
    Plant("sequences-not-checked", "duplicates on retry", retry, check_no_sequences),
    Plant("duplicate-told-log-end", "original offset", retry, answer_duplicates_with_the_log_end),
]
