"""Putting a cleaned segment in the place of those it was made from: a crash at any point leaves the one or the others.

Ordering law: the cleaned bytes are synced under the name `.cleaned`, its indexes under `.swap`. Then, in this order,
snapshots of producers inside are removed, `.cleaned` becomes `.swap`, the old files become `.deleted`, and all `.swap`
lose that suffix, the log last. Names within one folder reach the disk in the order in which they were given, as
dropping segments relies on too. So a start that finds `.log.swap` finishes what was begun; without it nothing was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Disk, File
from raftlog.storage import producer_snapshots
from raftlog.storage.partition_files import offsets_in_names
from raftlog.storage.segment import Segment, segment_path
from raftlog.storage.segment_scanner import SegmentScanner

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_SIDE_KINDS: Final = (".index", ".timeindex")
_KINDS: Final = (*_SIDE_KINDS, ".txnindex", ".txnindex" + CHECKSUMS, ".log")


def begin(disk: Disk, directory: str, base_offset: int) -> Segment:
    """Return an empty segment, to be filled and `seal`ed before `swap_in`."""
    return Segment(disk, directory, base_offset=base_offset, create=True, now_ms=-1, suffix=CLEANED)


def seal(disk: Disk, segment: Segment) -> None:
    """Make a filled segment and its indexes durable. Waits for the disk."""
    segment.file.sync()
    segment.dirty = False
    for kind, contents in segment.index_file_contents().items():
        disk.write_file(segment.path + kind + SWAP, contents)


def discard(disk: Disk, segment: Segment) -> None:
    """Remove what became of a segment that is not wanted after all."""
    segment.close()
    for path in (segment.path + ".log" + CLEANED, *(segment.path + kind + SWAP for kind in _SIDE_KINDS)):
        if disk.exists(path):
            disk.remove(path)


def swap_in(disk: Disk, directory: str, group: Sequence[Segment], cleaned: Segment) -> dict[str, File | None]:
    """Give a sealed segment the names of the group; returns the group's files by their new paths.

    Readers of them go on. A transaction that a snapshot knows to be open may have lost its marker to compaction, so
    the snapshots inside go first. OSError leaves a folder that only a start may judge.
    """
    _forget_snapshots(disk, directory, cleaned.base_offset, cleaned.end_offset)
    disk.rename(cleaned.path + ".log" + CLEANED, cleaned.path + ".log" + SWAP)
    suffix = _free_suffix(disk, group)
    files: dict[str, File | None] = {}
    for segment in group:
        files.update(dict.fromkeys(segment.rename_for_deletion(suffix)))
        segment.file.path = segment.path + ".log" + suffix
        files[segment.file.path] = segment.file
    _take_names(disk, cleaned.path)
    cleaned.file.path = cleaned.path + ".log"
    return files


def _free_suffix(disk: Disk, group: Sequence[Segment]) -> str:
    """Files that an earlier cleaning replaced may still be there."""
    number = 0
    while any(disk.exists(f"{segment.path}.log.{number}.deleted") for segment in group):
        number += 1
    return f".{number}.deleted"


def _take_names(disk: Disk, stem: str) -> None:
    for kind in (*_SIDE_KINDS, ".log"):
        if disk.exists(stem + kind + SWAP):
            disk.rename(stem + kind + SWAP, stem + kind)


def _forget_snapshots(disk: Disk, directory: str, start_offset: int, end_offset: int) -> None:
    for offset in offsets_in_names(disk.listdir(directory), ".snapshot"):
        if start_offset <= offset < end_offset:
            producer_snapshots.remove(disk, directory, offset)


def complete_swaps(disk: Disk, directory: str) -> None:
    """Finish the exchanges that a crash interrupted, before a log is opened."""
    names = disk.listdir(directory)
    for base_offset in offsets_in_names(names, ".log" + SWAP):
        stem = segment_path(directory, base_offset)
        end_offset, is_sound = _read_through(disk, directory, base_offset)
        if not is_sound and disk.exists(stem + ".log"):
            continue  # the first of the old ones is the first to go: all of them are still there
        _forget_snapshots(disk, directory, base_offset, end_offset)
        for old in offsets_in_names(names, ".log"):
            if base_offset <= old < end_offset:
                _remove(disk, segment_path(directory, old))
        _take_names(disk, stem)
        disk.sync_dir(directory)


def _remove(disk: Disk, stem: str) -> None:
    for kind in _KINDS:
        if disk.exists(stem + kind):
            disk.remove(stem + kind)


def _read_through(disk: Disk, directory: str, base_offset: int) -> tuple[int, bool]:
    """Return where a cleaned segment ends, as its last batch is always kept, and whether it is sound up to there."""
    segment = Segment(disk, directory, base_offset=base_offset, create=False, now_ms=-1, suffix=SWAP)
    window, position, end_offset = SegmentScanner(segment), 0, base_offset
    while position < segment.size and (header := window.valid_header_at(position)) is not None:
        position, end_offset = position + header.length, header.end_offset
    segment.close()
    return end_offset, 0 < position == segment.size
