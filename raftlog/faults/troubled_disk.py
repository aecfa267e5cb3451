"""The disk port with a device behind it that can be slow, full or failing: `trouble` says which, at any time.

A failed sync loses what it should have made durable, for good, as on Linux: the forgetful disk below records that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

from raftlog.base.disk import Buffer
from raftlog.base.kernel_syncs import SyncCallback
from raftlog.faults.forgetful_disk import ForgetfulDisk, ForgetfulFile, replace_file


class DiskTrouble(NamedTuple):
    """The state of a node's disk. All fields at their defaults: it is well."""

    slow_s: float = 0.0
    """Every sync takes this much longer, seconds."""
    full: bool = False
    """The disk is full: writes that need room fail with ENOSPC."""
    failing: str = ""
    """"read", "write" or "sync": such operations fail with EIO. "open", in simulations only: it fails with EMFILE."""


WELL = DiskTrouble()


class TroubledFile:
    """A `File` on a troubled disk."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: TroubledDisk, file: ForgetfulFile) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file

    def pread(self, size: int, position: int) -> bytes:
        self._disk.check("read", self.path)
        return self._file.pread(size, position)

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        self._disk.check("read", self.path)
        return self._file.pread_cached(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._disk.check("write", self.path)
        if self._disk.trouble.full and position + sum(map(len, buffers)) > self._file.size():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return self._file.pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        self._disk.check("write", self.path)
        self._file.truncate(size)

    def size(self) -> int:
        self._disk.check("read", self.path)
        return self._file.size()

    def modified_ms(self) -> int:
        self._disk.check("read", self.path)
        return self._file.modified_ms()

    def set_modified_ms(self, modified_ms: int) -> None:
        self._disk.check("write", self.path)
        self._file.set_modified_ms(modified_ms)

    def sync(self) -> None:
        try:
            self._disk.take_sync_time()
            self._disk.check("sync", self.path)
        except OSError:
            self._file.fail_sync()
            raise
        self._file.sync()

    def submit_sync(self, done: SyncCallback) -> bool:
        # a sync that is slow or fails does so in a thread, which can wait
        return self._disk.trouble == WELL and self._file.submit_sync(done)

    def close(self) -> None:
        self._file.close()


class TroubledDisk:
    """A `Disk` with the faults in `trouble`."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self._disk = disk
        self._trouble = WELL
        self._changed = Event()
        self.exists = disk.exists
        self.mkdir = disk.mkdir
        self.rename = disk.rename
        self.remove = disk.remove
        self.rmtree = disk.rmtree

    @property
    def trouble(self) -> DiskTrouble:
        return self._trouble

    @trouble.setter
    def trouble(self, trouble: DiskTrouble) -> None:
        waiting, self._changed = self._changed, Event()
        self._trouble = trouble
        waiting.set()

    def check(self, operation: str, path: str) -> None:
        """Raise OSError (EIO) if the device fails such operations: "read", "write" or "sync"."""
        if self._trouble.failing == operation:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def take_sync_time(self) -> None:
        """Wait as long as a sync takes longer than it should, or until the trouble changes."""
        changed, slow_s = self._changed, self._trouble.slow_s
        if slow_s:
            changed.wait(slow_s)

    def open(self, path: str, *, create: bool = False) -> TroubledFile:
        """Open a file as `Disk.open` does; a full disk has room for names."""
        return TroubledFile(self, self._disk.open(path, create=create))

    def listdir(self, path: str) -> list[str]:
        self.check("read", path)
        return self._disk.listdir(path)

    def sync_dir(self, path: str) -> None:
        self.take_sync_time()
        self.check("sync", path)
        self._disk.sync_dir(path)

    def read_file(self, path: str) -> bytes:
        self.check("read", path)
        return self._disk.read_file(path)

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        replace_file(self, path, data, sync=sync)

    def free_bytes(self, path: str) -> tuple[int, int]:
        total, usable = self._disk.free_bytes(path)
        return total, 0 if self._trouble.full else usable
