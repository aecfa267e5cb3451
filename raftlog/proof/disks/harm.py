"""Damage to a node's folders from outside: one bit flipped, or all its data gone. It knows Kafka's file names only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from raftlog.proof.disks.forgetful import aside
from raftlog.storage import log_directory as names

IDENTITY_AND_CHECKPOINTS: Final = (
    names.META_PROPERTIES,
    names.CLEAN_SHUTDOWN,
    names.RECOVERY_POINTS,
    names.LOG_STARTS,
    names.HIGH_WATERMARKS,
)

LEFT_OVER: Final = ("delete", "stray")
"""How the folders end of partitions that were deleted, or set aside."""


def flip_bit(folders: Sequence[str], topics: Iterable[str], share: float) -> str:
    """Flip a bit in a segment of these topics' partitions, at that share (0 to 1) of all their bytes.

    The node may run: it sees the change at once. Returns the segment's path, "" if there is no byte to hit.
    """
    segments = [(path, path.stat().st_size) for path in _segments(folders, frozenset(topics))]
    position = int(share * 8 * sum(size for _, size in segments))
    for path, size in segments:
        if position < 8 * size:
            _flip(path, *divmod(position, 8))
            return str(path)
        position -= 8 * size
    return ""


def _segments(folders: Sequence[str], topics: frozenset[str]) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted(Path(folder).glob("*-*/*.log"))
        if path.parent.name.rpartition("-")[0] in topics
    ]


def _flip(path: Path, position: int, bit: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes([os.pread(fd, 1, position)[0] ^ 1 << bit]), position)
    finally:
        os.close(fd)


def wipe(folders: Sequence[str]) -> None:
    """Empty data folders of partitions, checkpoints and identity; the node must not run. Its metadata log stays.

    What remains counts as durable: a journal of unsynced changes would be about files that are gone.
    """
    for folder in map(Path, folders):
        shutil.rmtree(aside(str(folder)), ignore_errors=True)
        for path in list(folder.glob("*")):
            _, dash, last = path.name.rpartition("-")
            if path.is_dir() and dash and (last.isdecimal() or last in LEFT_OVER):
                shutil.rmtree(path)
        for name in IDENTITY_AND_CHECKPOINTS:
            (folder / name).unlink(missing_ok=True)
