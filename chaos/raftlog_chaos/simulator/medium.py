"""The state of a simulated disk: files and folders in the page cache, and their durable state on the platter.

Contents survive a crash as of their last sync. Of the later writes a seeded part survives: a torn prefix, or any subset
of the sectors. Names survive as of the last sync of their folder. Of the later changes a seeded part survives: a
prefix, or any subset. POSIX promises no order between two changes of one folder, and a rename is whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SECTOR_BYTES = 512
"""A sector is written whole or not at all."""

_Change = tuple[int, bytes | None]
"""(position, data written there), or (size, None) for a truncation."""


def _apply(content: bytearray, change: _Change) -> None:
    position, written = change
    if written is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(written)] = written


class Inode:
    """A file's contents in the page cache (`content`) and on the platter (`durable`)."""

    __slots__ = (
        "content",
        "durable",
        "durable_modified_ms",
        "flipped",
        "modified_ms",
        "rotten",
        "unsynced",
    )

    def __init__(self, now_ms: int) -> None:
        self.modified_ms = self.durable_modified_ms = now_ms
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[_Change] = []
        self.rotten: dict[int, int] = {}
        """Bits that flipped on the platter while the page cache has the right value, by position."""
        self.flipped: set[int] = set()  # where a bit rotted, seen or not, and was not overwritten since

    def copy(self) -> Inode:
        """Return a copy, with the same page cache and the same durable bytes."""
        copied = Inode(self.modified_ms)
        copied.durable_modified_ms = self.durable_modified_ms
        copied.content[:], copied.durable[:] = self.content, self.durable
        copied.unsynced = list(self.unsynced)
        copied.rotten, copied.flipped = dict(self.rotten), set(self.flipped)
        return copied

    def change(self, change: _Change) -> None:
        _apply(self.content, change)
        self.unsynced.append(change)
        if self.flipped:
            position, written = change
            end = float("inf") if written is None else position + len(written)
            self.rotten = {at: bits for at, bits in self.rotten.items() if not position <= at < end}
            self.flipped = {at for at in self.flipped if not position <= at < end}

    def rot(self, position: int, bit: int) -> None:
        self.durable[position] ^= 1 << bit
        self.rotten[position] = self.rotten.get(position, 0) ^ 1 << bit
        self.flipped.add(position)

    def evict(self) -> None:
        """Evict the file from the page cache, so that programs read the platter."""
        for position, bits in self.rotten.items():
            self.content[position] ^= bits
        self.rotten.clear()

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()
        self.durable_modified_ms = self.modified_ms

    def drop_unsynced(self) -> None:
        """Fail an fsync: the pages count as clean. Programs still read them, but they are never written."""
        self.unsynced.clear()

    def crash(self, chance: random.Random) -> None:
        for change in (
            _torn_prefix(self.unsynced, chance)
            if chance.random() < 0.5
            else _scrambled(self.unsynced, chance)
        ):
            _apply(self.durable, change)
        self.unsynced.clear()
        self.rotten.clear()
        self.content = bytearray(self.durable)
        self.modified_ms = self.durable_modified_ms


def _torn_prefix(changes: list[_Change], chance: random.Random) -> Iterator[_Change]:
    kept = chance.randint(0, len(changes))
    yield from changes[:kept]
    if kept < len(changes):
        position, written = changes[kept]
        if written:
            yield position, written[: chance.randrange(len(written))]


def _scrambled(changes: list[_Change], chance: random.Random) -> Iterator[_Change]:
    for position, written in changes:
        if written is None:
            if chance.random() < 0.5:
                yield position, None
            continue
        start = 0
        while start < len(written):
            end = start + SECTOR_BYTES - (position + start) % SECTOR_BYTES
            if chance.random() < 0.5:
                yield position + start, written[start:end]
            start = end


_NameChange = dict[str, "Inode | Folder | None"]
"""The node of each name after the change, or None. A rename changes two names; a removal or creation changes one."""


class Folder:
    """The names in a folder, present and durable, and the unsynced changes. Each change is atomic."""

    __slots__ = ("durable", "names", "unsynced")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.unsynced: list[_NameChange] = []

    def copy(self) -> Folder:
        """Return the same names, with copies of all files and folders below."""
        copies: dict[int, Inode | Folder] = {}

        def copy_of(node: Inode | Folder) -> Inode | Folder:
            """A node may be below several names: the present name, the durable name, and the names in changes."""
            if id(node) not in copies:
                copies[id(node)] = node.copy()
            return copies[id(node)]

        copied = Folder()
        copied.names = {name: copy_of(node) for name, node in self.names.items()}
        copied.durable = {name: copy_of(node) for name, node in self.durable.items()}
        copied.unsynced = [
            {name: node if node is None else copy_of(node) for name, node in change.items()}
            for change in self.unsynced
        ]
        return copied

    def change(self, change: _NameChange) -> None:
        _assign(self.names, change)
        self.unsynced.append(change)

    def is_risked(self, name: str, successor: Inode | Folder) -> bool:
        """Return whether a power cut may leave neither the durable file of that name nor all bytes of its successor."""
        replaced = self.durable.get(name)
        return (
            isinstance(replaced, Inode)
            and bool(replaced.durable)
            and isinstance(successor, Inode)
            and bool(successor.unsynced)
        )

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def crash(self, chance: random.Random) -> None:
        for change in _surviving(self.unsynced, chance):
            _rename(self.durable, change)
        self.unsynced.clear()
        self.names = dict(self.durable)
        for name in sorted(self.names):
            self.names[name].crash(chance)


def _surviving(changes: list[_NameChange], chance: random.Random) -> list[_NameChange]:
    """Return the name changes that survive a power loss: a prefix, or in half of all cases any subset."""
    if chance.random() < 0.5:
        return changes[: chance.randint(0, len(changes))]
    rate = chance.random()
    return [change for change in changes if chance.random() < rate]


def _rename(names: dict[str, Inode | Folder], change: _NameChange) -> None:
    """Apply a change; a node that gets a name loses its present name, though the renaming before was lost."""
    if None in change.values() and (moved := [node for node in change.values() if node is not None]):
        for name in [name for name, node in names.items() if node is moved[0]]:
            del names[name]
    _assign(names, change)


def _assign(names: dict[str, Inode | Folder], change: _NameChange) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def used_bytes(folder: Folder) -> int:
    """Return how many bytes of content lie in a folder and below, as programs see them."""
    nodes = folder.names.values()
    return sum(used_bytes(node) if isinstance(node, Folder) else len(node.content) for node in nodes)
