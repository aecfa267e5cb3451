"""Replacing segments by the segment cleaned from them: a crash at any point leaves either the old or the new.

POSIX promises no order between two names of a folder: after a power cut any of the later changes may be on the disk. So
each step is made durable, away from the loop, before the next one relies on it:

1. `seal`: the cleaned bytes are synced under the name `.cleaned`, its indexes under `.swap`;
2. `announce`: `.cleaned` becomes `.swap`. A folder sync. From here on a start that finds `.log.swap` finishes the swap.
   Otherwise an old segment could be gone before the cleaned segment exists;
3. `swap_in`: the snapshots of producers inside go, and the old files become `.deleted`. A folder sync. Otherwise the
   cleaned segment could get its name beside old segments of the same offsets, or their aborted transactions;
4. `take_names`: all `.swap` lose that suffix. No sync is needed: until the next one a start does it again.

So a cleaning costs two folder syncs for each group of segments. Between 2 and 3 the log may be truncated. `revoke`
first removes the announcement durably, since a start would restore the truncated records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftlog.base.disk import Disk, File
from raftlog.storage import producer_snapshots
from raftlog.storage.dropped_segments import HEAD, dropped_offsets, remove_segment
from raftlog.storage.partition_files import offsets_in_names
from raftlog.storage.segment import Segment, segment_path
from raftlog.storage.segment_scanner import SegmentScanner

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_INDEXES: Final = (".index", ".timeindex")


def begin(disk: Disk, directory: str, base_offset: int) -> Segment:
    """Return an empty segment, to be filled and `seal`ed before `announce`."""
    return Segment(disk, directory, base_offset=base_offset, create=True, now_ms=-1, suffix=CLEANED)


def seal(disk: Disk, segment: Segment) -> None:
    """Make the bytes and indexes of a filled segment durable, though not yet their names. Waits for the disk."""
    segment.file.sync()
    segment.dirty = False
    for kind, contents in segment.index_file_contents().items():
        file = disk.open(segment.path + kind + SWAP, create=True)
        try:
            file.truncate(0)
            file.pwritev([contents], 0)
            file.sync()
        finally:
            file.close()


def discard(disk: Disk, segment: Segment) -> None:
    """Remove the files of an unwanted segment."""
    segment.close()
    for path in (segment.file.path, *(segment.path + kind + SWAP for kind in _INDEXES)):
        if disk.exists(path):
            disk.remove(path)


def announce(disk: Disk, cleaned: Segment) -> None:
    """Announce that a sealed segment replaces others; the caller syncs the folder before."""
    _rename(disk, cleaned, ".log" + SWAP)


def revoke(disk: Disk, directory: str, cleaned: Segment) -> None:
    """Remove an announcement durably: the log is about to be truncated."""
    _rename(disk, cleaned, ".log" + CLEANED)
    disk.sync_dir(directory)


def sync_announcement(disk: Disk, directory: str) -> None:
    """Make an announcement durable, before an old segment goes. Waits for the disk."""
    disk.sync_dir(directory)


def sync_exchange(disk: Disk, directory: str) -> None:
    """Make it durable that the old segments have gone, before the cleaned segment has a name. Waits for the disk."""
    disk.sync_dir(directory)


def swap_in(disk: Disk, directory: str, group: Sequence[Segment], cleaned: Segment) -> dict[str, File | None]:
    """Give an announced segment the names of the group; return the group's files by their new paths.

    Readers of them go on. A transaction that a snapshot knows to be open may have lost its marker to compaction, so the
    snapshots inside go too. The caller syncs the folder before `take_names`. OSError leaves a folder that only a
    restart can repair.
    """
    _forget_snapshots(disk, directory, cleaned.base_offset, cleaned.end_offset)
    suffix = _free_suffix(disk, group)
    files: dict[str, File | None] = {}
    for segment in group:
        files.update(dict.fromkeys(segment.rename_for_deletion(suffix)))
        segment.file.path = segment.path + ".log" + suffix
        files[segment.file.path] = segment.file
    return files


def take_names(disk: Disk, cleaned: Segment) -> None:
    """Rename a segment that replaced others to the first of their names."""
    _take_index_names(disk, cleaned.path)
    _rename(disk, cleaned, ".log")


def _rename(disk: Disk, segment: Segment, kind: str) -> None:
    disk.rename(segment.file.path, segment.path + kind)
    segment.file.path = segment.path + kind


def _free_suffix(disk: Disk, group: Sequence[Segment]) -> str:
    """Files that an earlier cleaning replaced may still be there."""
    number = 0
    while any(disk.exists(f"{segment.path}.log.{number}.deleted") for segment in group):
        number += 1
    return f".{number}.deleted"


def _take_index_names(disk: Disk, stem: str) -> None:
    for kind in _INDEXES:
        if disk.exists(stem + kind + SWAP):
            disk.rename(stem + kind + SWAP, stem + kind)


def _forget_snapshots(disk: Disk, directory: str, start_offset: int, end_offset: int) -> None:
    for offset in offsets_in_names(disk.listdir(directory), ".snapshot"):
        if start_offset <= offset < end_offset:
            producer_snapshots.remove(disk, directory, offset)


def complete_swaps(disk: Disk, directory: str, names: list[str]) -> None:
    """Finish the exchanges that a crash interrupted, before a log is opened; `names` of the folder are kept up to date.

    If segments left the head while a swap was announced, the swap had stopped, and the others are all still there.
    """
    swaps = offsets_in_names(names, ".log" + SWAP)
    if not swaps:
        return
    dropped = dropped_offsets(names, HEAD)
    for base_offset in swaps:
        stem = segment_path(directory, base_offset)
        end_offset, is_sound = _read_through(disk, directory, base_offset)
        if not is_sound and disk.exists(stem + ".log"):
            continue  # it has rotted; if any old segment is gone, that shows as damage
        if any(base_offset <= each < end_offset for each in dropped):
            continue
        _forget_snapshots(disk, directory, base_offset, end_offset)
        for old in offsets_in_names(names, ".log"):
            if base_offset <= old < end_offset:
                remove_segment(disk, directory, old)
        disk.sync_dir(directory)
        _take_index_names(disk, stem)
        disk.rename(stem + ".log" + SWAP, stem + ".log")
    names[:] = disk.listdir(directory)


def _read_through(disk: Disk, directory: str, base_offset: int) -> tuple[int, bool]:
    """Return where a cleaned segment ends, and whether it is sound up to there. Its last batch is always kept."""
    segment = Segment(disk, directory, base_offset=base_offset, create=False, now_ms=-1, suffix=SWAP)
    window, position, end_offset = SegmentScanner(segment), 0, base_offset
    while position < segment.size and (header := window.valid_header_at(position)) is not None:
        position, end_offset = position + header.length, header.end_offset
    segment.close()
    return end_offset, 0 < position == segment.size
