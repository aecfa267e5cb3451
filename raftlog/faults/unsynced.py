"""The changes that a power cut could take from a node's folders, and a journal of them that survives the process.

The journal holds undo information only: the contents of a file before each unsynced write, and the names in a folder
before each unsynced change. Ordering law: the journal records a change before it is made, and a sync after it
succeeded. The creation of a name is recorded right after, when its inode is known. So whenever the process is killed,
the journal lists all unsynced changes, and none that was reported as durable.

It knows inodes, positions and names; it opens no file but its own journal.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

JOURNAL: Final = "journal"
COMPACT_BYTES: Final = 4 << 20
"""A journal grows to this, or to four times what it was when last written anew, before it is written anew."""

_LENGTH: Final = struct.Struct("<I")


class Fate(IntEnum):
    """The effect of a power cut on a change."""

    PENDING = 0
    """Anything: it survives, in part or whole, or not."""
    LOST = 1
    """It is lost: a sync failed on it, and the kernel took its pages for clean then."""
    DURABLE = 2
    """It survives. Kept only because a lost change lies under it."""


class Changed(msgspec.Struct, tag="c", array_like=True):
    """A file was written at `position`, or cut (or stretched) to it if `length` is None."""

    inode: int
    epoch: int
    """How many syncs of the file had begun."""
    position: int
    length: int | None
    old_size: int
    old: bytes
    """The bytes that were there from `position` on, as far as the change covers them."""
    fate: Fate = Fate.PENDING


class Synced(msgspec.Struct, tag="s", array_like=True):
    """A sync of a file ended that began in `epoch`."""

    inode: int
    epoch: int
    failed: bool = False


class Named(msgspec.Struct, tag="n", array_like=True):
    """A name appeared in a folder: a new file or folder, or a renamed file in the same folder."""

    folder: int
    epoch: int
    name: str
    inode: int
    former: str = ""
    """The name it had before; "" for a new file or folder."""
    grave: str = ""
    """Path of the file that had this name before; "" if none."""


class Removed(msgspec.Struct, tag="r", array_like=True):
    """A name vanished from a folder; what had it lies at `grave`."""

    folder: int
    epoch: int
    name: str
    inode: int
    grave: str


class FolderSynced(msgspec.Struct, tag="f", array_like=True):
    """A sync of a folder ended that began in `epoch`."""

    folder: int
    epoch: int


class Forgotten(msgspec.Struct, tag="x", array_like=True):
    """An inode is free, or new: what is known of its number is about another file."""

    inode: int


Renaming = Named | Removed
Record = Changed | Synced | Named | Removed | FolderSynced | Forgotten

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Contents:
    """The unsynced changes of one file, oldest first."""

    __slots__ = ("changes", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        """Syncs that have begun."""
        self.changes: list[Changed] = []

    def add(self, change: Changed) -> None:
        """Record a change; join it to the last if it continues it at the end of the file."""
        self.epoch = max(self.epoch, change.epoch)
        last = self.changes[-1] if self.changes else None
        if last is not None and _goes_on(last, change):
            assert last.length is not None
            assert change.length is not None
            last.length += change.length
        else:
            self.changes.append(change)

    def sync(self, synced: Synced) -> None:
        """Settle the fate of what a sync covered."""
        for change in self.changes:
            if change.fate is Fate.PENDING and change.epoch <= synced.epoch:
                change.fate = Fate.LOST if synced.failed else Fate.DURABLE
        while self.changes and self.changes[0].fate is Fate.DURABLE:
            del self.changes[0]


def _goes_on(last: Changed, change: Changed) -> bool:
    return (
        last.length is not None
        and change.length is not None
        and last.fate is change.fate is Fate.PENDING
        and last.epoch == change.epoch
        and change.position == change.old_size == last.position + last.length
    )


class Names:
    """The unsynced changes of one folder, oldest first."""

    __slots__ = ("changes", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self.changes: list[Renaming] = []

    def add(self, change: Renaming) -> None:
        self.epoch = max(self.epoch, change.epoch)
        self.changes.append(change)

    def sync(self, synced: FolderSynced) -> list[str]:
        """Forget the changes that a sync covered; return the graves that are no longer needed."""
        durable = [change for change in self.changes if change.epoch <= synced.epoch]
        self.changes = [change for change in self.changes if change.epoch > synced.epoch]
        return [change.grave for change in durable if change.grave]


class Unsynced:
    """The changes that are not durable, by inode."""

    def __init__(self) -> None:
        self.contents: dict[int, Contents] = {}
        self.names: dict[int, Names] = {}

    def apply(self, record: Record) -> list[str]:
        """Take one record into account; returns the graves that are of no more use."""
        match record:
            case Changed():
                self.contents.setdefault(record.inode, Contents()).add(record)
            case Synced():
                if record.inode in self.contents:
                    self.contents[record.inode].sync(record)
            case Named() | Removed():
                self.names.setdefault(record.folder, Names()).add(record)
            case FolderSynced():
                return self.names[record.folder].sync(record) if record.folder in self.names else []
            case Forgotten():
                self.contents.pop(record.inode, None)
                gone = self.names.pop(record.inode, Names())
                return [change.grave for change in gone.changes if change.grave]
        return []

    def records(self) -> Iterator[Record]:
        """Yield records that lead to this state."""
        for contents in self.contents.values():
            yield from contents.changes
        for names in self.names.values():
            yield from names.changes

    def graves(self) -> set[str]:
        """Return the paths at which something lies that may be needed again."""
        return {change.grave for names in self.names.values() for change in names.changes if change.grave}


def load(path: Path) -> Unsynced:
    """Return the changes in a journal; none without a journal. An incomplete last record was never acted upon."""
    unsynced = Unsynced()
    try:
        journal = path.read_bytes()
    except FileNotFoundError:
        return unsynced
    position = 0
    while position + _LENGTH.size <= len(journal):
        end = position + _LENGTH.size + _LENGTH.unpack_from(journal, position)[0]
        if end > len(journal):
            break
        unsynced.apply(_decode(memoryview(journal)[position + _LENGTH.size : end]))
        position = end
    return unsynced


class Journal:
    """The open journal of a running process, and the state that it leads to. Not safe for threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = load(path)
        self._fd = -1
        self._bytes = 0
        self._compact_at = 0
        self._write_anew()

    def note(self, record: Record) -> list[str]:
        """Write a record down and take it into account; returns the graves that are of no more use."""
        body = _encode(record)
        self._bytes += os.write(self._fd, _LENGTH.pack(len(body)) + body)
        freed = self.state.apply(record)
        if self._bytes > self._compact_at:
            self._write_anew()
        return freed

    def _write_anew(self) -> None:
        frames = []
        for record in self.state.records():
            body = _encode(record)
            frames += [_LENGTH.pack(len(body)), body]
        image = b"".join(frames)
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(image)
        temporary.replace(self._path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._bytes = len(image)
        self._compact_at = max(COMPACT_BYTES, 4 * self._bytes)
