"""The log as PySyncObj's core sees it, in memory, and the bytes that must reach the disk before anything may be sent.

Every change is made here first and *staged*; `take_staged` returns the staged work as one job that may run on a worker
thread. Only the driver runs these jobs. Ordering law inside a job: snapshot, then log, then clean-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from raftlog.base.checked_files import CHECKSUMS, has_checksums, read_checked, write_checked, write_checksums
from raftlog.base.disk import Disk, make_durable_folder
from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.quorum.incarnations import HeardVoters
from raftlog.quorum.snapshot import Snapshot, SnapshotFiles, encode_snapshot
from raftlog.quorum.wal import (
    VOTERS_PREFIX,
    DamagedJournal,
    Entry,
    ForeignJournal,
    MissingEntries,
    Wal,
    commit_record,
    encode_file,
    entry_record,
    truncate_record,
    vote_record,
)

if TYPE_CHECKING:
    from raftlog.quorum.voters_record import VotersRecord

DIRECTORY_ID: Final = "directory.id"
"""A file beside the log: the id of the directory that it was written in. Releases up to 0.3.0 have none."""


def _check_owner(disk: Disk, directory: str, directory_id: UUID) -> None:
    """Raise DamagedJournal if a journal was written under another directory id; write ours down if none is."""
    path, ours = f"{directory}/{DIRECTORY_ID}", encode_uuid(directory_id).encode()
    if directory_id == NO_DIRECTORY:
        return
    if not disk.exists(path):
        write_checked(disk, path, ours, copy=True)
        return
    found = read_checked(disk, path, unchecked_ok=True)
    if found is None:
        raise DamagedJournal(f"{path} has rotted, and so has its copy: bring both back from a backup")
    if found != ours:
        raise ForeignJournal(
            f"{directory} was written under the directory.id of {path}, {found.decode(errors='replace')[:40]}, but "
            f"meta.properties of the folder above says {ours.decode()}: put the former meta.properties "
            f"back, and remove meta.properties{CHECKSUMS}, which has a copy of the present file"
        )
    if not has_checksums(disk, path):  # or the next rot would count as another directory's id
        write_checksums(disk, path, ours, copy=True)


def _decoded(command: bytes) -> VotersRecord:
    from raftlog.quorum.voters_record import decode_voters

    return decode_voters(command)


class Journal:
    """Entries, term and vote of one voter; a list to the core (its camelCase names are PySyncObj's `Journal`)."""

    def __init__(self, disk: Disk, directory: str, node_id: int, directory_id: UUID = NO_DIRECTORY) -> None:
        """`directory_id`: of the folder above, as its meta.properties says."""
        self.snapshot_files = SnapshotFiles(disk, directory)
        self.snapshot: Snapshot | None = None
        """The snapshot found at open; the driver restores and drops it."""
        self.snapshot_index = 0
        """Last index of the newest durable (or staged) snapshot; 0 for none."""
        self.torn_bytes = 0
        self.on_voters: Callable[[], None] = lambda: None
        """Called when another set of voters is the log's newest."""
        self._voters: list[tuple[int, VotersRecord]] = []
        """The sets of voters in the log by index, and before them the snapshot's."""
        self._node_id = node_id
        self._entries: list[Entry] = []
        self._term = 0
        self._voted_for: int | None = None
        self._commit_index = 1
        self._staged: list[bytes] = []
        self._staged_snapshot: Snapshot | None = None
        self._rewrite = False
        self._wal = Wal(disk, directory)
        make_durable_folder(disk, directory)
        _check_owner(disk, directory, directory_id)
        self.heard = HeardVoters(disk, directory)
        """The other voters; notes there are written with the next sync."""
        self._open(directory)

    # -- opening -------------------------------------------------------------------------

    def _open(self, directory: str) -> None:
        self.snapshot_files.remove_unfinished()
        snapshot = self.snapshot_files.load_newest()
        if not self._wal.exists():
            if snapshot is not None:
                raise MissingEntries(
                    f"{directory}: there is a snapshot but no log, so term and vote are lost"
                )
            self._wal.replace(self._image())
        found, self.torn_bytes = self._wal.load()
        if found.node_id != self._node_id:
            raise ForeignJournal(f"{directory} belongs to node {found.node_id}, this is node {self._node_id}")
        self._entries, self._commit_index = found.entries, found.commit_index
        self._term, self._voted_for = found.term, found.voted_for
        if snapshot is not None:
            self.snapshot, self.snapshot_index = snapshot, snapshot.end
            self._trim_to(snapshot)
        elif self._entries and self._entries[0][1] != 1:
            raise MissingEntries(
                f"{directory}: the log begins at {self._entries[0][1]} and no snapshot precedes it"
            )
        self._commit_index = min(self._commit_index, self.last_index or 1)
        self._find_voters(snapshot)

    def _find_voters(self, snapshot: Snapshot | None) -> None:
        """Find the sets of voters of a snapshot and of the entries that follow it."""
        self._voters = []
        end = 0 if snapshot is None else snapshot.end
        if snapshot is not None and snapshot.voters:
            self._voters.append((end, _decoded(snapshot.voters)))
        for command, index, _ in self._entries:
            if index > end and command.startswith(VOTERS_PREFIX):
                self._voters.append((index, _decoded(command)))

    def _trim_to(self, snapshot: Snapshot) -> None:
        """Begin the log with the snapshot's pair of entries, keeping what follows if the two agree."""
        first = self._entries[0][1] if self._entries else 0
        if self._entries and first > snapshot.end:
            raise MissingEntries(f"the log begins at {first}, after the snapshot's end {snapshot.end}")
        if self.entry_term(snapshot.end) == snapshot.last[2]:
            if first == snapshot.previous[1]:
                return
            kept = self._entries[snapshot.end + 1 - first :]
        else:
            kept = []
        self._entries = [snapshot.previous, snapshot.last, *kept]
        self._commit_index = max(self._commit_index, snapshot.end)
        self._rewrite = True

    # -- reading -------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        return self._entries[0][1] if self._entries else 0

    @property
    def last_index(self) -> int:
        return self._entries[-1][1] if self._entries else 0

    @property
    def is_new(self) -> bool:
        """Whether the journal is empty: no term, and at most the entry with which each log begins."""
        return self._term == 0 and self.last_index <= 1

    @property
    def size_bytes(self) -> int:
        """Return the size of the file, without staged work."""
        return self._wal.size_bytes

    def entry_term(self, index: int) -> int | None:
        """Return the term of an entry the log holds, else None."""
        position = index - self.first_index
        return self._entries[position][2] if 0 <= position < len(self._entries) else None

    @property
    def voters(self) -> VotersRecord | None:
        """Return the newest set of voters; None while the voters of the config are in force."""
        return self._voters[-1][1] if self._voters else None

    @property
    def voters_index(self) -> int:
        """Return the index of the newest set of voters, or of a snapshot that covers it; 0 for none."""
        return self._voters[-1][0] if self._voters else 0

    @property
    def former_voters(self) -> VotersRecord | None:
        """Return the set before the newest, if the log has it."""
        return self._voters[-2][1] if len(self._voters) > 1 else None

    def voters_at(self, index: int) -> bytes:
        """Return the command with the newest set of voters up to an index, or b""."""
        found = [each for at, each in self._voters if at <= index]
        if not found:
            return b""
        from raftlog.quorum.voters_record import encode_voters

        return encode_voters(found[-1])

    def entries(self, start: int, end: int) -> list[Entry]:
        """Return entries [start, end); the caller checked that the log reaches back to `start`."""
        first = self.first_index
        assert start >= first
        return self._entries[start - first : end - first]

    def __getitem__(self, item: Any) -> Any:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> int | None:
        return self._voted_for

    def getRaftCommitIndex(self) -> int:
        return self._commit_index

    # -- changing ------------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert not self._entries or idx == self._entries[-1][1] + 1
        entry = (command, idx, term)
        self._entries.append(entry)
        self._staged.append(entry_record(entry))
        if command.startswith(VOTERS_PREFIX):
            self._voters.append((idx, _decoded(command)))
            self.on_voters()

    def truncate_from(self, index: int) -> None:
        """Drop entries at `index` and after it."""
        del self._entries[index - self.first_index :]
        self._staged.append(truncate_record(index))
        if self.voters_index >= index:
            self._voters = [each for each in self._voters if each[0] < index]
            self.on_voters()

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:
        self._term, self._voted_for = term, votedForNodeId
        self._staged.append(vote_record(term, votedForNodeId))

    def stage_commit(self) -> None:
        """Have the commit index written with the next sync, even without other staged work."""
        self._staged.append(commit_record(self._commit_index))

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        self._commit_index = raftCommitIndex

    def install(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a snapshot that came from the leader."""
        self._entries = [snapshot.previous, snapshot.last]
        before = self.voters
        self._find_voters(snapshot)
        if self.voters != before:
            self.on_voters()
        self._staged_snapshot, self.snapshot_index = snapshot, snapshot.end
        self._rewrite = True

    def compact(self, snapshot_index: int) -> None:
        """Drop what a durable snapshot of our own covers; ignored after a later snapshot was installed."""
        if snapshot_index <= self.snapshot_index:
            return
        self.snapshot_index = snapshot_index
        del self._entries[: snapshot_index - 1 - self.first_index]
        self._rewrite = True

    def onOneSecondTimer(self) -> None:
        pass

    # -- to the disk ---------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether something must be synced before the next message leaves."""
        return bool(self._staged) or self._rewrite or self.heard.dirty

    @property
    def needs_rewrite(self) -> bool:
        """Whether the staged work is more than one append, and must run on a thread."""
        return self._rewrite or self.heard.dirty

    def take_staged(self) -> Callable[[], None]:
        """Return the staged work as a job; do not stage more until it has run. The job raises OSError."""
        staged, self._staged = self._staged, []
        snapshot, self._staged_snapshot = self._staged_snapshot, None
        rewrite, self._rewrite = self._rewrite, False
        heard = self.heard.take_staged() if self.heard.dirty else None
        if not rewrite:
            staged.append(commit_record(self._commit_index))

            def append() -> None:
                if heard is not None:
                    self.heard.write(heard)
                self._wal.append(staged)

            return append
        entries, term, voted_for, commit_index = (
            list(self._entries),
            self._term,
            self._voted_for,
            self._commit_index,
        )

        def replace() -> None:
            if heard is not None:
                self.heard.write(heard)
            if snapshot is not None:
                self.snapshot_files.write(snapshot.end, encode_snapshot(snapshot))
            self._wal.replace(
                encode_file(
                    self._node_id, entries=entries, term=term, voted_for=voted_for, commit_index=commit_index
                )
            )
            self.snapshot_files.remove_older()

        return replace

    def _image(self) -> bytes:
        return encode_file(
            self._node_id,
            entries=self._entries,
            term=self._term,
            voted_for=self._voted_for,
            commit_index=self._commit_index,
        )

    def close(self) -> None:
        """Close the file; staged work is dropped, as in a crash."""
        self._wal.close()
