"""Detects by leader epochs that a reader's log diverges from its leader's (KIP-320, KIP-595). Such a reader gets no
records.

The reader is a follower or a consumer. It sends its next offset, and the epoch of the record before. These may be of a
log that this leader never had, or may have rotted on either disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.base.errors import KafkaStorageError, OffsetOutOfRange
from raftlog.base.types import NO_EPOCH, UNKNOWN_EPOCH_END, EpochEnd

if TYPE_CHECKING:
    from raftlog.storage.log import Log


def check_position(
    log: Log, leader_epoch: int, offset: int, last_fetched_epoch: int
) -> tuple[int, EpochEnd | None] | None:
    """Return OFFSET_OUT_OF_RANGE, or 0 and the point where the reader's log diverges; None if it does not."""
    if log.damage is not None and offset >= log.damage.offset:
        raise KafkaStorageError("the log is damaged here")
    in_range = log.log_start_offset <= offset <= log.log_end_offset
    if in_range and (last_fetched_epoch < 0 or last_fetched_epoch == leader_epoch):
        return None
    diverging = None
    if last_fetched_epoch >= 0 and offset >= log.log_start_offset:
        end = epoch_end_of(log, leader_epoch, last_fetched_epoch)
        diverging = end if is_diverging(end, offset, last_fetched_epoch) else None
    if diverging is None and in_range:
        return None
    return (0 if diverging is not None else OffsetOutOfRange.code), diverging


def is_diverging(end: EpochEnd, offset: int, last_fetched_epoch: int) -> bool:
    """Return whether the reader's log diverges before `offset`, by where that epoch ends in the leader's log."""
    return end.epoch >= 0 and (end.epoch < last_fetched_epoch or end.end_offset < offset)


def find_rot_before(log: Log, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """Return the offset of divergence if rot changed the epoch of the replica's batch before `offset`.

    The leader's batch is checked first (CorruptMessage); if it is sound, the replica's batch must be truncated.
    """
    known = log.epoch_at(offset - 1)
    if NO_EPOCH in (known, last_fetched_epoch) or known == last_fetched_epoch:
        return None
    log.read(offset - 1, 1, end_offset=offset, checked=True)
    return EpochEnd(known, offset)


def epoch_end_of(log: Log, leader_epoch: int, epoch: int) -> EpochEnd:
    """Return the end of the largest epoch ≤ `epoch` in the log of a leader of `leader_epoch`.

    The log learns of an epoch with its first batch; until then the leader's own is empty, at the log end.
    """
    latest = log.latest_epoch
    if epoch <= latest:
        return log.epoch_end(epoch)
    if epoch > leader_epoch:
        return UNKNOWN_EPOCH_END
    known = epoch if epoch == leader_epoch or latest < 0 else latest
    return EpochEnd(known, log.log_end_offset)
