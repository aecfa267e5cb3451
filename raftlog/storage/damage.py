"""Detection of damage, as distinct from a torn tail; damaged bytes are marked, set aside, and never served.

A sector that was never written reads as zeros. Bytes that now differ from what was written have rotted.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from raftlog.base.checked_files import read_checked, remove_checked, write_checked
from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, check_crc, read_header
from raftlog.storage.partition_files import DAMAGE_MARK
from raftlog.storage.segment import Segment
from raftlog.storage.segment_scanner import SEQUENTIAL_READ_BYTES, SegmentBytes, SegmentScanner

SECTOR_BYTES: Final = 512
"""The size that a device writes whole or not at all; a sector that was never written reads as zeros."""
_LENGTH_START, _LENGTH_END, _MAGIC_END = 8, 12, 17
HOLE_SEARCH_BYTES: Final = 64 * 1024 * 1024


class Damage(NamedTuple):
    """Records in [offset, until_offset) are bad or missing though they may have been acknowledged."""

    offset: int
    until_offset: int


UNKNOWN_DAMAGE: Final = Damage(0, 2**63 - 1)
"""It ends when the leader takes the replica back into the ISR, not at any offset."""


def merge_damage(old: Damage | None, new: Damage) -> Damage:
    if old is None:
        return new
    return Damage(min(old.offset, new.offset), max(old.until_offset, new.until_offset))


def find_next_valid_batch(segment: SegmentBytes, position: int, offset: int) -> int | None:
    """Return the position of the first sound batch after a bad batch, found by the pattern of its header."""
    window = SegmentScanner(segment)
    high_bytes = re.escape((offset >> 32).to_bytes(4, "big"))
    # All of it in the lookahead: matches may overlap, as a batch often ends with zeros and an offset begins with them.
    pattern = re.compile(b"(?=" + high_bytes + b".{12}" + bytes([MAGIC]) + b")", re.DOTALL)
    position += 1
    while position < segment.size:
        chunk = segment.file.pread(SEQUENTIAL_READ_BYTES + HEADER_BYTES, position)
        for match in pattern.finditer(chunk):
            header = window.valid_header_at(position + match.start())
            if header is not None and header.base_offset > offset:
                return position + match.start()
        position += SEQUENTIAL_READ_BYTES
    return None


def is_torn_write(segment: Segment, position: int, stop: int, offset: int) -> bool:
    """Return whether the bad batch at `position` was never written whole. A sound batch or the file's end is at `stop`.

    Its start, or its part of some sector, is zero. That is proof only where the batch would hold other bytes, so a
    flipped bit does not pass for a hole.
    """
    start = segment.file.pread(_MAGIC_END, position)
    if stop - position < _MAGIC_END or not any(start[_LENGTH_START:]):
        return True
    length = int.from_bytes(start[_LENGTH_START:_LENGTH_END], "big") + LENGTH_OVERHEAD
    end = position + length if position + length <= stop else stop
    usual_start = offset.to_bytes(8, "big") + bytes(3) + b"\1"
    at = position
    while at < min(end, position + HOLE_SEARCH_BYTES):
        size = min(SECTOR_BYTES - at % SECTOR_BYTES, end - at)
        piece = segment.file.pread(size, at)
        telling = any(usual_start[:size]) if at == position else size > 1
        if telling and piece.count(0) == len(piece):
            return True
        at += size
    return False


def is_cut_off(segment: Segment, position: int) -> bool:
    """Return whether the file ends before the batch at `position` does, by the batch's own length.

    Not so if the CRC holds up to the file's end: then the length, which the CRC does not cover, has rotted.
    """
    rest = segment.file.pread(segment.size - position, position)
    try:
        header = read_header(rest)
    except CorruptMessage:
        return len(rest) < HEADER_BYTES
    if header.length <= len(rest):
        return False
    try:
        check_crc(rest, 0, header._replace(length=len(rest)))
    except CorruptMessage:
        return True
    return False


def first_bad_offset(segment: Segment, offset: int) -> int:
    """Return the offset of the first unsound batch, from the batch that holds `offset` on.

    The segment's end offset if all are: then its index was at fault.
    """
    window = SegmentScanner(segment)
    position, bad = _sound_begin(segment, window, offset)
    before_hole = bad
    while position < segment.size and (header := window.valid_header_at(position)) is not None:
        if not segment.follows(header, bad) or header.end_offset > segment.end_offset:
            # if the first comes after a hole, either of two overlapping batches may be misplaced
            return before_hole if header.base_offset < bad else bad
        before_hole = bad if header.base_offset > bad else header.end_offset
        position, bad = position + header.length, header.end_offset
    return bad


def set_aside(disk: Disk, segment: Segment, offset: int) -> None:
    """Move a segment's bytes from a bad offset on into a `.damaged` file, durably."""
    position = _position_after(segment, offset)
    quarantine_bytes(disk, segment, position, offset)
    segment.truncate(position, offset)


def _sound_begin(segment: Segment, window: SegmentScanner, offset: int) -> tuple[int, int]:
    """Return the position and offset of the last indexed batch before an offset, or of the segment's first."""
    entry = segment.index.entry_before(offset)
    if entry is not None:
        header = window.valid_header_at(entry[1])
        if header is not None and header.last_offset == entry[0]:
            return entry[1], header.base_offset
    return 0, segment.base_offset


def _position_after(segment: Segment, offset: int) -> int:
    """Return the position where the sound batches before `offset` end. It uses neither the index nor what follows."""
    window = SegmentScanner(segment)
    position, end_offset = _sound_begin(segment, window, offset)
    while end_offset < offset and (header := window.valid_header_at(position)) is not None:
        position, end_offset = position + header.length, header.end_offset
    return position


def write_damage_mark(disk: Disk, directory: str, damage: Damage) -> None:
    """Make the mark of a damaged log durable."""
    content = f"0\n{damage.offset} {damage.until_offset}\n".encode()
    write_checked(disk, f"{directory}/{DAMAGE_MARK}", content, copy=True)


def remove_damage_mark(disk: Disk, directory: str) -> None:
    """Remove the mark durably, if it exists."""
    remove_checked(disk, f"{directory}/{DAMAGE_MARK}")


def read_damage_mark(disk: Disk, directory: str, *, unchecked_ok: bool) -> Damage | None:
    """Return the damage that is marked; all of the log, and more, if the mark is there but is wrong."""
    path = f"{directory}/{DAMAGE_MARK}"
    if not disk.exists(path):
        return None
    content = read_checked(disk, path, unchecked_ok=unchecked_ok) or b""
    try:
        _, line, _ = content.decode("ascii").split("\n")
        offset, until_offset = line.split(" ")
        return Damage(int(offset), int(until_offset))
    except ValueError:
        return UNKNOWN_DAMAGE


def quarantine_bytes(disk: Disk, segment: Segment, position: int, offset: int) -> None:
    """Copy a segment's bytes from a position on to `<offset>.damaged`: they may be the only copy."""
    directory = segment.path.rpartition("/")[0]
    target = disk.open(f"{directory}/{offset:020d}.damaged", create=True)
    try:
        for start in range(position, segment.size, SEQUENTIAL_READ_BYTES):
            chunk = segment.file.pread(min(SEQUENTIAL_READ_BYTES, segment.size - start), start)
            target.pwritev([chunk], start - position)
        target.sync()
    finally:
        target.close()
