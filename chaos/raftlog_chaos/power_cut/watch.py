"""Marks: the files that nodes create and rename, which show their present operation."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from raftlog.base.types import METADATA_FOLDER

IN_CREATE: Final = 0x100
IN_MOVED_TO: Final = 0x80
IN_ISDIR: Final = 0x40000000
HEADER: Final = struct.Struct("iIII")
READ_BYTES: Final = 1 << 16

ROLL: Final = "segment-rolled"
SNAPSHOT: Final = ("snapshot-begun", "snapshot-named", "journal-shortened")
COMPACTION: Final = ("compaction-begun", "compaction-sealed", "compaction-named")
CHECKPOINT: Final = "checkpoint-written"

_OF_PARTITIONS: Final = (
    (re.compile(r"C (?!0{20})\d{20}\.log"), ROLL),
    (re.compile(r"C \d{20}\.log\.cleaned"), COMPACTION[0]),
    (re.compile(r"M \d{20}\.log\.swap"), COMPACTION[1]),
    (re.compile(r"M \d{20}\.log"), COMPACTION[2]),
)
_OF_METADATA: Final = (
    (re.compile(r"C \d{20}\.snapshot\.tmp"), SNAPSHOT[0]),
    (re.compile(r"M \d{20}\.snapshot"), SNAPSHOT[1]),
    (re.compile(r"M quorum\.wal"), SNAPSHOT[2]),
)
_OF_DATA: Final = ((re.compile(r"M recovery-point-offset-checkpoint"), CHECKPOINT),)
_OF_FOLDERS: Final[Mapping[str, Sequence[tuple[re.Pattern[str], str]]]] = {
    METADATA_FOLDER: _OF_METADATA,
    "data": _OF_DATA,
}


def mark_of(folder: str, name: str, *, created: bool) -> str | None:
    """Return the meaning of a new file (`created`) or renamed file of this name in this folder; None: it has none."""
    known = _OF_FOLDERS.get(folder, _OF_PARTITIONS)
    told = f"{'C' if created else 'M'} {name}"
    return next((mark for pattern, mark in known if pattern.fullmatch(told)), None)


class Watch:
    """Calls `report` with each mark below the data folders of nodes, from a thread of its own."""

    def __init__(self, folders: list[Path], report: Callable[[str], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._report = report
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC)
        self._paths: dict[int, Path] = {}
        for folder in folders:
            self._add(folder)
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def _add(self, folder: Path) -> None:
        """Watch a folder and its subfolders."""
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), IN_CREATE | IN_MOVED_TO)
        if number < 0:
            return  # it is gone already
        self._paths[number] = folder
        for each in folder.iterdir():
            if each.is_dir():
                self._add(each)

    def _run(self) -> None:
        while True:
            read = os.read(self._fd, READ_BYTES)
            position = 0
            while position < len(read):
                number, mask, _, length = HEADER.unpack_from(read, position)
                position += HEADER.size
                name = os.fsdecode(read[position : position + length].rstrip(b"\0"))
                position += length
                self._take(self._paths[number], name, mask)

    def _take(self, folder: Path, name: str, mask: int) -> None:
        if mask & IN_ISDIR:
            self._add(folder / name)
            return
        mark = mark_of(folder.name, name, created=bool(mask & IN_CREATE))
        if mark is not None:
            self._report(mark)
