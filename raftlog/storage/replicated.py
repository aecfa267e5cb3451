"""What a follower holds the leader's bytes to: whole, sound batches that follow each other."""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import BatchHeader, check_crc, iter_headers


def sound_batches(
    records: memoryview, *, end_offset: int, epoch: int, gaps: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch, the first at `end_offset`; one cut off at the end is left out.

    With `gaps`, a batch may also come later: compaction took those before it out of the leader's log.

    CorruptMessage at the first whose CRC fails, whose offset does not follow, or whose leader epoch goes back.
    """
    for position, header in iter_headers(records):
        check_crc(records, position, header)
        is_next = header.base_offset == end_offset or (gaps and header.base_offset > end_offset)
        if not is_next or header.last_offset_delta < 0:
            raise CorruptMessage(f"batch at offset {header.base_offset} does not follow {end_offset}")
        if header.leader_epoch < epoch:
            raise CorruptMessage(f"leader epoch goes back from {epoch} to {header.leader_epoch}")
        yield position, header
        end_offset, epoch = header.end_offset, header.leader_epoch


def has_gap(records: memoryview, *, end_offset: int) -> bool:
    """Say whether batches that go to a log's end leave offsets out; what is not sound is for others to find."""
    try:
        for _, header in iter_headers(records):
            if header.base_offset > end_offset:
                return True
            end_offset = header.end_offset
    except CorruptMessage:
        pass
    return False
