"""Validation of the bytes that a follower fetched: whole, sound batches that follow each other."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, BatchHeader, check_crc, iter_headers

_BASE_OFFSET: Final = struct.Struct(">q")


class GapPolicy(Enum):
    """The holes that are accepted as compaction's. No CRC covers a base offset, so a hole is only a claim."""

    NONE = "none"
    IF_NEXT_BATCH_FITS = "the batch after the hole ends where the next one may begin"
    IF_REPEATED = "and the hole that all begins with: the leader was asked again, and had looked"


def iter_valid_batches(
    records: memoryview, *, end_offset: int, epoch: int, gaps: GapPolicy = GapPolicy.NONE
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch, the first at `end_offset`; skip a batch that is cut off at the end.

    With `gaps`, a batch may also come later: compaction took those before it out of the leader's log. It ends before
    a hole that is not to be believed.

    CorruptMessage at the first batch with a bad CRC, an offset that does not follow, or a leader epoch that goes back.
    """
    for position, header in iter_headers(records):
        check_crc(records, position, header)
        is_later = gaps is not GapPolicy.NONE and header.base_offset > end_offset
        if not (is_later or header.base_offset == end_offset) or header.last_offset_delta < 0:
            raise CorruptMessage(f"batch at offset {header.base_offset} does not follow {end_offset}")
        if header.leader_epoch < epoch:
            raise CorruptMessage(f"leader epoch goes back from {epoch} to {header.leader_epoch}")
        if is_later and not _is_believed(records, position, header, gaps):
            return
        yield position, header
        end_offset, epoch = header.end_offset, header.leader_epoch


def _is_believed(records: memoryview, position: int, header: BatchHeader, gaps: GapPolicy) -> bool:
    """Return whether there is a hole before that batch. CorruptMessage if the next batch contradicts it."""
    after = position + header.length
    if after + HEADER_BYTES > len(records):
        return gaps is GapPolicy.IF_REPEATED and position == 0
    following: int = _BASE_OFFSET.unpack_from(records, after)[0]
    if following < header.end_offset:
        raise CorruptMessage(
            f"the batch at offset {header.base_offset} reaches into the next, at {following}"
        )
    return True


def has_gap(records: memoryview, *, end_offset: int, gaps: GapPolicy) -> bool:
    """Return whether batches at a log's end leave offsets out. It does not check that they are sound."""
    if gaps is GapPolicy.NONE:
        return False
    try:
        for position, header in iter_headers(records):
            if header.base_offset > end_offset:
                return _is_believed(records, position, header, gaps)
            end_offset = header.end_offset
    except CorruptMessage:
        pass
    return False
