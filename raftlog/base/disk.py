"""The disk port: everything raftlog needs of a file system, so that a simulated disk can replace it.

Ordering law: bytes are durable once `File.sync` returned; a new, renamed or removed name is durable once
`Disk.sync_dir` of its folder returned. A failed sync must never be retried (the kernel may have dropped the pages):
callers take the log directory offline. A sync that was not begun (`SyncNotBegun`) is retried.

This is the only module of the core that touches `os`. `write_file` and `make_folders` are for commands too. They write
every small file of raftlog, so that a power cut leaves the old or the new file, never an empty file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from raftlog.base.kernel_syncs import KernelSyncs, SyncCallback

Buffer = bytes | bytearray | memoryview

FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", 51)
"""A command of fcntl(2) on macOS."""

NS_PER_MS: Final = 1_000_000
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Records and credentials are readable only for the owner of a node."""

IOV_MAX = 1024
"""Buffers one `pwritev` takes (Linux UIO_MAXIOV)."""

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of writes that find no room."""
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of calls for lack of descriptors or memory. They are not faults of the disk."""


class SyncNotBegun(OSError):
    """The file or folder to sync could not be opened, by an error of OUT_OF_FILES: no data is lost, so retry."""


@contextmanager
def opening_to_sync() -> Iterator[None]:
    """Raise SyncNotBegun if the system has no descriptor for a file opened inside."""
    try:
        yield
    except OSError as error:
        if error.errno not in OUT_OF_FILES:
            raise
        raise SyncNotBegun(error.errno, error.strerror, error.filename) from error


@contextmanager
def half_changed(path: str) -> Iterator[None]:
    """Raise EIO for a change that a lack of descriptors stops half-way, since it cannot be retried."""
    try:
        yield
    except OSError as error:
        if error.errno not in OUT_OF_FILES:
            raise
        raise OSError(errno.EIO, f"partially written: {error.strerror}", path) from error


def sync_data(descriptor: int) -> None:
    """Make the contents and size of an open file durable. Raise OSError."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync_whole(descriptor)


def sync_whole(descriptor: int) -> None:
    """Make an open file or folder durable, with all its metadata. Raise OSError."""
    if hasattr(os, "fdatasync"):
        os.fsync(descriptor)
        return
    try:  # macOS: its fsync leaves bytes in the cache of the drive
        fcntl.fcntl(descriptor, FULL_SYNC)
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # a file system without it, such as SMB: no sync was tried
            raise
        os.fsync(descriptor)


def sync_dir(path: str) -> None:
    """Make the names in a folder durable. Raise OSError; SyncNotBegun if there was no descriptor to open it."""
    with opening_to_sync():
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _named(path):
            sync_whole(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(written: str | os.PathLike[str], final: str | os.PathLike[str]) -> None:
    """Sync a written file and rename it to its final name, replacing an older file. Raise OSError."""
    descriptor = os.open(written, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_whole(descriptor)
    finally:
        os.close(descriptor)
    os.replace(written, final)
    sync_dir(os.path.dirname(os.fspath(final)) or ".")


def write_file(
    path: str | os.PathLike[str],
    content: str | Buffer,
    *,
    secret: bool = False,
    sync: bool = True,
    beside: str = ".tmp",
) -> None:
    """Replace a small file atomically: write beside it, sync, rename, sync its folder (the syncs only if `sync`).

    A `secret` file is readable only for this user, at every moment. `beside` ends the temporary name, which must differ
    between processes that write the same file at once. A device or a pipe, such as /dev/null, is written to and stays.
    Raise OSError.
    """
    final = os.fspath(path)
    data = content.encode() if isinstance(content, str) else content
    if os.path.exists(final) and not os.path.isfile(final):
        with open(final, "wb") as device:
            device.write(data)
        return
    temporary = final + beside
    if secret:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # left by a killed writer; others may have it open
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if secret else os.O_TRUNC)
    with _named(final):
        try:
            with open(os.open(temporary, flags, FILE_MODE if secret else 0o666), "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    sync_whole(file.fileno())
            os.replace(temporary, final)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if sync:
            sync_dir(os.path.dirname(final) or ".")


def make_folders(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Make a folder and its parents durably; fine if it exists. Parents have the usual mode. Raise OSError."""
    folder = os.fspath(path)
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder) or "."
    make_folders(parent)
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        if not os.path.isdir(folder):  # another process made it meanwhile
            raise
    with _named(folder):
        sync_dir(parent)


def make_durable_folder(disk: Disk, path: str) -> None:
    """Make a folder and its missing parents on a disk, and sync the folder that names each; fine if it exists.

    It is synced then too, as the process that made it may have been killed before. Raise OSError.
    """
    parent = path.rstrip("/").rpartition("/")[0] or "/"
    there = disk.exists(path)
    if not there:
        if not disk.exists(parent):
            make_durable_folder(disk, parent)
        disk.mkdir(path)
    try:
        disk.sync_dir(parent)
    except PermissionError:
        if not there:
            raise  # else an operator made it, where raftlog has no access


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the path to an OSError without a path, as of writes and syncs."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


class File(Protocol):
    """An open file. Positions are explicit; there is no cursor."""

    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """Read like `pread`, but return None when that would wait for the device. May return fewer bytes."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers in order at `position`, all of them or raise OSError; return the byte count."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """Return when the contents changed last, in wall ms."""

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set when the contents changed last, after they were copied or rewritten."""

    def sync(self) -> None:
        """Make contents and size durable (fdatasync). May be called from another thread than the writer's."""

    def submit_sync(self, done: SyncCallback) -> bool:
        """Start a sync that runs beside the loop, and ends with a call of `done` on it, never within this call.

        Return False if the file system does not support it: it was not started, so call `sync`.
        """

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError unless it exists or `create`."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents; fine if it exists."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable. SyncNotBegun if it could not be opened for lack of descriptors."""

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replace a file atomically: temporary name, sync, rename, sync of the folder (the syncs only if `sync`)."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume that holds `path`."""


class RealFile:
    """A `File` on the operating system."""

    __slots__ = ("_fd", "_kernel_syncs", "path")

    def __init__(self, path: str, fd: int, kernel_syncs: KernelSyncs) -> None:
        self.path = path
        self._fd = fd
        self._kernel_syncs = kernel_syncs

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        if not hasattr(os, "RWF_NOWAIT"):  # not on Linux
            return self.pread(size, position)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return self.pread(size, position)
            raise
        return buffer if count == size else buffer[:count]

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(map(len, buffers))
        try:
            written = os.pwritev(self._fd, buffers[:IOV_MAX], position)
            if written != total:
                self._write_rest(buffers, position, written)
        except OSError as error:
            error.filename = self.path
            raise
        return total

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int) -> None:
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            count = os.pwrite(self._fd, rest, position + written)
            written += count
            rest = rest[count:]

    def truncate(self, size: int) -> None:
        with _named(self.path):
            os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // NS_PER_MS

    def set_modified_ms(self, modified_ms: int) -> None:
        os.utime(self._fd, ns=(os.fstat(self._fd).st_atime_ns, modified_ms * NS_PER_MS))

    def sync(self) -> None:
        with _named(self.path):
            sync_data(self._fd)

    def submit_sync(self, done: SyncCallback) -> bool:
        return self._kernel_syncs.submit(self._fd, self.path, done)

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """The `Disk` of the operating system."""

    def __init__(self) -> None:
        self.kernel_syncs = KernelSyncs()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, FILE_MODE), self.kernel_syncs)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.makedirs(path, FOLDER_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        sync_dir(path)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        write_file(path, data, secret=True, sync=sync)

    def free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail
