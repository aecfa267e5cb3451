"""The leader of a partition: appends, tracks flushed offsets of replicas, and commits.

Laws, in order of weight:
- the high watermark is the least end offset over the *maximal* ISR, the leader itself, and followers that are about to
  join (`_is_about_to_join`). A record counts once it is flushed, or with log.flush.policy=os once it is written;
- the high watermark never moves back. It does not advance while the committed ISR is below min.insync.replicas, nor
  while the metadata names eligible leaders (KIP-966): `PartitionState.is_under_min_isr`;
- a follower counts only with fetches of this leader epoch. It joins the ISR only at or past the high watermark and the
  start of this epoch, unfenced, with the broker epoch of its fetches (KIP-497, KIP-841, KIP-903);
- a follower that has not caught up for replica.lag.time.max.ms is proposed to leave the ISR (`maybe_shrink_isr`);
- there is one pending ISR change at a time; until its answer is known the ISR counts as the union (`Isr.maximal`);
- with a damaged log it serves only records before the damage. The ISR neither grows nor shrinks, no follower is
  truncated to it, and appends are refused.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from raftlog.base.disk import Buffer
from raftlog.base.errors import (
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from raftlog.base.types import NO_BROKER, NO_OFFSET, NO_TIMESTAMP, EpochEnd
from raftlog.metadata.broker_requests import IsrChange, IsrMember
from raftlog.metadata.image import PartitionState
from raftlog.records.batch import EndTransactionMarker, build_end_marker
from raftlog.records.header import TRANSACTIONAL_BIT, BatchHeader, read_header, validate_produced
from raftlog.records.validation import (
    NeedsStepwiseValidation,
    RecordRules,
    must_be_walked,
    validate_small_batch,
)
from raftlog.replication.divergence import check_position, epoch_end_of, find_rot_before
from raftlog.replication.follower_progress import NEVER, FollowerProgress
from raftlog.replication.isr import CommittedIsr, Isr, PendingExpand, PendingShrink
from raftlog.replication.replica_host import CommitWaiter, PartitionRead, ReplicaId, TxnMarker
from raftlog.replication.role import ReadableRole, Search

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.producers import ActiveProducer, LogAppendInfo
    from raftlog.storage.verification import Verification

_new_tuple = tuple.__new__
"""Spares the Python call of a NamedTuple's own `__new__`."""
ALL_ACKS = -1
CHECKED_REFETCH_INTERVAL = 3
"""A follower that repeats a fetch gets records with checked CRCs every third time.

A second fetch from the same offset is usual: it may be sent before the response to the first arrives.
"""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
"""Special timestamps of ListOffsets."""


class LeaderRole(ReadableRole):
    """This replica leads in `leader_epoch`. `epoch_start_offset` is the log end when it took over."""

    __slots__ = (
        "_counted",
        "_holds_high_watermark",
        "_outside",
        "_proposed",
        "_state",
        "_waiters",
        "below_min_isr",
        "counted_end_offset",
        "epoch_start_offset",
        "host",
        "isr",
        "log",
        "progress",
        "replicas",
    )

    def __init__(self, partition: Partition, state: PartitionState) -> None:
        super().__init__(partition)
        self.host = partition.host
        self.log = partition.log
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = self.log.log_end_offset
        self.counted_end_offset = partition.durable_end_offset
        """The end up to which the leader's own log counts for the high watermark. What it flushed as a follower
        counts too.
        """
        self.replicas: tuple[int, ...] = ()
        self._state = state
        self.progress: dict[int, FollowerProgress] = {}
        self.isr: Isr = CommittedIsr(state.isr)
        self.below_min_isr = self._holds_high_watermark = False
        self._counted: tuple[FollowerProgress, ...] = ()
        """The followers in the maximal ISR."""
        self._outside: tuple[FollowerProgress, ...] = ()
        """All other followers."""
        self._proposed: tuple[IsrMember, ...] = ()
        self._waiters: deque[tuple[int, CommitWaiter]] = deque()
        self._take_replicas(state, caught_up_at=self.host.now())
        self._set_isr(self.isr)

    def begin(self) -> None:
        """Start to lead: drop state that held under the former leader only, and flush the rest of the log."""
        damage = self.log.damage
        if damage is not None:
            self.host.log_event("damaged_replica_leads", self.partition, readable_until=damage.offset)
        if self._state.unclean_epoch == self.leader_epoch:
            # What this replica refused as a follower may have been acknowledged by the former leader, and lost.
            self.log.producers.refused_batches.clear()
        # A verification holds for one leadership: the transaction may have ended while another replica led.
        self.log.producers.verifications.clear()
        self.log.on_high_watermark_updated(self.partition.high_watermark)
        if self.counted_end_offset < self.log.log_end_offset:
            self.host.request_flush(self.partition)
        self.maybe_advance_high_watermark()

    # -- producing ----------------------------------------------------------------------------------------------

    def append_produced(
        self, records: memoryview, *, acks: int, now_ms: int, max_timestamp: int | None = None
    ) -> LogAppendInfo:
        # NOT_ENOUGH_REPLICAS before the append means to the client that its records will never be read. After the
        # append the error is NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        if acks == ALL_ACKS and self.below_min_isr:
            raise NotEnoughReplicas()
        log = self.log
        end_before = log.log_end_offset
        header = validate_produced(records, log.config.max_message_bytes)
        if not end_before and header.base_sequence > 0 and header.producer_id >= 0:
            self._check_first_sequence(header)
        # A transaction that its coordinator does not know would stay open for ever, and hold up the last stable offset
        # for all read_committed consumers.
        if header.attributes & TRANSACTIONAL_BIT:
            log.producers.check_in_transaction(header)
        # Walking the records costs more than all the rest, so it is done only where a wrong record would hurt.
        # Compaction needs keys, retention the largest timestamp, and a false record count would take memory later. A
        # retry is answered without a walk: its timestamps may be out of range by now.
        if (
            max_timestamp is None
            and must_be_walked(header, log.walk_rules, now_ms)
            and not log.producers.is_retry(header)
        ):
            if log.walk_rules.schema_fields:
                raise NeedsStepwiseValidation
            max_timestamp = validate_small_batch(header, records, RecordRules.of(log.config, now_ms))
        appended = log.append_as_leader(
            header, records, leader_epoch=self.leader_epoch, now_ms=now_ms, max_timestamp=max_timestamp
        )
        if not appended.duplicate:
            self._note_appended(end_before)
        return appended

    def _check_first_sequence(self, header: BatchHeader) -> None:
        """Raise OutOfOrderSequenceNumber for a batch that can't be a producer's first in a log that never held a
        record.

        No state of the producer can have expired here, so an earlier batch is still on its way (KAFKA-15591). But a
        producer of a deleted topic may continue in a new topic of the same name; librdkafka and aiokafka would end with
        this error.
        """
        self.log.producers.check_sequence(header)  # which may know the awaited batch
        if not self.host.was_deleted(self.partition.topic):
            raise OutOfOrderSequenceNumber(
                f"a log that never held a record begins with sequence 0, not {header.base_sequence}"
            )

    def begin_verification(self, producer_id: int, epoch: int) -> Verification | None:
        return self.log.producers.begin_verification(producer_id, epoch)

    def append_coordinator_batch(self, batch: bytes, *, now_ms: int) -> LogAppendInfo:
        if self.below_min_isr:
            raise NotEnoughReplicas()
        log, header = self.log, read_header(batch)
        if header.length > log.config.max_message_bytes:
            limit = log.config.max_message_bytes
            raise MessageTooLarge(f"the batch has {header.length} bytes; max.message.bytes is {limit}")
        log.producers.check_in_transaction(header)
        return self._append(header, batch, now_ms)

    def append_marker(self, marker: TxnMarker, *, now_ms: int) -> int:
        if self.below_min_isr:
            raise NotEnoughReplicas()
        producers = self.log.producers
        producer_id, epoch, commit, coordinator_epoch, version, *expected = marker
        if marker.txn_first_offset != NO_OFFSET:
            producers.check_open_transaction(producer_id, *expected)
        is_needed = producers.check_marker(
            producer_id, epoch, coordinator_epoch=coordinator_epoch, transaction_version=version
        )
        producers.end_verifications(producer_id, epoch, transaction_version=version)
        if not is_needed:
            return self.log.log_end_offset
        end = EndTransactionMarker(commit, coordinator_epoch)
        batch = build_end_marker(producer_id, epoch, marker=end, now_ms=now_ms)
        return self._append(read_header(batch), batch, now_ms).end_offset

    def _append(self, header: BatchHeader, batch: bytes, now_ms: int) -> LogAppendInfo:
        end_before = self.log.log_end_offset
        appended = self.log.append_as_leader(header, batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._note_appended(end_before)
        return appended

    def active_producers(self) -> list[ActiveProducer]:
        return self.log.producers.active()

    def _note_appended(self, end_before: int) -> None:
        """Note which followers were caught up until now, wake their fetches, and request a flush."""
        host = self.host
        now = host.now()
        # A follower that had everything was caught up until this append, even if it fetched long ago.
        for progress in self.progress.values():
            if progress.end_offset == end_before:
                progress.caught_up_at = now
        self.partition.log_end_moved()  # first: followers can fetch while this replica syncs
        host.request_flush(self.partition)
        if not host.flush_before_commit:
            self.note_counted_end(self.log.log_end_offset)

    def await_commit(self, end_offset: int, waiter: CommitWaiter) -> None:
        if end_offset <= self.partition.high_watermark:
            waiter.committed(self.partition)
        elif self.below_min_isr:
            waiter.failed(self.partition, NotEnoughReplicasAfterAppend())
        elif self._waiters and end_offset < self._waiters[-1][0]:
            # a duplicate waits for its original, which lies before later appends
            insort(self._waiters, (end_offset, waiter), key=itemgetter(0))
        else:
            self._waiters.append((end_offset, waiter))

    def _fail_waiters(self, error: type[KafkaError]) -> None:
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            waiter.failed(self.partition, error())

    # -- the high watermark -------------------------------------------------------------------------------------

    def note_counted_end(self, end_offset: int) -> None:
        """Count the leader's own log up to `end_offset`: flushed, or written with log.flush.policy=os."""
        self.counted_end_offset = end_offset
        self.maybe_advance_high_watermark()

    def maybe_advance_high_watermark(self) -> None:
        """Advance the high watermark by the first law of this module, and complete the requests that wait for it."""
        if self._holds_high_watermark:
            return  # committed records have to be on min.insync.replicas disks, however small the ISR is
        partition = self.partition
        high_watermark = self.counted_end_offset
        for progress in self._counted:
            if progress.end_offset < high_watermark:  # noqa: PLR1730 - half the price of min() on the hot path
                high_watermark = progress.end_offset
        for progress in self._outside:
            if progress.end_offset < high_watermark and self._is_about_to_join(progress):
                high_watermark = progress.end_offset
        if high_watermark <= partition.high_watermark:
            return
        assert high_watermark <= self.log.log_end_offset
        # Readers first, then the waiting producers: a client with an acknowledgement can read the record at once.
        partition.high_watermark = high_watermark
        if self.log.first_unstable_offset is not None:
            self.log.on_high_watermark_updated(high_watermark)
        partition.high_watermark_moved()
        while self._waiters and self._waiters[0][0] <= partition.high_watermark:
            self._waiters.popleft()[1].committed(partition)

    def _is_about_to_join(self, progress: FollowerProgress) -> bool:
        """Return whether a follower outside the ISR holds back the high watermark until it joins, as in Kafka.

        Otherwise the high watermark would run ahead of a follower that is always a fetch behind, and never let it join.
        """
        host = self.host
        return (
            progress.is_caught_up
            and host.now() - progress.caught_up_at <= host.replica_lag_time_max
            and self._may_join_isr(progress)
        )

    # -- reading ------------------------------------------------------------------------------------------------

    def read_as_replica(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        last_fetched_epoch: int,
        replica: ReplicaId,
        is_new: bool,
    ) -> PartitionRead:
        log = self.log
        progress = self._progress_of(replica)
        refused = check_position(log, self.leader_epoch, offset, last_fetched_epoch)
        if last_fetched_epoch > self.leader_epoch:
            # No leader ever wrote in that epoch: the epoch of the replica's last batch rotted on its disk, since no CRC
            # covers it. The replica has to truncate to where that epoch begins in its log.
            refused = 0, EpochEnd(log.latest_epoch, log.log_end_offset)
        if refused is not None:
            return self._refuse(*refused)
        end = log.log_end_offset
        # A fetch at an offset acknowledges all before it, as Raft's match index does. Noted before the read, so that
        # this very response carries the advanced high watermark.
        if is_new:
            self._note_fetch(progress, offset, replica.broker_epoch)
        records: Buffer | None = b""
        read_end = offset
        if offset < end:
            times = progress.served_times + 1 if offset == progress.served_offset else 1
            # a reader that repeats a fetch may have refused what our memory holds: check it
            checked = times % CHECKED_REFETCH_INTERVAL == 0
            if checked and (diverging := find_rot_before(log, offset, last_fetched_epoch)) is not None:
                return self._refuse(0, diverging)
            records, read_end = log.read_with_end(
                offset, max_bytes, end_offset=end, min_one=min_one, checked=checked
            )
            if records:
                progress.served_offset, progress.served_times = offset, times
            if log.has_old_reads:
                self.host.touch(self.partition)
        # the last stable offset is only for consumers
        high_watermark = self.partition.high_watermark
        start = log.log_start_offset
        fields = (0, high_watermark, high_watermark, start, records, None, None, read_end, NO_BROKER)
        return _new_tuple(PartitionRead, fields)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, read_committed: bool, replica: bool, search: Search | None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch), or None if there is no such record.

        Raise OffsetNotAvailable while the high watermark is before this epoch, for LATEST or if no record was found.
        """
        log = self.log
        partition = self.partition
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            is_of_this_epoch = start >= self.epoch_start_offset  # even without a record yet
            return start, NO_TIMESTAMP, self.leader_epoch if is_of_this_epoch else log.epoch_at(start)
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return None
        if replica:
            end = log.log_end_offset
        else:
            end = partition.last_stable_offset if read_committed else partition.high_watermark
        # A new leader's high watermark may lie below its predecessor's (KIP-207). Until a record of this epoch is
        # committed, the end is not returned, or it would seem to go back.
        is_end_known = replica or partition.high_watermark >= self.epoch_start_offset
        if timestamp_ms == LATEST:
            if not is_end_known:
                raise OffsetNotAvailable()
            return end, NO_TIMESTAMP, self.leader_epoch
        if search is not None:
            found = search()
        elif timestamp_ms == MAX_TIMESTAMP:
            found = log.max_timestamp()
        else:
            found = log.offset_for_timestamp(timestamp_ms)
        self.host.touch(partition)  # indexes were loaded
        if found is not None and found[0] < end:
            return found
        if not is_end_known:
            raise OffsetNotAvailable()
        return None

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """Return the end of the largest epoch ≤ `leader_epoch`. Raise KafkaStorageError if it is past damage."""
        end = epoch_end_of(self.log, self.leader_epoch, leader_epoch)
        damage = self.log.damage
        if damage is not None and end.end_offset >= damage.offset:
            raise KafkaStorageError("the log is damaged there")
        return end

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset` (-1: the high watermark). Raise OffsetOutOfRange beyond that."""
        high_watermark = self.partition.high_watermark
        target = high_watermark if offset == NO_OFFSET else offset
        if not 0 <= target <= high_watermark:
            raise OffsetOutOfRange()
        if target > self.log.log_start_offset:
            self.log.advance_log_start(target)
            self.partition.log_start_moved()
            self.host.log_event("records_deleted", self.partition, log_start_offset=target)
        return self.log.log_start_offset

    def note_log_start(self, replica: ReplicaId, log_start_offset: int) -> None:
        progress = self.progress.get(replica.broker_id)
        if progress is not None and progress.log_start_offset != log_start_offset:
            progress.log_start_offset = log_start_offset
            self.partition.low_watermark_moved()

    def low_watermark(self) -> int:
        """Return the least log start of all replicas in service. Records before it are deleted everywhere (KIP-107)."""
        brokers = self.host.brokers()
        starts = [
            progress.log_start_offset
            for progress in self.progress.values()
            if (broker := brokers.get(progress.broker_id)) is not None and not broker.fenced
        ]
        return min([self.log.log_start_offset, *starts])

    # -- followers and the ISR ----------------------------------------------------------------------------------

    def _progress_of(self, replica: ReplicaId) -> FollowerProgress:
        progress = self.progress.get(replica.broker_id)
        if progress is None or replica.broker_epoch < progress.broker_epoch:
            raise NotLeaderOrFollower()  # no replica of this partition, or an earlier incarnation
        return progress

    def _note_fetch(self, progress: FollowerProgress, offset: int, broker_epoch: int) -> None:
        """Note that everything before `offset` counts on the follower (see `FollowerProgress`)."""
        if offset < progress.end_offset:
            self.host.touch(self.partition)  # it lost records
        progress.note_fetch(
            offset, broker_epoch, leader_end_offset=self.log.log_end_offset, now=self.host.now()
        )
        if self._outside:
            self._consider_joining(progress)
        self.maybe_advance_high_watermark()

    def _consider_joining(self, progress: FollowerProgress) -> None:
        # One proposal at a time: applying the first raises the partition epoch, so the controller would refuse the
        # second.
        if type(self.isr) is not CommittedIsr or progress.broker_id in self.isr.committed:
            return
        # A damaged leader would consider a replica in sync that lacks what the leader itself has lost.
        if self.log.damage is not None:
            return
        # It needs all that is committed. Before this epoch's start its log may still diverge from ours, so that the
        # same offsets hold other records there.
        if (
            progress.end_offset < self.partition.high_watermark
            or progress.end_offset < self.epoch_start_offset
        ):
            return
        if self._may_join_isr(progress):
            self._propose(PendingExpand(self.isr.committed, progress.broker_id))

    def _may_join_isr(self, progress: FollowerProgress) -> bool:
        """Return whether the broker is in service (KIP-841), and still the incarnation that fetched (KIP-903)."""
        broker = self.host.brokers().get(progress.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.broker_epoch == progress.broker_epoch
        )

    def _propose(self, isr: PendingExpand | PendingShrink) -> None:
        # the union counts from here on: the controller may act before its answer arrives
        self._set_isr(isr)
        # the epochs of the incarnations that fetched, not of later ones (KIP-903)
        self._proposed = tuple(IsrMember(member, self._broker_epoch(member)) for member in isr.proposed)
        self.host.submit_isr_change(self.partition)

    def maybe_shrink_isr(self) -> None:
        """Propose to drop the ISR members that were not caught up for replica.lag.time.max.ms."""
        if self._outside:
            self.reevaluate_isr()  # a joining follower may have stalled
        if type(self.isr) is not CommittedIsr or len(self.isr.committed) == 1:
            return
        if self.log.damage is not None:
            return  # the others hold the only copies of the records
        end = self.log.log_end_offset
        oldest = self.host.now() - self.host.replica_lag_time_max
        leaving = frozenset(
            progress.broker_id
            for progress in self._counted
            if progress.end_offset != end and progress.caught_up_at < oldest
        )
        if leaving:
            self._propose(PendingShrink(self.isr.committed, leaving))

    @property
    def all_caught_up(self) -> bool:
        """Whether all replicas are in the committed ISR and at the log's end. No replica can then leave the ISR before
        the next append.
        """
        if self._outside or type(self.isr) is not CommittedIsr:
            return False
        end = self.log.log_end_offset
        return all(progress.end_offset == end for progress in self._counted)

    def pending_isr_change(self) -> IsrChange | None:
        """Return the pending change as the controller expects it, or None."""
        if type(self.isr) is CommittedIsr:
            return None
        partition = self.partition
        epochs = (self.leader_epoch, partition.partition_epoch)
        return IsrChange(partition.topic_id, partition.index, *epochs, self._proposed)

    def _broker_epoch(self, member: int) -> int:
        """Return a member's broker epoch, or -1 before its first fetch, which the controller accepts (KIP-903)."""
        if member == self.host.broker_id:
            return self.host.broker_epoch()
        progress = self.progress.get(member)
        return -1 if progress is None else progress.broker_epoch

    def revert_isr_change(self) -> None:
        """Return to the committed ISR, after the controller has certainly refused the change."""
        self._set_isr(CommittedIsr(self.isr.committed))
        self.maybe_advance_high_watermark()

    def adopt_isr(self, isr: tuple[int, ...], eligible: tuple[int, ...]) -> None:
        """Adopt the ISR that the controller has committed. If it is too small, waiting producers fail at once."""
        before = self.isr.committed
        self._state = msgspec.structs.replace(self._state, eligible=eligible)
        self._set_isr(CommittedIsr(isr))
        if len(isr) != len(before):
            event = "isr_shrunk" if len(isr) < len(before) else "isr_expanded"
            self.host.log_event(event, self.partition, isr=isr, before=before)
        self.reevaluate_isr()

    def reevaluate_isr(self) -> None:
        self._set_isr(self.isr)
        self.maybe_advance_high_watermark()
        if self.below_min_isr and self._waiters:
            self._fail_waiters(NotEnoughReplicasAfterAppend)
        for progress in self._outside:
            self._consider_joining(progress)

    def _set_isr(self, isr: Isr) -> None:
        self.isr = isr
        maximal = isr.maximal
        me = self.host.broker_id
        self._counted = tuple(self.progress[member] for member in maximal if member != me)  # isr ⊆ replicas
        self._outside = tuple(progress for member, progress in self.progress.items() if member not in maximal)
        min_insync = self.log.config.min_insync_replicas
        state = self._state
        self.below_min_isr = state.is_under_min_isr(min_insync, isr.committed)
        # The only replica of a lost ISR leads for reading: all that it held may be read.
        self._holds_high_watermark = self.below_min_isr and not (state.isr_lost and not state.eligible)

    @property
    def may_lead_next(self) -> tuple[int, ...]:
        """The replicas that the controller may elect cleanly: in the ISR, or about to be, or eligible."""
        return (*self.isr.maximal, *self._state.eligible)

    def _take_replicas(self, state: PartitionState, *, caught_up_at: float) -> None:
        """Keep the progress of known followers. New ISR members start as caught up, other new replicas as never."""
        me = self.host.broker_id
        self.replicas = state.replicas
        known = self.progress
        self.progress = {
            member: known.get(member)
            or FollowerProgress(member, caught_up_at if member in state.isr else NEVER)
            for member in state.replicas
            if member != me
        }

    def update(self, state: PartitionState) -> None:
        self._state = state
        if state.replicas != self.replicas:
            self._take_replicas(state, caught_up_at=self.host.now())
            self.partition.low_watermark_moved()
        self.adopt_isr(state.isr, state.eligible)

    def resign(self, error: type[KafkaError]) -> None:
        self._fail_waiters(error)
