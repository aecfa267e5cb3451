"""A follower: appends what its leader sent, and cuts its log where the leader's epochs say that they parted.

Laws: truncation is by leader epoch only, never to the high watermark (KIP-101, KIP-279, KIP-595). An answer that
comes in another leader epoch than its question is dropped. Batches of a later epoch than the fetch's are refused, since
the leader may have changed its log between reading and answering (KAFKA-18723).

Committed records are cut only where the metadata says that they may be lost: after an unclean election later than they
are. Any other leader that lacks them is an older copy, or its disk lost what it had synced. This replica may be the
only one that has them, so it stops. Under log.flush.policy=os a power cut may take committed records of a leader,
as Kafka's contract says, and they are cut.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from raftlog.base.errors import KafkaStorageError, NotLeaderOrFollower
from raftlog.base.types import NO_OFFSET, EpochEnd
from raftlog.metadata.image import PartitionState
from raftlog.replication.leader_role import CHECKED_REFETCH_INTERVAL
from raftlog.replication.role import ReplicaRole
from raftlog.storage.fetched_batches import GapPolicy

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.producers import ActiveProducer

_BATCH_START = struct.Struct(">qii")
_BATCH_LENGTH_FROM = 12
"""A batch's length field counts what follows it."""
GAP_CONFIRMED_AFTER = 2 * CHECKED_REFETCH_INTERVAL
"""A leader that shows the same hole so often has looked whether its log really has it."""


class FetchPosition(NamedTuple):
    """The offset to fetch next. `offset` proves that all before it is flushed; `last_epoch` -1: an empty log."""

    offset: int
    last_epoch: int
    log_start_offset: int


class FollowerRole(ReplicaRole):
    """This replica follows `leader` (NO_BROKER: nobody leads) in `leader_epoch`."""

    __slots__ = ("_hole", "_hole_shown", "_unclean_epoch", "leader")

    def __init__(self, partition: Partition, state: PartitionState) -> None:
        super().__init__(partition)
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self._unclean_epoch = state.unclean_epoch
        self._hole = (NO_OFFSET, NO_OFFSET)
        self._hole_shown = 0

    def active_producers(self) -> list[ActiveProducer]:
        return self.partition.log.producers.active()

    def begin(self) -> None:
        """A damaged log is cut back to what is sound, and refetched from there (never served meanwhile)."""
        partition = self.partition
        log = partition.log
        if log.damage is not None and log.log_end_offset > log.damage.offset:
            log.truncate_damage()
            partition.host.log_event("damaged_log_cut", partition, log_end_offset=log.log_end_offset)
        partition.limit_high_watermark()
        log.producers.refused_batches.clear()  # they come again to the new leader

    def fetch_position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def append_fetched(
        self, records: memoryview, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Take one partition's part of a fetch answer. NotLeaderOrFollower if it was asked in another leader epoch."""
        self._require(leader_epoch)
        partition = self.partition
        log = partition.log
        if records:
            damage = log.damage
            batches = up_to_epoch(records, leader_epoch)
            now_ms = partition.host.latest_ms()
            log.append_as_follower(batches, now_ms=now_ms, gaps=self._believed_gaps(batches))
            partition.host.request_flush(partition)
            if damage is not None:
                partition.limit_high_watermark()  # it was cut first
            if damage is not None and log.damage is None:
                partition.host.log_event(
                    "damaged_log_repaired", partition, offset=damage.offset, log_end_offset=log.log_end_offset
                )
        # The leader's high watermark may lie beyond this log: only what is here can be known as committed here.
        known = min(high_watermark, log.log_end_offset)
        if known > partition.high_watermark:
            partition.high_watermark = known
            log.on_high_watermark_updated(known)
        # Never beyond the high watermark: records above it may still be cut off, and then the log would end before it
        # starts.
        if log_start_offset > log.log_start_offset:
            self._advance_log_start(min(log_start_offset, partition.high_watermark))

    def _believed_gaps(self, batches: memoryview) -> GapPolicy:
        """Which holes to believe in: that nothing is left between our end and the leader's next batch.

        So it is where a topic is or once was compacted. An error of the wire or of a memory in an offset does not
        last: a leader that is asked again and again reads from the disk, and finds out. A leader looks before it
        shows a hole (`Log.read`), so to ask it again is enough, but not for the first hole that we are to have.
        """
        shown = self._count_hole(batches)
        log = self.partition.log
        has_holes = log.compacted or log.active_segment.may_have_gaps
        if shown > (1 if has_holes else GAP_CONFIRMED_AFTER):
            return GapPolicy.IF_REPEATED
        return GapPolicy.IF_NEXT_BATCH_FITS if has_holes else GapPolicy.NONE

    def _count_hole(self, batches: memoryview) -> int:
        """How often in a row the leader showed the same hole behind our end; 0 if there is none."""
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

    def truncate_to(self, diverging: EpochEnd, *, leader_epoch: int, log_start_offset: int) -> int:
        """Cut the log where it left the leader's; returns the new log end, from which to fetch again.

        An epoch that this log does not have is cut down to the end of the one before it, and the next fetch asks on.
        This log begins anew at the leader's `log_start_offset` if the two parted before that.
        """
        self._require(leader_epoch)
        log = self.partition.log
        if log.log_start_offset < log_start_offset and diverging.end_offset <= log_start_offset:
            # The leader has dropped the epochs before. What it names is its log start, and nothing of what this log has
            # before that is known to be equal: if the new log start is lost with the power, it would be committed.
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
        partition.log.on_high_watermark_updated(partition.high_watermark)  # markers that were read back
        offset = min(offset, partition.log.log_end_offset)  # compaction may have left a hole before it
        partition.host.log_event("log_truncated", partition, log_end_offset=offset, before=before)
        if partition.high_watermark > offset:
            partition.host.log_event(
                "committed_records_truncated", partition, high_watermark=partition.high_watermark
            )
            partition.high_watermark = offset

    def restart_at(self, offset: int, *, leader_epoch: int) -> None:
        """Drop everything and continue at the leader's log start: what lies between is gone from the leader."""
        self._require(leader_epoch)
        partition = self.partition
        self._check_cut(offset)
        before = partition.log.log_end_offset
        partition.log.truncate_fully_and_start_at(offset)
        partition.high_watermark = offset
        partition.host.log_event("log_restarted", partition, log_start_offset=offset, before=before)

    def _check_cut(self, offset: int) -> None:
        """Fail the replica and raise KafkaStorageError if a cut would take committed records that must not be lost."""
        partition, log = self.partition, self.partition.log
        committed = partition.high_watermark
        if offset >= committed or not partition.host.flush_before_commit:
            return
        if log.latest_epoch > self.leader_epoch or log.epoch_at(committed - 1) < self._unclean_epoch:
            return  # rot, since no leader has written in that epoch yet; or the metadata says that they are lost
        reason = f"leader {self.leader} lacks committed records from offset {offset} to {committed - 1}"
        partition.fail_following(reason)
        raise KafkaStorageError(reason)

    def _require(self, leader_epoch: int) -> None:
        if leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower()


def up_to_epoch(records: memoryview, leader_epoch: int) -> memoryview:
    """Return the whole batches before the first one of a later epoch (KAFKA-18723); a cut-off last batch stays out."""
    position = 0
    size = len(records)
    while position + _BATCH_START.size <= size:
        _, length, epoch = _BATCH_START.unpack_from(records, position)
        end = position + _BATCH_LENGTH_FROM + length
        if epoch > leader_epoch or length <= 0 or end > size:
            break
        position = end
    return records[:position]
