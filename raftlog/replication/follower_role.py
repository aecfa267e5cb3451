"""A follower: appends what its leader sent, and truncates its log where it diverges by the leader's epochs.

Laws: truncation is by leader epoch only, never to the high watermark (KIP-101, KIP-279, KIP-595). A response in another
leader epoch than its request is dropped. Batches of a later epoch than the fetch's are refused, since the leader may
have changed its log between reading and answering (KAFKA-18723).

Committed records are truncated only where the metadata allows their loss: after an unclean election in a later epoch.
Any other leader that lacks them is an older copy, or its disk lost what it had synced. This replica may hold the only
copy, so it stops. Under log.flush.policy=os a power cut may take committed records of a leader, as in Kafka, and
followers truncate them.

A follower serves consumers up to its own high watermark, the least of the leader's and its log's end (KIP-392).
Whatever it serves is committed, but it may be behind the leader.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from raftlog.base.errors import CorruptMessage, KafkaStorageError, NotLeaderOrFollower, OffsetOutOfRange
from raftlog.base.types import NO_EPOCH, NO_OFFSET, EpochEnd
from raftlog.metadata.image import PartitionState
from raftlog.records.header import iter_headers
from raftlog.replication.follower_progress import NEVER
from raftlog.replication.leader_role import CHECKED_REFETCH_INTERVAL
from raftlog.replication.replica_host import PartitionRead
from raftlog.replication.role import ReadableRole
from raftlog.storage.fetched_batches import GapPolicy

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.producers import ActiveProducer

_BATCH_START = struct.Struct(">qii")
_BATCH_LENGTH_FROM = 12
"""A batch's length field counts what follows it."""
READERS_S = 10.0
"""A follower asks for each new high watermark until so many seconds after a consumer's last read."""
GAP_CONFIRMED_AFTER = 2 * CHECKED_REFETCH_INTERVAL
"""A leader that shows the same hole this often has checked that its log really has it."""


class FetchPosition(NamedTuple):
    """The offset to fetch next. All before it counts: flushed, or written with log.flush.policy=os.

    `last_epoch` is -1 if the log is empty.
    """

    offset: int
    last_epoch: int
    log_start_offset: int


class FollowerRole(ReadableRole):
    """This replica follows `leader` (NO_BROKER: there is no leader) in `leader_epoch`."""

    __slots__ = ("_hole", "_hole_shown", "_unclean_epoch", "began_at", "leader", "read_at")

    def __init__(self, partition: Partition, state: PartitionState) -> None:
        super().__init__(partition)
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.began_at = partition.host.now()
        self.read_at = NEVER
        """When a consumer last read here, loop seconds."""
        self._unclean_epoch = state.unclean_epoch
        self._hole = (NO_OFFSET, NO_OFFSET)
        """Our log end, and the first offset that the leader sent instead."""
        self._hole_shown = 0
        """How many times in a row the leader sent that."""

    def active_producers(self) -> list[ActiveProducer]:
        return self.partition.log.producers.active()

    def begin(self) -> None:
        """Truncate a damaged log to its sound part. The rest is fetched again, and never served."""
        partition = self.partition
        self.cut_damage()
        partition.log.producers.refused_batches.clear()  # their producers retry them at the new leader

    def cut_damage(self) -> bool:
        """Truncate a damaged log to its sound part, if that is not done yet. Return whether it was truncated."""
        partition = self.partition
        log = partition.log
        before = log.truncation_count
        log.truncate_damage()
        partition.limit_high_watermark()
        if log.truncation_count == before:
            return False
        partition.host.log_event("damaged_log_cut", partition, log_end_offset=log.log_end_offset)
        partition.high_watermark_moved()
        return True

    def read_as_consumer(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        last_fetched_epoch: int,
        read_committed: bool,
    ) -> PartitionRead:
        host = self.partition.host
        now = host.now()
        if self.has_lost_leader(now):
            raise NotLeaderOrFollower("this follower has not reached its leader for replica.lag.time.max.ms")
        had_readers, self.read_at = now - self.read_at < READERS_S, now
        if not had_readers:
            host.fetch_soon(self.partition)
        # Behind the high watermark this log may lack the reader's records, or hold records that will be truncated.
        # So it proves no divergence there.
        if offset > self.partition.high_watermark:
            last_fetched_epoch = NO_EPOCH
        return super().read_as_consumer(
            offset,
            max_bytes,
            min_one=min_one,
            last_fetched_epoch=last_fetched_epoch,
            read_committed=read_committed,
        )

    def has_lost_leader(self, now: float) -> bool:
        """Return whether the leader answered no fetch for replica.lag.time.max.ms.

        Such a follower may be cut off, and not learn of new records or leaders. Kafka's serves until clients ask their
        leader again, which may take five minutes.
        """
        oldest = now - self.partition.host.replica_lag_time_max
        return self.began_at < oldest and self.partition.host.heard_of_leader_at(self.partition) < oldest

    def _refuse(self, error: int, diverging: EpochEnd | None) -> PartitionRead:
        """Return an error without offsets, as Kafka does.

        librdkafka goes on at the leader only if its offset is past the high watermark of this response. Otherwise it
        resets by `auto.offset.reset`, which loses or repeats records.
        """
        if error == OffsetOutOfRange.code:
            return PartitionRead(error, NO_OFFSET, NO_OFFSET, NO_OFFSET, b"")
        return super()._refuse(error, diverging)

    def fetch_position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def append_fetched(
        self, records: memoryview, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Append one partition's records of a fetch response.

        Raise NotLeaderOrFollower if it was sent in another leader epoch. Raise CorruptMessage if a reader has found
        damage since the fetch: the log is cut, and these records do not follow its new end. In a compacted log they
        would pass for records after a hole, and what was cut would never be fetched again.
        """
        self._require(leader_epoch)
        if self.cut_damage():
            raise CorruptMessage("the log was cut before these records")
        partition = self.partition
        log = partition.log
        if records:
            damage = log.damage
            batches = up_to_epoch(records, leader_epoch)
            now_ms = partition.host.latest_ms()
            self._begin_within(batches)
            log.append_as_follower(batches, now_ms=now_ms, gaps=self._believed_gaps(batches))
            partition.host.request_flush(partition)
            if damage is not None and log.damage is None:
                partition.host.log_event(
                    "damaged_log_repaired", partition, offset=damage.offset, log_end_offset=log.log_end_offset
                )
        # The leader's high watermark may lie beyond this log: only what this log holds can be committed here.
        known = min(high_watermark, log.log_end_offset)
        if known > partition.high_watermark:
            partition.high_watermark = known
            log.on_high_watermark_updated(known)
            partition.high_watermark_moved()
        # Never beyond the high watermark: records above it may still be cut off, and then the log would end before it
        # starts.
        if log_start_offset > log.log_start_offset:
            self._advance_log_start(min(log_start_offset, partition.high_watermark))

    def _begin_within(self, batches: memoryview) -> None:
        """Let an empty log begin with the leader's first batch, where the leader's log starts within that batch.

        DeleteRecords sets such a log start, and batches are sent whole. The records before it are deleted here too,
        once they are appended. No CRC covers a base offset, so the leader has to send the batch again.
        """
        partition, log = self.partition, self.partition.log
        if log.log_start_offset < log.log_end_offset:
            return
        first = next(iter_headers(batches), None)
        if first is None:
            return
        base_offset = first[1].base_offset
        if base_offset < log.log_end_offset <= first[1].last_offset:
            shown, self._hole = self._hole, (log.log_end_offset, base_offset)
            if shown == self._hole:
                log.truncate_fully_and_start_at(base_offset)
                partition.high_watermark = base_offset

    def _believed_gaps(self, batches: memoryview) -> GapPolicy:
        """Return which holes to believe, between our end and the leader's next batch.

        Holes exist where a topic is or was compacted. A wrong offset due to a network or memory error does not last:
        after repeated fetches the leader reads from the disk and notices. A leader checks each hole that it sends
        (`Log.read`), so one more fetch confirms it; the first hole in our log needs more.
        """
        shown = self._count_hole(batches)
        log = self.partition.log
        has_holes = log.compacted or log.active_segment.may_have_gaps
        if shown > (1 if has_holes else GAP_CONFIRMED_AFTER):
            return GapPolicy.IF_REPEATED
        return GapPolicy.IF_NEXT_BATCH_FITS if has_holes else GapPolicy.NONE

    def _count_hole(self, batches: memoryview) -> int:
        """Return how many times in a row the leader sent the same hole behind our end; 0 without a hole."""
        if len(batches) < _BATCH_START.size:
            return 0
        hole = (self.partition.log.log_end_offset, _BATCH_START.unpack_from(batches)[0])
        if hole[0] >= hole[1]:
            return 0
        self._hole_shown = self._hole_shown + 1 if hole == self._hole else 1
        self._hole = hole
        return self._hole_shown

    def _advance_log_start(self, offset: int) -> None:
        log = self.partition.log
        if offset > log.log_start_offset:
            log.advance_log_start(offset)
            self.partition.host.touch(self.partition)
            self.partition.high_watermark_moved()  # for consumers that wait for more bytes before it

    def truncate_to(self, diverging: EpochEnd, *, leader_epoch: int, log_start_offset: int) -> int:
        """Truncate the log where it diverges from the leader's; return the new log end, to fetch from.

        An epoch that this log does not have is cut down to the end of the previous epoch, and the next fetch continues
        the search. This log begins anew at the leader's `log_start_offset` if they diverged before that.
        """
        self._require(leader_epoch)
        log = self.partition.log
        if log.log_start_offset < log_start_offset and diverging.end_offset <= log_start_offset:
            # The leader has dropped the earlier epochs, and returns its log start. This log may differ before it. If
            # those records stayed and a power loss took the new log start, they would count as committed.
            self.restart_at(log_start_offset, leader_epoch=leader_epoch)
            return log.log_end_offset
        # The leader names the largest epoch that both may have, and where it ends there. If this log has it too, the
        # logs are equal up to the lesser of both ends. If not, only what lies before it can be equal.
        target = min(diverging.end_offset, log.log_end_offset)
        own = log.epoch_end(diverging.epoch)
        if own.epoch >= 0:
            target = min(own.end_offset, log.log_end_offset)
            if own.epoch == diverging.epoch:
                target = min(target, diverging.end_offset)
        self._truncate(max(target, log.log_start_offset))
        return log.log_end_offset

    def _truncate(self, offset: int) -> None:
        partition = self.partition
        self._check_cut(offset)
        before = partition.log.log_end_offset
        partition.log.truncate_to(offset, committed=offset < partition.high_watermark)
        partition.log.on_high_watermark_updated(partition.high_watermark)  # markers that were read again
        offset = min(offset, partition.log.log_end_offset)  # compaction may have left a hole before it
        partition.host.log_event("log_truncated", partition, log_end_offset=offset, before=before)
        if partition.high_watermark > offset:
            partition.host.log_event(
                "committed_records_truncated", partition, high_watermark=partition.high_watermark
            )
            partition.high_watermark = offset
        partition.high_watermark_moved()  # consumers past the end read elsewhere

    def restart_at(self, offset: int, *, leader_epoch: int) -> None:
        """Drop everything and continue at the leader's log start: the leader has deleted the records between."""
        self._require(leader_epoch)
        partition = self.partition
        self._check_cut(offset)
        before = partition.log.log_end_offset
        partition.log.truncate_fully_and_start_at(offset)
        partition.high_watermark = offset
        partition.high_watermark_moved()
        partition.host.log_event("log_restarted", partition, log_start_offset=offset, before=before)

    def _check_cut(self, offset: int) -> None:
        """Fail the replica and raise KafkaStorageError if truncation would take committed records that must be kept."""
        partition, log = self.partition, self.partition.log
        committed = partition.high_watermark
        if offset >= committed or not partition.host.flush_before_commit:
            return
        if log.latest_epoch > self.leader_epoch or log.epoch_at(committed - 1) < self._unclean_epoch:
            return  # rot, since no leader has written in that epoch yet; or the metadata allows the loss
        reason = f"leader {self.leader} lacks committed records from offset {offset} to {committed - 1}"
        partition.fail_following(reason)
        raise KafkaStorageError(reason)

    def _require(self, leader_epoch: int) -> None:
        if leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower()


def up_to_epoch(records: memoryview, leader_epoch: int) -> memoryview:
    """Return the whole batches before the first batch of a later epoch (KAFKA-18723), without a cut-off last batch."""
    position = 0
    size = len(records)
    while position + _BATCH_START.size <= size:
        _, length, epoch = _BATCH_START.unpack_from(records, position)
        end = position + _BATCH_LENGTH_FROM + length
        if epoch > leader_epoch or length <= 0 or end > size:
            break
        position = end
    return records[:position]
