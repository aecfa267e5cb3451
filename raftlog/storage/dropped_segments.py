"""Renames segments that retention or truncation drops, so that a start can finish a drop after a power cut.

POSIX promises no order between two renames in a folder, so after a power cut any of them may be missing. A gap in the
middle of the log would look like damage. Instead of a sync after each rename, the new suffix tells at which end of the
log the segment was. On start, all segments before a segment with the suffix `HEAD` are removed, and all after a segment
with the suffix `TAIL`. One renamed file is enough for that, even an index file. So no segment is kept without its index
of aborted transactions.

Ordering law: files with these suffixes are removed only after the folder was synced, and files with `TAIL` before the
log grows. A log that begins anew has no such files.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Disk
from raftlog.storage.partition_files import OFFSET_DIGITS, offsets_in_names

HEAD: Final = ".head.deleted"
"""Suffix of a segment's files after it was dropped with all earlier segments. Kafka uses `.deleted`."""
TAIL: Final = ".tail.deleted"
"""Suffix of a segment's files after it was truncated with all later segments."""
SIDE_KINDS: Final = (".index", ".timeindex", ".txnindex", ".txnindex" + CHECKSUMS)
"""Suffixes of the files that are useless without the segment's `.log`."""
KINDS: Final = (*SIDE_KINDS, ".snapshot", ".log")
"""Suffixes of all files of a segment. A producer snapshot belongs to the segment that begins at its offset."""


def dropped_offsets(names: list[str], suffix: str) -> list[int]:
    """Return the sorted base offsets of segments with at least one file with the suffix."""
    marked = [name for name in names if name.endswith(suffix)]
    kinds = KINDS if marked else ()  # a fast path: most folders have none, and a start checks all folders
    return sorted({offset for kind in kinds for offset in offsets_in_names(marked, kind + suffix)})


def finish_drops(disk: Disk, directory: str, names: list[str]) -> int | None:
    """Finish an interrupted drop: remove its remaining segments, durably, and side files without a segment.

    Call it before the files with the suffixes are removed, since they determine which segments to remove. Returns the
    log end of an interrupted truncation, or None. `names` of the folder are updated.
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
    """Remove the files of a segment."""
    for kind in (*SIDE_KINDS, ".log"):
        path = f"{directory}/{base_offset:0{OFFSET_DIGITS}d}{kind}"
        if disk.exists(path):
            disk.remove(path)


def _remove_orphans(disk: Disk, directory: str, names: list[str]) -> None:
    """Remove side files without a `.log`, or a later segment at that offset would inherit aborted transactions."""
    held = set(offsets_in_names(names, ".log"))
    for kind in SIDE_KINDS:
        for base in offsets_in_names(names, kind):
            if base not in held:
                name = f"{base:0{OFFSET_DIGITS}d}{kind}"
                disk.remove(f"{directory}/{name}")
                names.remove(name)
