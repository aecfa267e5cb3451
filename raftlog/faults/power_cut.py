"""A power cut, applied to the files of a killed process: unsynced writes are lost, torn, or survive, by chance.

POSIX allows each of these outcomes:

- In a file, a prefix of the unsynced writes survives, the last perhaps torn, or any of their sectors survive.
- Beyond the file's durable end, gaps between surviving sectors have zeros or garbage.
- In a folder, a prefix of the unsynced creations, renames and removals survives.
- Synced bytes never change.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from raftlog.faults.forgetful_disk import aside, journal_of
from raftlog.faults.unsynced import Changed, Fate, Named, Renaming, load

SECTOR_BYTES: Final = 512
"""A sector is written whole or not at all."""
MERCILESS_SHARE: Final = 0.25
"""Probability that a power cut loses all unsynced changes."""
GARBAGE_SHARE: Final = 0.25
"""Probability that the gaps in a torn file have garbage instead of zeros."""


class Loss(NamedTuple):
    """The number of changes that a power cut undid."""

    files: int
    """Files with changed contents."""
    names: int
    """Creations, renames and removals that were undone."""


class _Redo(NamedTuple):
    """An undone change of a file, with the bytes that it wrote, or None if it truncated the file."""

    position: int
    written: bytes | None
    fate: Fate


def cut_power(folders: Sequence[str], chance: random.Random | None) -> Loss:
    """Change the data folders of a killed node to a state that a power cut could leave.

    `folders` are the folders of its disk. Without a journal they stay unchanged. If `chance` is None, only durable data
    survives, as also in MERCILESS_SHARE of the other power cuts.
    """
    unsynced = load(journal_of(folders))
    if chance is not None and chance.random() < MERCILESS_SHARE:
        chance = None
    roots = [*folders, *(str(aside(folder)) for folder in folders)]
    paths = {os.lstat(path).st_ino: path for root in roots for path in _walk(root)}
    files = names = 0
    for inode, contents in unsynced.contents.items():
        if contents.changes and inode in paths:
            files += _cut_file(paths[inode], contents.changes, chance)
    undone = [
        (paths[inode], each.changes[chance.randint(0, len(each.changes)) if chance else 0 :])
        for inode, each in unsynced.names.items()
        if each.changes and inode in paths
    ]
    # Inner folders first, since undoing the creation of an outer folder removes them.
    for path, changes in sorted(undone, key=lambda each: -each[0].count("/")):
        names += _undo_names(path, changes)
    for folder in folders:
        shutil.rmtree(aside(folder), ignore_errors=True)
    return Loss(files, names)


def at_risk(folders: Sequence[str]) -> dict[str, int]:
    """Return the number of unsynced bytes of each file in the folders, which a power cut could lose now.

    For a running node the numbers are a moment old. Files of which only the name is not durable do not count.
    """
    contents = load(journal_of(folders)).contents
    found = {}
    for path in (path for folder in folders for path in _walk(folder)):
        try:
            inode = os.lstat(path).st_ino
        except FileNotFoundError:
            continue
        changes = contents[inode].changes if inode in contents else ()
        if size := sum(change.length or 0 for change in changes if change.fate is not Fate.DURABLE):
            found[path] = size
    return found


def _walk(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        yield folder
        yield from (os.path.join(folder, name) for name in names)


# -- contents -------------------------------------------------------------------------------------------------------


def _cut_file(path: str, changes: list[Changed], chance: random.Random | None) -> bool:
    """Undo the pending changes of a file, except those chosen by chance (None: undo all). Return whether it changed."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        before = os.pread(fd, os.fstat(fd).st_size, 0)
        undone = [_undo(fd, change) for change in reversed(changes)][::-1]
        pending = [each for each in undone if each.fate is Fate.PENDING]
        for each in undone:
            if each.fate is Fate.DURABLE:
                _redo(fd, each)
        if chance is not None:
            _survive(fd, pending, chance)
        return os.pread(fd, os.fstat(fd).st_size, 0) != before
    finally:
        os.close(fd)


def _undo(fd: int, change: Changed) -> _Redo:
    written = None if change.length is None else os.pread(fd, change.length, change.position)
    os.ftruncate(fd, change.old_size)
    os.pwrite(fd, change.old, change.position)
    return _Redo(change.position, written, change.fate)


def _redo(fd: int, change: _Redo) -> None:
    if change.written is None:
        os.ftruncate(fd, change.position)
    else:
        os.pwrite(fd, change.written, change.position)


def _survive(fd: int, pending: list[_Redo], chance: random.Random) -> None:
    durable_end = os.fstat(fd).st_size
    surviving = _torn_prefix(pending, chance) if chance.random() < 0.5 else _scrambled(pending, chance)
    survived = list(surviving)
    if survived and chance.random() < GARBAGE_SHARE:
        end = max(each.position + len(each.written or b"") for each in survived)
        os.pwrite(fd, chance.randbytes(max(0, end - durable_end)), durable_end)
    for each in survived:
        _redo(fd, each)


def _torn_prefix(pending: list[_Redo], chance: random.Random) -> Iterator[_Redo]:
    kept = chance.randint(0, len(pending))
    yield from pending[:kept]
    if kept < len(pending) and (written := pending[kept].written):
        yield pending[kept]._replace(written=written[: chance.randrange(len(written))])


def _scrambled(pending: list[_Redo], chance: random.Random) -> Iterator[_Redo]:
    for each in pending:
        if each.written is None:
            if chance.random() < 0.5:
                yield each
            continue
        start = 0
        while start < len(each.written):
            position = each.position + start
            end = start + SECTOR_BYTES - position % SECTOR_BYTES
            if chance.random() < 0.5:
                yield _Redo(position, each.written[start:end], each.fate)
            start = end


# -- names ----------------------------------------------------------------------------------------------------------


def _undo_names(folder: str, changes: Sequence[Renaming]) -> int:
    return sum(_undo_name(folder, change) for change in reversed(changes))


def _undo_name(folder: str, change: Renaming) -> bool:
    """Undo one change of a folder, unless the process was killed before that change was made."""
    path = f"{folder}/{change.name}"
    if isinstance(change, Named):
        if _inode(path) != change.inode:
            return False
        if change.former:
            os.rename(path, f"{folder}/{change.former}")
        elif os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    if change.grave and os.path.lexists(change.grave):
        os.rename(change.grave, path)
    return True


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return -1
