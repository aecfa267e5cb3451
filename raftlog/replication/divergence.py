"""Where a reader's log parts from its leader's, by leader epochs (KIP-320, KIP-595): such a reader gets no records.

The reader is a follower or a consumer. What it fetched last, an offset and its epoch, may be of a log that this leader
never had, or may have rotted on either disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.base.errors import KafkaStorageError, OffsetOutOfRange
from raftlog.base.types import NO_EPOCH, UNKNOWN_EPOCH_END, EpochEnd
from raftlog.replication.replica_host import PartitionRead

if TYPE_CHECKING:
    from raftlog.replication.leader_role import LeaderRole


def refuse_position(role: LeaderRole, offset: int, last_fetched_epoch: int) -> PartitionRead | None:
    """Return OFFSET_OUT_OF_RANGE, or the point where the reader's log left this one; None if it may read on."""
    log = role.log
    if log.damage is not None and offset >= log.damage.offset:
        raise KafkaStorageError("the log is damaged here")
    start, end = log.log_start_offset, log.log_end_offset
    in_range = start <= offset <= end
    if in_range and (last_fetched_epoch < 0 or last_fetched_epoch == role.leader_epoch):
        return None
    diverging = None
    if last_fetched_epoch >= 0 and offset >= start:
        diverging = _divergence(role, offset, last_fetched_epoch)
    if diverging is None and in_range:
        return None
    error = 0 if diverging is not None else OffsetOutOfRange.code
    partition = role.partition
    return PartitionRead(error, partition.high_watermark, partition.last_stable_offset, start, b"", diverging)


def refuse_rotten_epoch(role: LeaderRole) -> PartitionRead:
    """Return where the replica's log takes up what this leader never heard of: no leader ever wrote in that epoch.

    It rotted on the replica's disk, where no CRC covers it.
    """
    log, high_watermark = role.log, role.partition.high_watermark
    parting = EpochEnd(log.latest_epoch, log.log_end_offset)
    return PartitionRead(0, high_watermark, high_watermark, log.log_start_offset, b"", parting)


def refuse_epoch_before(role: LeaderRole, offset: int, last_fetched_epoch: int) -> PartitionRead | None:
    """Return where to part if the replica's batch before `offset` is of another epoch than the leader's: rot.

    The leader's is checked first (CorruptMessage); if it is sound, the replica's has to go.
    """
    log, high_watermark = role.log, role.partition.high_watermark
    known = log.epoch_at(offset - 1)
    if NO_EPOCH in (known, last_fetched_epoch) or known == last_fetched_epoch:
        return None
    log.read(offset - 1, 1, end_offset=offset, checked=True)
    parting = EpochEnd(known, offset)
    return PartitionRead(0, high_watermark, high_watermark, log.log_start_offset, b"", parting)


def _divergence(role: LeaderRole, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    end = epoch_end_of(role, last_fetched_epoch)
    if end.epoch < 0:
        return None
    return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None


def epoch_end_of(role: LeaderRole, leader_epoch: int) -> EpochEnd:
    """Return the end of the largest epoch ≤ `leader_epoch`.

    The log learns of an epoch with its first batch; until then this leader's own is empty, at the log end.
    """
    log = role.log
    latest = log.latest_epoch
    if leader_epoch <= latest:
        return log.epoch_end(leader_epoch)
    if leader_epoch > role.leader_epoch:
        return UNKNOWN_EPOCH_END
    known = leader_epoch if leader_epoch == role.leader_epoch or latest < 0 else latest
    return EpochEnd(known, log.log_end_offset)
