"""Small files that a node reads at its start, with their checksums in a file beside each.

The file stays as Apache Kafka writes it. `<name>.crc32c` beside it holds the CRC-32C of the whole file, optionally of
each line, and optionally a copy. Bytes that no checksum covers count as absent, and the log names the file.

Ordering law: the checksum of the new file is durable before the file changes. The checksum of the old file stays until
the next change. So a crash in between leaves the old or the new file, and either is valid.

raftlog before 0.4 wrote no checksums. The reader says whether that is possible (`unchecked_ok`): a folder is upgraded
once, and rot does not remove files.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.disk import Disk
from raftlog.base.log import get_logger

CHECKSUMS: Final = ".crc32c"
"""Suffix of a file of checksums."""
_LINES_NAMED: Final = 10
"""Wrong lines of a file that are logged separately."""

_NO_COPY: Final = b"\n\n"
"""The end of a file of checksums without a copy."""

_LISTED: Final = re.compile(rb"[0-9a-f]{8}\n")
_LISTED_BYTES: Final = 9
"""A checksum in its file, with the end of its line."""

_log = get_logger("storage")


class _Checksums(NamedTuple):
    """The content of a file of checksums: hexadecimal numbers, one a line; an empty line; the copy, if any."""

    known: frozenset[bytes]
    copy: bytes
    whole: bytes

    def cover(self, content: bytes) -> bool:
        """Return whether a file with this content is as it was written. Two equal copies prove that too."""
        return self._has_copy_of(content) or _checksum(content) in self.known

    def are_rotten_beside(self, content: bytes) -> bool:
        """Return whether the copy, or a checksum beside it, has rotted where the file itself is sound."""
        has_copy = bool(self.copy) or self._has_copy_of(content)
        return has_copy and not {_checksum(content), _checksum(self.copy)} <= self.known

    def have_rotted_alone(self, content: bytes) -> bool:
        """Return whether the listed checksums have rotted, though they and the copy cover the file.

        A power cut leaves zeros or another length, and a crash between both files another first checksum: that is no
        rot. Nothing covers the checksum of the file before, so it may have another value.
        """
        head = self.whole[: len(self.whole) - len(self.copy)]
        if b"\0" in head or len(head) % _LISTED_BYTES != 1:
            return False
        listed = [head[at : at + _LISTED_BYTES] for at in range(0, len(head) - 1, _LISTED_BYTES)]
        if head[-1:] != b"\n" or not all(map(_LISTED.fullmatch, listed)):
            return True
        if len(listed) <= 2 or listed[0] != _checksum(content) + b"\n":
            return False
        lines = [_checksum(line) + b"\n" for line in content.split(b"\n")]
        return listed[-len(lines) :] != lines

    def _has_copy_of(self, content: bytes) -> bool:
        return len(content) > len(_NO_COPY) and self.whole.endswith(content)


def write_checked(
    disk: Disk,
    path: str,
    content: bytes,
    *,
    sync: bool = True,
    by_line: bool = False,
    copy: bool = False,
) -> None:
    """Replace a small file and its checksums atomically, and durably if `sync`. Raise OSError.

    `by_line`: sound lines stay valid if others are not. `copy`: a rotted file is restored; for files that never change,
    since an older raftlog changes the file and leaves the copy.
    """
    write_checksums(disk, path, content, sync=sync, by_line=by_line, copy=copy)
    disk.write_file(path, content, sync=sync)


def write_checksums(
    disk: Disk,
    path: str,
    content: bytes,
    *,
    sync: bool = True,
    by_line: bool = False,
    copy: bool = False,
) -> None:
    """Write the checksums of a file's content. The file itself stays: a durable file is not risked to cover it.

    For the other arguments see `write_checked`. Raise OSError.
    """
    checksums = [_checksum(content)]
    before, current = _read_checksums(disk, path), _read(disk, path)
    if before is not None and current is not None and before.cover(current):
        checksums.append(_checksum(current))
    if by_line:
        checksums += map(_checksum, content.split(b"\n"))
    beside = b"\n".join([*checksums, b"", content if copy else b""])
    disk.write_file(path + CHECKSUMS, beside, sync=sync)


def read_checked(
    disk: Disk, path: str, *, unchecked_ok: bool = False, unsynced: bool = False
) -> bytes | None:
    """Return a file's content; None if there is no file, or its content is wrong and there is no copy.

    A wrong file is rewritten from its copy, and a wrong copy from its file. Otherwise a file that never changes would
    be lost with its second rot. `unsynced`: it may never have been synced, so wrong bytes show only a power cut. Raise
    OSError.
    """
    content = _read(disk, path)
    if content is None:
        return None
    checksums = _read_checksums(disk, path)
    if checksums is None and unchecked_ok:
        return content
    if checksums is not None and checksums.cover(content):
        if checksums.are_rotten_beside(content):
            with suppress(OSError):  # the next read retries
                write_checksums(disk, path, content, copy=True)
                _log.warning("corrupt_copy_restored", path=path + CHECKSUMS)
        else:
            _name_if_rotten(path, checksums, content)
        return content
    if (copy := read_copy(disk, path)) is not None:
        write_checked(disk, path, copy, copy=True)
        _log.warning("corrupt_file_restored", path=path, advice=f"remove {path}{CHECKSUMS} if you changed it")
        return copy
    report = _log.warning if unsynced else _log.error
    report("corrupt_file_ignored", path=path, reason=_reason(checksums))
    return None


def read_checked_lines(disk: Disk, path: str) -> list[bytes]:
    """Return the lines of a file (written `by_line`) that are as they were written; none if there is no file.

    Raise OSError.
    """
    content = _read(disk, path)
    if content is None:
        return []
    lines = content.split(b"\n")
    checksums = _read_checksums(disk, path)
    if checksums is not None and checksums.cover(content):
        _name_if_rotten(path, checksums, content)
        return lines
    known: frozenset[bytes] = frozenset() if checksums is None else checksums.known
    sound = [_checksum(line) in known for line in lines]
    wrong = [number for number, is_sound in enumerate(sound, 1) if not is_sound]
    _log.error(
        "corrupt_lines_ignored",
        path=path,
        reason=_reason(checksums),
        lines=wrong[:_LINES_NAMED],
        count=len(wrong),
    )
    return [line for line, is_sound in zip(lines, sound, strict=True) if is_sound]


def remove_checked(disk: Disk, path: str) -> bool:
    """Remove a file durably, and its checksums after it; return whether the file existed. Raise OSError.

    Checksums without a file are harmless. A file without its checksums would count as wrong, and a mark as the worst.
    """
    if there := disk.exists(path):
        disk.remove(path)
        disk.sync_dir(path.rpartition("/")[0])
    if disk.exists(path + CHECKSUMS):
        disk.remove(path + CHECKSUMS)
    return there


def read_copy(disk: Disk, path: str) -> bytes | None:
    """Return the sound copy of a file that was written with `copy`, whether or not the file exists; else None."""
    checksums = _read_checksums(disk, path)
    if checksums is None or not checksums.copy or _checksum(checksums.copy) not in checksums.known:
        return None
    return checksums.copy


def has_checksums(disk: Disk, path: str) -> bool:
    """Return whether a file was ever written with its checksums, durably."""
    return _read_checksums(disk, path) is not None


def _name_if_rotten(path: str, checksums: _Checksums, content: bytes) -> None:
    if checksums.have_rotted_alone(content):
        _log.warning("corrupt_file_ignored", path=path + CHECKSUMS, reason="it is not as it was written")


def _checksum(content: bytes) -> bytes:
    return b"%08x" % crc32c(content)


def _reason(checksums: _Checksums | None) -> str:
    return "it has no checksums" if checksums is None else "its checksum is wrong"


def _read(disk: Disk, path: str) -> bytes | None:
    try:
        return disk.read_file(path)
    except FileNotFoundError:
        return None


def _read_checksums(disk: Disk, path: str) -> _Checksums | None:
    beside = _read(disk, path + CHECKSUMS)
    if beside is None or not beside.strip(b"\0"):  # it was not synced before a power cut
        return None
    known, _, copy = beside.partition(b"\n\n")
    return _Checksums(frozenset(known.split(b"\n")), copy, beside)
