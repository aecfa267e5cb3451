"""The disk port on real files, which writes down what is not durable yet, so that `power_cut` can take it back.

Each folder has a second folder beside it, `<folder>.unsynced`, on the same file system. It keeps removed and replaced
files for as long as a power cut could bring them back. The first of these also holds the journal. A killed process
loses no data, since the page cache survives it. Remove `.unsynced` if a folder was meanwhile written without this disk,
because the journal no longer fits.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Final

from raftlog.base.disk import FILE_MODE, FOLDER_MODE, Buffer, Disk, RealDisk, RealFile
from raftlog.base.kernel_syncs import SyncCallback
from raftlog.faults.unsynced import (
    JOURNAL,
    Changed,
    Contents,
    FolderSynced,
    Forgotten,
    Journal,
    Named,
    Names,
    Record,
    Removed,
    Synced,
)

SUFFIX: Final = ".unsynced"


def aside(folder: str) -> Path:
    """Return the folder beside a data folder that keeps what is not durable."""
    return Path(folder.rstrip("/") + SUFFIX)


def journal_of(folders: Sequence[str]) -> Path:
    """Return where the journal of a node with these data folders is."""
    return aside(folders[0]) / JOURNAL


class ForgetfulFile(RealFile):
    """A real file with a record of its unsynced changes."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, path: str, fd: int, disk: ForgetfulDisk) -> None:
        super().__init__(path, fd, disk.kernel_syncs)
        self._disk = disk
        self._inode = os.fstat(fd).st_ino

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        with self._disk.lock:
            length = sum(map(len, buffers))
            if length:
                self._note(position, length, position + length)
            return super().pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        with self._disk.lock:
            if size != self.size():
                self._note(size, None, self.size())
                super().truncate(size)

    def _note(self, position: int, length: int | None, end: int) -> None:
        size = self.size()
        old = os.pread(self._fd, min(end, size) - position, position) if position < size else b""
        epoch = self._disk.contents(self._inode).epoch
        self._disk.note(Changed(self._inode, epoch, position, length, size, old))

    def sync(self) -> None:
        epoch = self.begin_sync()
        super().sync()
        self._disk.note(Synced(self._inode, epoch))

    def submit_sync(self, done: SyncCallback) -> bool:
        epoch = self.begin_sync()

        def note(error: OSError | None) -> None:
            self._disk.note(Synced(self._inode, epoch, failed=error is not None))
            done(error)

        return super().submit_sync(note)

    def fail_sync(self) -> None:
        """Let what is unsynced count as clean though it never gets to the device, as after a failed fsync."""
        self._disk.note(Synced(self._inode, self.begin_sync(), failed=True))

    def begin_sync(self) -> int:
        """Return the epoch that a sync beginning now makes durable: later changes belong to the next epoch."""
        with self._disk.lock:
            contents = self._disk.contents(self._inode)
            contents.epoch += 1
            return contents.epoch - 1


class ForgetfulDisk(RealDisk):
    """The operating system's disk. Changes below `folders`, which must exist, are written down, others are not."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__()
        self.folders = tuple(folder.rstrip("/") for folder in folders)
        self.lock = RLock()
        """Held while something changes and is written down; never during a sync of the device."""
        for folder in self.folders:
            aside(folder).mkdir(exist_ok=True)
        self._journal = Journal(journal_of(self.folders))
        self._numbers = itertools.count(self._clear_graves())

    # -- what is written down -----------------------------------------------------------------------

    def note(self, record: Record) -> None:
        """Write down what is about to change, or was synced."""
        with self.lock:
            for grave in self._journal.note(record):
                self._bury_for_good(grave)

    def contents(self, inode: int) -> Contents:
        """Return what is unsynced of a file."""
        return self._journal.state.contents.setdefault(inode, Contents())

    def _names(self, inode: int) -> Names:
        return self._journal.state.names.setdefault(inode, Names())

    def _clear_graves(self) -> int:
        """Remove unneeded files that a killed process left; return the first free number."""
        needed = self._journal.state.graves()
        found = [path for folder in self.folders for path in aside(folder).iterdir() if path.name.isdecimal()]
        for path in found:
            if str(path) not in needed:
                self._bury_for_good(str(path))
        return max((int(path.name) for path in found), default=0) + 1

    def _grave(self, path: str) -> str:
        root = next(folder for folder in self.folders if path.startswith(folder + "/"))
        return str(aside(root) / str(next(self._numbers)))

    def _bury_for_good(self, grave: str) -> None:
        try:
            found = os.lstat(grave)
        except FileNotFoundError:
            return  # its removal was written down, but the process was killed before it came to that
        if not stat.S_ISDIR(found.st_mode):
            os.remove(grave)
            if found.st_nlink == 1:
                self.note(Forgotten(found.st_ino))
            return
        for entry in os.scandir(grave):
            self._bury_for_good(entry.path)
        os.rmdir(grave)
        self.note(Forgotten(found.st_ino))

    def _is_watched(self, path: str) -> bool:
        return any(path.startswith(folder + "/") for folder in self.folders)

    # -- the port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> ForgetfulFile:
        with self.lock:
            is_new = create and not os.path.lexists(path)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            file = ForgetfulFile(path, os.open(path, flags, FILE_MODE), self)
            if is_new:
                self._note_new(path)
            return file

    def _note_new(self, path: str) -> None:
        if not self._is_watched(path):
            return
        folder, name = os.path.split(path)
        inode, folder_inode = os.lstat(path).st_ino, os.stat(folder).st_ino
        self.note(Forgotten(inode))
        self.note(Named(folder_inode, self._names(folder_inode).epoch, name, inode))

    def mkdir(self, path: str) -> None:
        with self.lock:
            missing = []
            folder = path.rstrip("/")
            while not os.path.lexists(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            if not missing:
                os.makedirs(path, FOLDER_MODE, exist_ok=True)  # which says if it is no folder
            for each in reversed(missing):
                os.mkdir(each, FOLDER_MODE)
                self._note_new(each)

    def rename(self, source: str, target: str) -> None:
        """Rename within one folder; between folders it is refused with EXDEV, as on a simulated disk."""
        folder, name = os.path.split(target)
        if os.path.dirname(source) != folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        with self.lock:
            inode = os.lstat(source).st_ino
            if source != target and self._is_watched(target):
                folder_inode = os.stat(folder).st_ino
                change = Named(
                    folder_inode, self._names(folder_inode).epoch, name, inode, os.path.basename(source)
                )
                if os.path.isfile(target):
                    change.grave = self._grave(target)
                    self.note(change)
                    os.link(target, change.grave)
                else:
                    self.note(change)
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with self.lock:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._remove(path, found.st_ino)

    def rmtree(self, path: str) -> None:
        with self.lock:
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            self._remove(path.rstrip("/"), found.st_ino)

    def _remove(self, path: str, inode: int) -> None:
        if not self._is_watched(path):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            return
        folder, name = os.path.split(path)
        folder_inode, grave = os.stat(folder).st_ino, self._grave(path)
        self.note(Removed(folder_inode, self._names(folder_inode).epoch, name, inode, grave))
        os.rename(path, grave)

    def sync_dir(self, path: str) -> None:
        inode = os.stat(path).st_ino
        epoch = self.begin_sync_dir(inode)
        super().sync_dir(path)
        self.note(FolderSynced(inode, epoch))

    def begin_sync_dir(self, inode: int) -> int:
        """Return the epoch that a sync of a folder beginning now makes durable."""
        with self.lock:
            names = self._names(inode)
            names.epoch += 1
            return names.epoch - 1

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        replace_file(self, path, data, sync=sync)


def replace_file(disk: Disk, path: str, data: Buffer, *, sync: bool) -> None:
    """Do what `Disk.write_file` does with a disk's other operations, so that each is seen on its own."""
    temporary = disk.open(path + ".tmp", create=True)
    try:
        temporary.truncate(0)
        temporary.pwritev([data], 0)
        if sync:
            temporary.sync()
    finally:
        temporary.close()
    disk.rename(path + ".tmp", path)
    if sync:
        disk.sync_dir(os.path.dirname(path))
