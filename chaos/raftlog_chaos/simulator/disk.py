"""A disk in memory that forgets: what was not synced may be gone, torn or reordered after a crash, by seed.

The remains of files and names after a crash are in `medium`. A disk can also fill up, fail, lie about syncs, and rot.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from raftlog.base.disk import Buffer, opening_to_sync
from raftlog.base.kernel_syncs import SyncCallback
from raftlog_chaos.simulator.medium import Folder, Inode, used_bytes


class Extent(NamedTuple):
    """The part of a disk that fails."""

    under: str = "/"
    """Operations on paths under this."""
    rate: float = 1.0
    """The share of them that fails, by chance."""
    times: int | None = None
    """Only so many; None: until it is mended."""
    torn: bool = False
    """A write that fails leaves a part of its bytes behind."""
    every: int = 1
    """Only every n-th operation there may fail."""


class _Failure:
    """Operations that fail: which, where, how often by chance, and how many more of them."""

    __slots__ = ("error", "every", "left", "operation", "prefix", "rate", "seen", "torn")

    def __init__(self, operation: str, prefix: str, error: int, extent: Extent) -> None:
        self.operation = operation
        self.prefix = prefix
        self.error = error
        self.rate = extent.rate
        self.left = extent.times
        self.torn = extent.torn
        self.every, self.seen = extent.every, 0

    def strikes(self, operation: str, path: str, chance: random.Random) -> bool:
        """Whether an operation fails now; it is counted."""
        if self.left == 0 or self.operation not in (operation, "any"):
            return False
        if not (path + "/").startswith(self.prefix):
            return False
        self.seen += 1
        hit = self.seen % self.every == 0 and (self.rate >= 1 or chance.random() < self.rate)
        if hit and self.left is not None:
            self.left -= 1
        return hit


class TornWrite(OSError):
    """A write that failed after a part of it was done."""


class SimFile:
    """A `File` on a `SimDisk`. After a crash of its disk every call raises EBADF."""

    __slots__ = ("_disk", "_generation", "_inode", "path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._generation = disk.generation

    def pread(self, size: int, position: int) -> bytes:
        self._check("read")
        return bytes(self._inode.content[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        if self._disk.is_cold():
            self._inode.evict()
            return None
        return self.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        written = b"".join(buffers)
        try:
            self._check("write")
        except TornWrite:
            self._write_part(written, position)
            raise
        growth = max(0, position + len(written) - len(self._inode.content))
        room = self._disk.room_bytes(self.path)
        if growth > room:
            fits = max(0, len(written) - (growth - room))
            if fits:
                self._change((position, written[:fits]))
            self._disk.effects["no room"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        if written:
            self._change((position, written))
        return len(written)

    def _write_part(self, written: bytes, position: int) -> None:
        part = written[: self._disk.draw(len(written))]
        if part:
            self._change((position, part))

    def truncate(self, size: int) -> None:
        self._check("write")
        self._change((size, None))

    def _change(self, change: tuple[int, bytes | None]) -> None:
        self._inode.change(change)
        self._inode.modified_ms = self._disk.wall_clock_ms()

    def size(self) -> int:
        self._check("read")
        return len(self._inode.content)

    def modified_ms(self) -> int:
        self._check("read")
        return self._inode.modified_ms

    def set_modified_ms(self, modified_ms: int) -> None:
        self._check("write")
        self._inode.modified_ms = modified_ms

    def sync(self) -> None:
        try:
            self._check("sync")
        except OSError:
            self._inode.drop_unsynced()
            raise
        self._disk.synced()
        if not self._disk.lies_about(self.path):
            self._inode.sync()

    def submit_sync(self, done: SyncCallback) -> bool:
        held = SimFile(
            self._disk, self.path, self._inode
        )  # the kernel goes on though the file is closed meanwhile
        held._generation = self._generation
        return self._disk.submit_sync(held.sync, done)

    def close(self) -> None:
        self._generation = -1

    def _check(self, operation: str) -> None:
        if self._generation != self._disk.generation:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk.check(operation, self.path)


def _no_kernel_syncs(sync: Callable[[], None], done: SyncCallback) -> bool:
    return False


CHANGES = frozenset({"write", "sync", "name"})
"""Operations that leave something behind."""
NAMES_AND_SYNCS = frozenset({"name", "sync"})
"""Those between which names are not durable. A file that is opened for the first time does not count."""

LONGEST_NAME: Final = 255
"""Bytes of a name, as on ext4 and XFS."""
ROOMY_BYTES = 1 << 40
"""A disk that is never full."""


class SimDisk:
    """A `Disk` in memory. `crash` is a power loss; open files of before are dead after it.

    `folders` exist durably from the start. `capacity_bytes` limits the sum of file sizes. `cold_read_rate`: the
    share of `pread_cached` calls that answer None.
    """

    def __init__(
        self,
        chance: random.Random | int = 0,
        *,
        folders: Sequence[str] = ("/data",),
        capacity_bytes: int = ROOMY_BYTES,
    ) -> None:
        self._chance = random.Random(chance) if isinstance(chance, int) else chance
        self._root = Folder()
        self._failures: list[_Failure] = []
        self.capacity_bytes = capacity_bytes
        self._limited = "/"
        """The folder with a limited capacity."""
        self.cold_read_rate = 0.0
        self.lies: Callable[[str], bool] | None = None
        """Syncs of the selected paths report success and do not sync."""
        self.generation = 0
        self.syncs = 0
        self._trap: tuple[int, Callable[[], None]] | None = None
        self._trapped = (CHANGES, "/")
        """The operations that a trap counts, and where."""
        self._dead = False
        self.effects: Counter[str] = Counter()
        """The failures of operations caused by injected trouble: "write failed", "no room", …"""
        self.risked: list[str] = []
        """Durable files that were replaced by files whose bytes were not synced: a power cut could lose both."""
        self.on_sync: Callable[[], None] | None = None
        """Called by every sync: a slow disk spends time there."""
        self.submit_sync: Callable[[Callable[[], None], SyncCallback], bool] = _no_kernel_syncs
        """Begins a sync beside the loop; False if it is refused. A host's environment has its own."""
        self.wall_clock_ms: Callable[[], int] = lambda: 0
        """The clock of the host, by which files are modified."""
        self.add_folders(*folders)

    def add_folders(self, *folders: str) -> None:
        """Have these folders, durably, before any node uses the disk."""
        for folder in folders:
            self.mkdir(folder)
        self._sync_all(self._root)

    # -- the port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check("open", path)
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None and create:
            _check_length(name, path)
            node = Inode(self.wall_clock_ms())
            folder.change({name: node})
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_folder(self, path: str) -> bool:
        return isinstance(self._find(path), Folder)

    def listdir(self, path: str) -> list[str]:
        self.check("open", path)
        return sorted(self._folder(path).names)

    def mkdir(self, path: str) -> None:
        self.check("name", path)
        folder = self._root
        for name in _parts(path):
            node = folder.names.get(name)
            if node is None:
                _check_length(name, path)
                node = Folder()
                folder.change({name: node})
            if isinstance(node, Inode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        """Rename within one folder; between folders it is refused with EXDEV, as no caller may need it."""
        self.check("name", source)
        folder, old = self._parent(source)
        target_folder, new = self._parent(target)
        if folder is not target_folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        _check_length(new, target)
        node = folder.names.get(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        there = folder.names.get(new)
        if isinstance(there, Folder) and there.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        if self.lies is None and folder.is_risked(new, node):
            self.risked.append(target)
        if old != new:
            folder.change({old: None, new: node})

    def remove(self, path: str) -> None:
        self.check("name", path)
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        folder.change({name: None})

    def rmtree(self, path: str) -> None:
        self.check("name", path)
        self._empty(self._folder(path))
        folder, name = self._parent(path)
        folder.change({name: None})

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        with opening_to_sync():
            self.check("open", path)
        try:
            self.check("sync", path)
        except OSError:
            folder.unsynced.clear()
            raise
        self.synced()
        if not self.lies_about(path):
            folder.sync()

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = self.open(path + ".tmp", create=True)
        temporary.truncate(0)
        temporary.pwritev([data], 0)
        if sync:
            temporary.sync()
        temporary.close()
        self.rename(path + ".tmp", path)
        if sync:
            self.sync_dir(posixpath.dirname(path))

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, self.room_bytes(path)

    # -- the faults ---------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose power: keep what was synced and a seeded part of the rest."""
        self.generation += 1
        self._trap = None
        self._root.crash(self._chance)

    def snapshot(self) -> Folder:
        """Return a copy of the disk as a power loss at this moment would leave it; the disk itself goes on."""
        copied = self._root.copy()
        copied.crash(self._chance)
        return copied

    def restore(self, snapshot: Folder, folder: str, *, but: str = "") -> None:
        """Put a folder back as it was in a snapshot, durably, except for one entry: that stays as it is now."""
        current, parent = self._folder(folder), self._folder(posixpath.dirname(folder))
        old: Inode | Folder = snapshot
        for name in _parts(folder):
            assert isinstance(old, Folder), folder
            old = old.names[name]
        restored = old.copy()
        if but:
            assert isinstance(restored, Folder), folder
            restored.names[but] = current.names[but]
            restored.sync()
        parent.change({posixpath.basename(folder): restored})
        parent.sync()

    def release(self) -> None:
        """End of a process without power loss: its open files are closed, the page cache stays."""
        self.generation += 1
        self._trap = None

    def power_up(self) -> None:
        """Let a machine begin to use the disk."""
        self._dead = False

    def set_trap(
        self,
        changes: int,
        spring: Callable[[], None],
        *,
        counted: frozenset[str] = CHANGES,
        under: str = "/",
    ) -> None:
        """Call `spring` before the change after the next `changes`, in the midst of whatever its caller does.

        The call ends the caller's life: each operation fails from there on, until `power_up`. A crash disarms it.
        `counted`: the operations that count as changes, `under` a folder.
        """
        self._trap, self._trapped = (changes, spring), (counted, under.rstrip("/") + "/")

    def disarm(self) -> None:
        self._trap = None

    def fail(
        self,
        operation: str,
        *,
        under: str = "/",
        error: int = errno.EIO,
        extent: Extent | None = None,
    ) -> None:
        """Fail "open", "read", "write", "sync", "name" or "any" operations until `mend`.

        All under a path, or as `extent` says.
        """
        chosen = extent or Extent(under)
        self._failures.append(_Failure(operation, chosen.under.rstrip("/") + "/", error, chosen))

    def mend(self) -> None:
        """Undo `fail`. Unsynced writes that a failed sync dropped stay lost."""
        self._failures.clear()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let no operation fail meanwhile: it is the world that acts on the disk, not a node."""
        kept = self._failures, self.capacity_bytes, self._trap, self._dead
        self._failures, self.capacity_bytes, self._trap, self._dead = [], ROOMY_BYTES, None, False
        try:
            yield
        finally:
            self._failures, self.capacity_bytes, self._trap, self._dead = kept

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a file, in memory and on the platter."""
        node = self._find(path)
        assert isinstance(node, Inode), path
        node.content[position] ^= 1 << bit
        node.flipped.add(position)
        if position < len(node.durable):
            node.durable[position] ^= 1 << bit

    def rot(self, path: str, position: int, bit: int = 0) -> bool:
        """Flip one bit on the platter; readers of the page cache see that later. False: it is not there yet."""
        node = self._find(path)
        assert isinstance(node, Inode), path
        if position >= len(node.durable):
            return False
        node.rot(position, bit)
        return True

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that was set for this operation here, if any."""
        if (
            self._trap is not None
            and operation in self._trapped[0]
            and f"{path}/".startswith(self._trapped[1])
        ):
            self._approach_trap()
        if self._dead:
            raise OSError(errno.EIO, "the power is gone", path)
        for failure in self._failures:
            if failure.strikes(operation, path, self._chance):
                self.effects[f"{operation} failed"] += 1
                kind = TornWrite if failure.torn and operation == "write" else OSError
                raise kind(failure.error, os.strerror(failure.error), path)

    def _approach_trap(self) -> None:
        assert self._trap is not None
        left, spring = self._trap
        if left > 0:
            self._trap = (left - 1, spring)
            return
        self._trap = None
        self._dead = True
        self.effects["power lost at work"] += 1
        spring()

    def draw(self, count: int) -> int:
        """Return a number below `count` by chance, or 0."""
        return self._chance.randrange(count) if count else 0

    def synced(self) -> None:
        """Count a sync, and take its time."""
        self.syncs += 1
        if self.on_sync is not None:
            self.on_sync()

    def peek(self, path: str) -> bytearray | None:
        """Return the bytes of a file without faults, chance or a delay: for a watcher from outside."""
        node = self._find(path)
        return node.content if isinstance(node, Inode) else None

    def has_rotted(self, path: str, where: range) -> bool:
        """Return whether a bit of a file flipped there, without a later overwrite."""
        node = self._find(path)
        return isinstance(node, Inode) and any(at in where for at in node.flipped)

    def lies_about(self, path: str) -> bool:
        """Return whether a sync of a path reports success without effect."""
        lied = self.lies is not None and self.lies(path)
        self.effects["sync was a lie"] += lied
        return lied

    def is_cold(self) -> bool:
        return self.cold_read_rate > 0 and self._chance.random() < self.cold_read_rate

    @property
    def fails(self) -> bool:
        """Whether operations fail now, or may."""
        return any(each.left != 0 for each in self._failures)

    @property
    def is_full(self) -> bool:
        """Whether only so much fits as was there when it was filled."""
        return self.capacity_bytes < ROOMY_BYTES

    def fill(self, under: str = "/") -> None:
        """Leave no room for more than is there, on the whole disk or, as a quota does, under one folder."""
        self._limited = under.rstrip("/") + "/"
        self.capacity_bytes = used_bytes(self._folder(under))

    def make_room(self) -> None:
        self._limited = "/"
        self.capacity_bytes = ROOMY_BYTES

    def room_bytes(self, path: str = "/") -> int:
        """Return how many bytes more fit at a path."""
        if self.capacity_bytes >= ROOMY_BYTES or not f"{path}/".startswith(self._limited):
            return ROOMY_BYTES
        return max(0, self.capacity_bytes - used_bytes(self._folder(self._limited)))

    # -- names --------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | Folder | None:
        return self._find_parts(_parts(path))

    def _find_parts(self, parts: tuple[str, ...]) -> Inode | Folder | None:
        node: Inode | Folder | None = self._root
        for name in parts:
            if not isinstance(node, Folder):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: str) -> Folder:
        return self._folder_of(_parts(path), path)

    def _folder_of(self, parts: tuple[str, ...], path: str) -> Folder:
        node = self._find_parts(parts)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        parts = _parts(path)
        assert parts, f"{path!r} names no file"
        return self._folder_of(parts[:-1], path), parts[-1]

    def _empty(self, folder: Folder) -> None:
        for name in sorted(folder.names):
            node = folder.names[name]
            if isinstance(node, Folder):
                self._empty(node)
            folder.change({name: None})

    def _sync_all(self, folder: Folder) -> None:
        folder.sync()
        for node in folder.names.values():
            if isinstance(node, Folder):
                self._sync_all(node)
            else:
                node.sync()


def _check_length(name: str, path: str) -> None:
    if len(name.encode()) > LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


@lru_cache(maxsize=4_096)
def _parts(path: str) -> tuple[str, ...]:
    assert path.startswith("/"), f"{path!r} is not absolute"
    return tuple(part for part in posixpath.normpath(path).split("/") if part)
