"""Rewrites the journal of a stopped voter, for a copy of a cluster that gets its own id.

Ordering law: all voters must get the same changes before the first starts, since their journals are compared by index
and term only.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.base.checked_files import remove_checked
from raftlog.base.disk import Disk
from raftlog.quorum.incarnations import OTHERS
from raftlog.quorum.snapshot import SnapshotFiles, decode_snapshot, encode_snapshot
from raftlog.quorum.wal import COMMAND_PREFIX, NAME, Entry, encode_file, replay

Change = Callable[[bytes], bytes]


def rewrite_journal(disk: Disk, directory: str, *, command: Change, state: Change) -> None:
    """Change each of our commands, and the state of each snapshot. Raise DamagedJournal."""
    snapshots = SnapshotFiles(disk, directory)
    for index in snapshots.indexes():
        found = decode_snapshot(snapshots.read(index))
        changed = found._replace(
            previous=_changed(found.previous, command),
            last=_changed(found.last, command),
            state=state(found.state),
        )
        snapshots.write(index, encode_snapshot(changed))
    path = f"{directory}/{NAME}"
    log = replay(disk.read_file(path))
    entries = [_changed(each, command) for each in log.entries]
    written = encode_file(
        log.node_id, entries=entries, term=log.term, voted_for=log.voted_for, commit_index=log.commit_index
    )
    disk.write_file(path, written)


def forget_others(disk: Disk, directory: str) -> None:
    """Remove a voter's memory of the others: the backups of a cluster's voters were not made in one moment."""
    remove_checked(disk, f"{directory}/{OTHERS}")


def _changed(entry: Entry, command: Change) -> Entry:
    written, index, term = entry
    if written.startswith(COMMAND_PREFIX):
        written = COMMAND_PREFIX + command(written[len(COMMAND_PREFIX) :])
    return written, index, term
