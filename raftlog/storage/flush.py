"""What one round of syncing has to do, so that a flusher can do it away from the loop."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.base.disk import Disk, File


class FlushTicket:
    """Files and folders to sync before everything below `end_offset` counts as flushed.

    `run` touches nothing of the log, so any thread may call it; files go before the folders that name them. If it
    raises, the log directory goes offline: a failed sync is never repeated.
    """

    __slots__ = ("_disk", "directories", "end_offset", "files", "paths")

    def __init__(self, disk: Disk, files: list[File], end_offset: int) -> None:
        self._disk = disk
        self.files = files
        self.paths: Sequence[str] = ()
        """Further files, that are not held open."""
        self.directories: Sequence[str] = ()
        self.end_offset = end_offset

    def run(self) -> None:
        """Sync all of it. OSError propagates."""
        for file in self.files:
            file.sync()
        for path in self.paths:
            self._sync_path(path)
        for directory in self.directories:
            self._disk.sync_dir(directory)

    def _sync_path(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return  # retention or a truncation dropped it meanwhile
        try:
            file.sync()
        finally:
            file.close()
