"""Segments that leave a log at one of its ends: a start finishes what a power cut interrupted.

POSIX promises no order between two names of a folder, so after a power cut any of the renames may be missing. A hole in
the middle of the log would pass for damage. Instead of a sync after each file, the suffix says which end the segment
left. A start removes all segments before a segment that left the head, and all after a segment that left the tail. One
renamed file is enough, even an index, so a log is never left without its index of aborted transactions.

Ordering law: a file with either suffix is removed after its folder was synced, a file with `TAIL` also before the log
grows. A log that begins anew has neither.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Disk
from raftlog.storage.partition_files import OFFSET_DIGITS, offsets_in_names

HEAD: Final = ".head.deleted"
"""Suffix of the files of a segment that was dropped with all segments before it. Kafka uses `.deleted`."""
TAIL: Final = ".tail.deleted"
"""Suffix of the files of a segment that was cut off with all segments after it."""
SIDE_KINDS: Final = (".index", ".timeindex", ".txnindex", ".txnindex" + CHECKSUMS)
"""Files beside a segment's `.log` that are useless without it."""
KINDS: Final = (*SIDE_KINDS, ".snapshot", ".log")
"""A snapshot counts where a segment begins: it leaves the log with that."""


def dropped_offsets(names: list[str], suffix: str) -> list[int]:
    """Return the sorted base offsets of the segments of which a file has the suffix."""
    marked = [name for name in names if name.endswith(suffix)]
    kinds = KINDS if marked else ()  # most folders have none, and a start looks at all folders
    return sorted({offset for kind in kinds for offset in offsets_in_names(marked, kind + suffix)})


def finish_drops(disk: Disk, directory: str, names: list[str]) -> int | None:
    """Remove the segments that others of the same drop left behind, durably, and side files without a segment.

    Call it before the files with the suffixes are removed, since they name what else must go. Returns where a cut that
    was interrupted has taken the log's end, None if there was none. `names` of the folder are kept up to date.
    """
    head, tail = dropped_offsets(names, HEAD), dropped_offsets(names, TAIL)
    due = []
    for base in offsets_in_names(names, ".log"):
        if (head and base <= head[-1]) or (tail and base >= tail[0]):
            due.append(base)
    for base in due:
        remove_segment(disk, directory, base)
    if due:
        disk.sync_dir(directory)
        names[:] = disk.listdir(directory)
    _remove_orphans(disk, directory, names)
    return tail[0] if tail else None


def remove_segment(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove a segment's file, and those beside it."""
    for kind in (*SIDE_KINDS, ".log"):
        path = f"{directory}/{base_offset:0{OFFSET_DIGITS}d}{kind}"
        if disk.exists(path):
            disk.remove(path)


def _remove_orphans(disk: Disk, directory: str, names: list[str]) -> None:
    """Remove files beside no log: a later segment at the same offset must not inherit aborted transactions."""
    held = set(offsets_in_names(names, ".log"))
    for kind in SIDE_KINDS:
        for base in offsets_in_names(names, kind):
            if base not in held:
                name = f"{base:0{OFFSET_DIGITS}d}{kind}"
                disk.remove(f"{directory}/{name}")
                names.remove(name)
