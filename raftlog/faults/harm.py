"""Damage to a node's folders from outside: one bit flipped, or all its data gone. It knows Kafka's file names only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import TopicPartition
from raftlog.faults.forgetful_disk import aside
from raftlog.records.header import BatchHeader, iter_headers
from raftlog.storage import log_directory as names

EPOCH_FROM: Final = 12
EPOCH_END: Final = 16
"""The position of a batch's leader epoch: no CRC covers it, only its neighbours reveal it."""


class Guarded(NamedTuple):
    """Bytes of a batch in which every reader must notice rot."""

    base_offset: int
    end_offset: int
    where: range


def guarded_batches(segment: bytes) -> list[Guarded]:
    """Return where in a segment's bytes rot must be noticed, batch by batch: its first 16 bytes, then the others.

    Not in the last batch, which may pass for a torn tail. Nor in the leader epoch of a batch at the border of two
    epochs: there it may rot into another valid epoch.
    """
    batches: list[tuple[int, BatchHeader]] = []
    try:
        batches.extend(iter_headers(segment))
    except CorruptMessage:
        pass
    found = []
    for at, (position, header) in enumerate(batches[:-1]):
        around = {each.leader_epoch for _, each in batches[max(at - 1, 0) : at + 2]}
        head = EPOCH_END if at and len(around) == 1 else EPOCH_FROM
        offsets = header.base_offset, header.end_offset
        found.append(Guarded(*offsets, range(position, position + head)))
        found.append(Guarded(*offsets, range(position + EPOCH_END, position + header.length)))
    return found


class Rot(NamedTuple):
    """A bit that was flipped in the segment at `path`. `is_due`: a node that starts now reads it and must notice."""

    path: str
    is_due: bool


def flip_bit(folders: Sequence[str], topics: Iterable[str], share: float) -> Rot | None:
    """Flip a bit in a batch of these topics' partitions, at that share (0 to 1) of all that must be noticed.

    CRCs guard these bytes (`guarded_batches`). The node may run: it sees the change at once. None: no byte to hit.
    """
    batches = [
        (path, batch)
        for path in _segments(folders, frozenset(topics))
        for batch in guarded_batches(path.read_bytes())
    ]
    position = int(share * 8 * sum(len(batch.where) for _, batch in batches))
    for path, batch in batches:
        if position < 8 * len(batch.where):
            at, bit = divmod(position, 8)
            _flip(path, batch.where[at], bit)
            return Rot(str(path), _is_checked_at_start(path, batch.base_offset))
        position -= 8 * len(batch.where)
    return None


def _is_checked_at_start(path: Path, offset: int) -> bool:
    """After a clean stop a log is trusted, otherwise it is checked from its recovery point on."""
    topic, _, index = path.parent.name.rpartition("-")
    checkpoint, partition = path.parent.parent / names.RECOVERY_POINTS, TopicPartition(topic, int(index))
    points = names.decode_offsets(checkpoint.read_bytes()) if checkpoint.exists() else {}
    return offset >= points.get(partition, 0) and not (path.parent.parent / names.CLEAN_SHUTDOWN).exists()


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
    """Empty a node's folders, its metadata log and its identity included; the node must not run.

    The journal of unsynced changes is removed too: it would be about files that are gone.
    """
    for folder in map(Path, folders):
        shutil.rmtree(aside(str(folder)), ignore_errors=True)
        for path in list(folder.glob("*")):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
