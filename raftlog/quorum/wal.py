"""The write-ahead log of one voter: entries, truncations, term and vote, commit hints, in one append-only file.

It knows bytes and positions, not Raft. Ordering law: bytes of a group are written only after the previous group was
synced. So a bad record that is *followed* by a whole later group is damage, never a torn write. Only the tail of the
last group may be cut. A rewritten file, as at each start, ends with an empty group, as does the file of a voter that
stops by itself. So its last records cannot rot unseen. The last records of a killed process can, until it writes again.

Record: CRC-32C u32 of the rest, payload length u32, kind u8, payload; big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.disk import Disk, File

Entry = tuple[bytes, int, int]
"""(command, index, term), the shape PySyncObj keeps."""

NAME: Final = "quorum.wal"
VERSION: Final = 1
MAX_COMMAND_BYTES: Final = 2 * 1024 * 1024
"""Largest command of one entry; half of an append_entries batch, so that the core never splits a command."""

COMMAND_PREFIX: Final = b"\x00"
"""First byte of a command of ours; PySyncObj's own kinds (no-op, membership, version) are ignored."""

VOTERS_PREFIX: Final = b"\x10"
"""First byte of a command that is a set of voters (`voters_record`). Releases up to 0.3.0 ignore such commands, so a
cluster writes its first only at a level that they do not support.
"""

GROUP, IDENTITY, ENTRY, TRUNCATE, VOTE, COMMIT = range(6)

_HEADER: Final = struct.Struct(">IIB")
_CRC: Final = struct.Struct(">I")
_LENGTH_AND_KIND: Final = struct.Struct(">IB")
_U64: Final = struct.Struct(">Q")
_TWO_U64: Final = struct.Struct(">QQ")
_VOTE: Final = struct.Struct(">Qq")
_NOBODY: Final = -1
_MAX_PAYLOAD_BYTES: Final = MAX_COMMAND_BYTES + _TWO_U64.size
GROUP_BYTES: Final = _HEADER.size + _U64.size
_GROUP_MARK: Final = _LENGTH_AND_KIND.pack(_U64.size, GROUP)


class DamagedJournal(Exception):
    """The metadata log on this disk cannot be trusted; this voter must not start on it."""


class ForeignJournal(DamagedJournal):
    """The log belongs to another node or another directory."""


class RottenRecords(DamagedJournal):
    """Records are damaged that were durable, since later records are whole: the write was not torn."""


class MissingEntries(DamagedJournal):
    """Entries, or the log with the term and the vote, are gone."""


class ReplayedState(NamedTuple):
    """The content of a file. `good_bytes`: where the last whole record ends; the rest is torn and to be cut."""

    node_id: int
    entries: list[Entry]
    term: int
    voted_for: int | None
    commit_index: int
    good_bytes: int


def _record(kind: int, payload: bytes) -> bytes:
    rest = _LENGTH_AND_KIND.pack(len(payload), kind) + payload
    return _CRC.pack(crc32c(rest)) + rest


def entry_record(entry: Entry) -> bytes:
    command, index, term = entry
    assert len(command) <= MAX_COMMAND_BYTES
    return _record(ENTRY, _TWO_U64.pack(index, term) + command)


def truncate_record(index: int) -> bytes:
    """Return a record that removes the entries at `index` and after it."""
    return _record(TRUNCATE, _U64.pack(index))


def vote_record(term: int, voted_for: int | None) -> bytes:
    return _record(VOTE, _VOTE.pack(term, _NOBODY if voted_for is None else voted_for))


def commit_record(index: int) -> bytes:
    """Return the record of how far entries are committed: a hint, which need not be synced."""
    return _record(COMMIT, _U64.pack(index))


def group_record(position: int) -> bytes:
    """Open a group at a file position, which vouches that everything before it was synced."""
    return _record(GROUP, _U64.pack(position))


def _marked(image: bytes) -> bytes:
    """Return a file's bytes with an empty group at their end, which vouches for all of them."""
    mark = group_record(len(image) - GROUP_BYTES)
    return image if image.endswith(mark) else image + group_record(len(image))


def encode_file(
    node_id: int, *, entries: Iterable[Entry], term: int, voted_for: int | None, commit_index: int
) -> bytes:
    """Return the bytes of a whole file that holds exactly this state."""
    parts = [
        _record(IDENTITY, _TWO_U64.pack(VERSION, node_id)),
        vote_record(term, voted_for),
        *map(entry_record, entries),
        commit_record(commit_index),
    ]
    return b"".join(parts)


def _records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield (kind, payload, end position) of each whole record, stopping at the first that is not whole."""
    position = 0
    view = memoryview(data)
    while position + _HEADER.size <= len(data):
        crc, length, kind = _HEADER.unpack_from(data, position)
        end = position + _HEADER.size + length
        if length > _MAX_PAYLOAD_BYTES or end > len(data) or crc32c(view[position + 4 : end]) != crc:
            return
        yield kind, data[position + _HEADER.size : end], end
        position = end


def _later_group(data: bytes, start: int) -> int | None:
    """Return the position of a whole group record at or after `start`, or None."""
    found = data.find(_GROUP_MARK, start + _CRC.size)
    while found >= 0:
        position = found - _CRC.size
        if data.startswith(group_record(position), position):
            return position
        found = data.find(_GROUP_MARK, found + 1)
    return None


class _State:
    """Records folded into the state they describe."""

    def __init__(self) -> None:
        self.node_id: int | None = None
        self.entries: list[Entry] = []
        self.term = 0
        self.voted_for: int | None = None
        self.commit_index = 1

    def take(self, kind: int, payload: bytes) -> None:
        """Raise ValueError or struct.error for a record that cannot follow its predecessors."""
        if kind == IDENTITY:
            version, self.node_id = _TWO_U64.unpack(payload)
            if version != VERSION:
                raise ValueError(f"version {version} is unknown")
        elif kind == ENTRY:
            index, term = _TWO_U64.unpack_from(payload)
            if self.entries and index != self.entries[-1][1] + 1:
                raise MissingEntries(f"entry {index} follows entry {self.entries[-1][1]}")
            self.entries.append((payload[_TWO_U64.size :], index, term))
        elif kind == TRUNCATE:
            (index,) = _U64.unpack(payload)
            if self.entries:
                del self.entries[max(0, index - self.entries[0][1]) :]
        elif kind == VOTE:
            self.term, voted_for = _VOTE.unpack(payload)
            self.voted_for = None if voted_for == _NOBODY else voted_for
        elif kind == COMMIT:
            (self.commit_index,) = _U64.unpack(payload)
        elif kind != GROUP:
            raise ValueError(f"kind {kind} is unknown")


def replay(data: bytes) -> ReplayedState:
    """Read a file's bytes; a torn tail is left out. Raises DamagedJournal for anything a torn write cannot explain."""
    state = _State()
    good_bytes = 0
    for kind, payload, end in _records(data):
        if (state.node_id is None) != (kind == IDENTITY):
            break
        try:
            state.take(kind, payload)
        except (ValueError, struct.error) as error:
            raise DamagedJournal(f"byte {good_bytes}: {error}") from error
        good_bytes = end
    later = _later_group(data, good_bytes)
    if later is not None:
        raise RottenRecords(f"byte {good_bytes} is damaged but what was written later, at {later}, is whole")
    if state.node_id is None:
        raise DamagedJournal("it does not begin with its owner")
    return ReplayedState(
        state.node_id, state.entries, state.term, state.voted_for, state.commit_index, good_bytes
    )


class Wal:
    """The open file. One writer at a time; `append` and `replace` may run on a worker thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._file: File | None = None
        self._end = 0

    @property
    def size_bytes(self) -> int:
        return self._end

    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def load(self) -> tuple[ReplayedState, int]:
        """Read the file, cut a torn tail and make what remains durable; returns (state, bytes cut).

        It is rewritten: after a failed sync, the kernel shows bytes that the disk never got and considers them clean.
        """
        data = self._disk.read_file(self._path)
        try:
            found = replay(data)
        except DamagedJournal as error:
            raise type(error)(f"{self._path}: {error}") from error
        self.replace(data[: found.good_bytes])
        return found, len(data) - found.good_bytes

    def append(self, records: list[bytes]) -> None:
        """Make one group durable. Raise OSError; only ENOSPC (a full disk) may be retried."""
        assert self._file is not None
        written = self._file.pwritev([b"".join([group_record(self._end), *records])], self._end)
        self._file.sync()
        self._end += written

    def replace(self, image: bytes) -> None:
        """Put a whole new file in place, atomically and durably. Raises OSError."""
        image = _marked(image)
        self._disk.write_file(self._path, image)
        previous, self._file = self._file, self._disk.open(self._path)
        self._end = len(image)
        if previous is not None:
            previous.close()

    def close(self) -> None:
        """Close the file, after a mark that all before it was synced."""
        if self._file is not None:
            with suppress(OSError):  # a failed disk leaves the file as a killed process does
                self._file.pwritev([group_record(self._end)], self._end)
                self._file.sync()
            self._file.close()
            self._file = None
