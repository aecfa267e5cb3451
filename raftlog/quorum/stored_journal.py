"""Reads the journal of a stopped voter without changing a byte: for people, and for backups.

It skips a torn tail, and entries that a snapshot covers; a voter removes these at its start. This module knows bytes
and positions, not what the commands mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raftlog.base.disk import Disk
from raftlog.quorum.snapshot import Snapshot, SnapshotFiles
from raftlog.quorum.wal import COMMAND_PREFIX, NAME, DamagedJournal, Entry, MissingEntries, replay

__all__ = ["NAME", "DamagedJournal", "StoredJournal", "read_journal"]


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """One command. `is_committed`: as far as this voter knew; the last commands may be committed too."""

    index: int
    command: bytes
    is_committed: bool


class StoredJournal(NamedTuple):
    """The content of a voter's folder. `entries` follow the snapshot."""

    node_id: int
    snapshot: Snapshot | None
    entries: list[Entry]
    commit_index: int
    torn_bytes: int

    def commands(self) -> Iterator[StoredCommand]:
        """Yield the commands after the snapshot, in order."""
        for command, index, _ in self.entries:
            if command.startswith(COMMAND_PREFIX):
                yield StoredCommand(index, command[1:], index <= self.commit_index)


def read_journal(disk: Disk, directory: str) -> StoredJournal:
    """Read the folder that holds a voter's journal. Raises DamagedJournal, FileNotFoundError if the folder has none."""
    path = f"{directory}/{NAME}"
    written = disk.read_file(path)
    snapshot = SnapshotFiles(disk, directory).load_newest()
    try:
        found = replay(written)
        entries = _following(found.entries, snapshot)
    except DamagedJournal as error:
        raise type(error)(f"{path}: {error}") from error
    commit_index = max(found.commit_index, 0 if snapshot is None else snapshot.end)
    return StoredJournal(
        found.node_id, snapshot, entries, commit_index, torn_bytes=len(written) - found.good_bytes
    )


def _following(entries: list[Entry], snapshot: Snapshot | None) -> list[Entry]:
    """Return the entries after a snapshot: none where the log disagrees with it, as at a voter's start."""
    first = entries[0][1] if entries else 1
    if snapshot is None:
        if first != 1:
            raise MissingEntries(f"the log begins at {first} and no snapshot precedes it")
        return entries
    if first > snapshot.end:
        raise MissingEntries(f"the log begins at {first}, after the snapshot's end {snapshot.end}")
    at = snapshot.end - first
    if at >= len(entries) or entries[at][2] != snapshot.last[2]:
        return []
    return entries[at + 1 :]
