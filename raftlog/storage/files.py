"""A disk whose files are open only while they are in use, so that thousands of partitions need few descriptors.

A `PooledDisk` replaces any `Disk`. It closes the descriptor of a file that was not used lately, and opens a new
descriptor at the next use. Descriptors close when the last call that uses them ends, never under a sync on another
thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from errno import ENOENT

from raftlog.base.disk import OUT_OF_FILES, Buffer, Disk, File, opening_to_sync
from raftlog.base.kernel_syncs import SyncCallback

GIVEN_UP = 8
"""Descriptors to close when the system has none left for the next file."""


class _Lease:
    """A reference-counted descriptor, closed by the last release."""

    __slots__ = ("file", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.used = False

    def __del__(self) -> None:
        self.file.close()


class PooledFile:
    """A `File` that opens itself when used. After `close`, `sync` does nothing and reads raise FileNotFoundError.

    Another thread may still call both after its segment was dropped; any other call is a bug.
    """

    __slots__ = ("_closed", "_disk", "_lease", "path")

    def __init__(self, disk: PooledDisk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._lease: _Lease | None = None
        self._closed = False

    def _opened(self) -> _Lease:
        lease = self._lease
        if lease is None:
            assert not self._closed, f"{self.path} was closed"
            lease = self._disk.lease(self)
        lease.used = True
        return lease

    # Each call keeps its lease in a variable: a temporary would let go of the descriptor before the call is over.

    def pread(self, size: int, position: int) -> bytes:
        lease = self._lease
        if lease is None:
            if self._closed:
                raise FileNotFoundError(ENOENT, "the file was closed during the read", self.path)
            lease = self._opened()
        lease.used = True
        return lease.file.pread(size, position)

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        lease = self._lease
        if lease is None:
            lease = self._opened()
        lease.used = True
        return lease.file.pread_cached(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        lease = self._lease
        if lease is None:
            lease = self._opened()
        lease.used = True
        return lease.file.pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        lease = self._opened()
        lease.file.truncate(size)

    def size(self) -> int:
        lease = self._opened()
        return lease.file.size()

    def modified_ms(self) -> int:
        lease = self._opened()
        return lease.file.modified_ms()

    def set_modified_ms(self, modified_ms: int) -> None:
        lease = self._opened()
        lease.file.set_modified_ms(modified_ms)

    def sync(self) -> None:
        if not self._closed:
            with opening_to_sync():
                lease = self._opened()
            lease.file.sync()

    def submit_sync(self, done: SyncCallback) -> bool:
        # the kernel holds the file until the sync has ended, whatever becomes of the descriptor
        lease = self._lease
        if lease is None:
            if self._closed:
                return False
            lease = self._opened()
        lease.used = True
        return lease.file.submit_sync(done)

    def close(self) -> None:
        self._closed = True
        self._lease = None


class PooledDisk:
    """A `Disk` that keeps at most `limit` files open, not counting files in use at the moment."""

    def __init__(self, disk: Disk, *, limit: int) -> None:
        assert limit > 0
        self._disk = disk
        self._limit = limit
        self._open: deque[PooledFile] = deque()

        self.exists = disk.exists
        self.listdir = disk.listdir
        self.mkdir = disk.mkdir
        self.rename = disk.rename
        self.remove = disk.remove
        self.rmtree = disk.rmtree
        self.sync_dir = disk.sync_dir
        self.read_file = disk.read_file
        self.write_file = disk.write_file
        self.free_bytes = disk.free_bytes

    @property
    def open_files(self) -> int:
        """Descriptors in use now."""
        return sum(file._lease is not None for file in list(self._open))

    def open(self, path: str, *, create: bool = False) -> PooledFile:
        """Open a file as `Disk.open` does."""
        file = PooledFile(self, path)
        self._take(file, create=create)
        return file

    def lease(self, file: PooledFile) -> _Lease:
        """Release the descriptor of a file."""
        return self._take(file, create=False)

    def _take(self, file: PooledFile, *, create: bool) -> _Lease:
        while len(self._open) >= self._limit:
            self._release_one()
        try:
            opened = self._disk.open(file.path, create=create)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or not self._open:
                raise
            for _ in range(GIVEN_UP):  # clients or other programs hold the rest
                self._release_one()
            opened = self._disk.open(file.path, create=create)
        lease = _Lease(opened)
        file._lease = lease
        self._open.append(file)
        return lease

    def _release_one(self) -> None:
        """Close the first descriptor in turn that was not used since its last turn (second chance)."""
        for _ in range(len(self._open) + 1):
            try:
                file = self._open.popleft()
            except IndexError:
                return
            lease = file._lease
            if lease is None:
                return
            if not lease.used:
                file._lease = None
                return
            lease.used = False
            self._open.append(file)
