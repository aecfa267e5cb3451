"""The unsynced part of a log, and one round of syncing, so that a flusher can do it away from the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Disk, File, opening_to_sync
from raftlog.storage.partition_files import PARTITION_METADATA
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.storage.recovery import LoadedLog


class FlushTicket:
    """Files and folders to sync before everything below `end_offset` counts as flushed.

    Syncing does not touch the log's state, so any thread may do it; files are synced before the folders that name them.
    If it raises, the log directory goes offline: a failed sync is never retried. SyncNotBegun may be retried. A retry
    skips the `paths` and folders that are synced, so it needs fewer descriptors each time.
    """

    __slots__ = ("_disk", "directories", "end_offset", "files", "paths")

    def __init__(self, disk: Disk, files: list[File], end_offset: int) -> None:
        self._disk = disk
        self.files = files
        self.paths: list[str] = []
        """Further files, that are not held open."""
        self.directories: Sequence[str] = ()
        self.end_offset = end_offset

    def run(self) -> None:
        """Sync all of it. OSError propagates."""
        sync_all((self,))

    def sync_files(self) -> None:
        """Sync the files. OSError propagates."""
        for file in self.files:
            file.sync()
        while self.paths:
            self._sync_path(self.paths[0])
            del self.paths[0]

    def sync_directory(self, path: str) -> None:
        """Sync one folder. OSError propagates."""
        self._disk.sync_dir(path)

    def _sync_path(self, path: str) -> None:
        try:
            with opening_to_sync():
                file = self._disk.open(path)
        except FileNotFoundError:
            return  # retention or a truncation dropped it meanwhile
        try:
            file.sync()
        finally:
            file.close()


def sync_all(tickets: Iterable[FlushTicket]) -> None:
    """Sync the tickets of several logs, and a folder that they share once. OSError propagates."""
    directories: dict[str, list[FlushTicket]] = {}
    for ticket in tickets:
        ticket.sync_files()
        for directory in ticket.directories:
            directories.setdefault(directory, []).append(ticket)
    for directory, sharing in directories.items():
        sharing[0].sync_directory(directory)
        for ticket in sharing:
            ticket.directories = [each for each in ticket.directories if each != directory]


class FlushState:
    """The part of a log that a power loss would take, and how far it is safe."""

    __slots__ = ("_closing", "_disk", "_rolled", "_ticket", "directories", "flushed_end_offset", "paths")

    def __init__(self, disk: Disk, flushed_end_offset: int, directories: set[str]) -> None:
        self._disk = disk
        self.flushed_end_offset = flushed_end_offset
        self.directories = directories
        """Folders with new or removed names."""
        self.paths: list[str] = []
        """Written files that are not held open."""
        self._rolled: list[Segment] = []
        self._ticket: FlushTicket | None = None
        self._closing: list[File] = []

    @property
    def has_unsynced_names(self) -> bool:
        """Whether a folder has new, renamed or removed names that a power loss could take back."""
        return bool(self.directories) or (self._ticket is not None and bool(self._ticket.directories))

    def has_durable_name(self, segment: Segment) -> bool:
        """Return whether a segment keeps its name after a power loss: a part was flushed, or all names were synced."""
        return segment.base_offset < self.flushed_end_offset or not self.has_unsynced_names

    @classmethod
    def recovered(cls, disk: Disk, directory: str, contents: LoadedLog) -> FlushState:
        """Return the parts of a newly opened log that may not be on the disk."""
        flushed = min(contents.recovery_point, contents.segments[-1].end_offset)
        unflushed = cls(disk, flushed, contents.unsynced_directories)
        if contents.unsynced_directories and contents.topic_id is not None:
            # must be as durable as the first records, since it names their topic
            path = f"{directory}/{PARTITION_METADATA}"
            unflushed.paths += (path + CHECKSUMS, path)
        for segment in contents.segments[:-1]:
            if segment.end_offset > flushed:
                unflushed.rolled(segment)
        return unflushed

    def rolled(self, segment: Segment) -> None:
        """Take over a segment that is no longer active."""
        self._rolled.append(segment)
        self.paths += segment.index_paths

    def dropped(self, segments: list[Segment]) -> None:
        """Close segments that are no longer part of the log, once no sync can be using them."""
        self._rolled = [segment for segment in self._rolled if segment not in segments]
        self._closing += [segment.file for segment in segments]
        if self._ticket is None:
            self._close()

    def _close(self) -> None:
        for file in self._closing:
            file.close()
        self._closing = []

    def truncate(self, end_offset: int) -> None:
        """Exclude everything beyond a cut, also from a sync that is under way."""
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        if self._ticket is not None:
            self._ticket.end_offset = min(self._ticket.end_offset, end_offset)

    def begin(self, active: Segment, end_offset: int) -> FlushTicket | None:
        """Return the ticket for everything up to now, or None if all is synced."""
        assert self._ticket is None, "one flush at a time"
        files: list[File] = []
        if self._rolled:
            files = [segment.file for segment in self._rolled]
            self._rolled = []
        if active.dirty:
            active.dirty = False
            files.append(active.file)
        elif not (files or self.directories or self.paths):
            return None
        self._ticket = ticket = FlushTicket(self._disk, files, end_offset)
        if self.directories or self.paths:
            ticket.paths, self.paths = self.paths, []
            ticket.directories, self.directories = sorted(self.directories), set()
        return ticket

    def complete(self, ticket: FlushTicket) -> int:
        """Count what a ticket has synced; returns the new flushed end."""
        assert ticket is self._ticket
        self._ticket = None
        if self._closing:
            self._close()
        self.flushed_end_offset = max(self.flushed_end_offset, ticket.end_offset)
        return self.flushed_end_offset
