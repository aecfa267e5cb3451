"""Snapshot files: the state machine's bytes, and the two log entries at which they were taken.

It knows files and checksums, not what the state means. Two entries, because PySyncObj's log must keep the last applied
entry and its predecessor. Ordering law: a snapshot is durable before the log drops entries that it covers. An older
snapshot is removed after the log was rewritten.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.disk import Disk
from raftlog.metadata.snapshot import MAX_IMAGE_BYTES
from raftlog.quorum.messages import SnapshotChunk
from raftlog.quorum.wal import MAX_COMMAND_BYTES, DamagedJournal, Entry

SUFFIX: Final = ".snapshot"
INDEX_DIGITS: Final = 20
MAX_SNAPSHOT_BYTES: Final = MAX_IMAGE_BYTES + 2 * MAX_COMMAND_BYTES + 1024
"""The maximum size of a snapshot file. Larger files are neither written nor accepted, so every node can load a
snapshot that it receives.
"""

_MAGIC: Final = b"RLQS\x01"
_MAGIC_WITH_VOTERS: Final = b"RLQS\x02"
"""Of a snapshot with a set of voters, which releases up to 0.3.0 cannot read."""

_CRC: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">QQQII")  # last index, last term, previous term, two command lengths
_VOTERS_SIZE: Final = struct.Struct(">I")  # follows the header where there is a set of voters
_BODY_AT: Final = len(_MAGIC) + _CRC.size


class SnapshotTooLarge(Exception):
    """The state is too large to send: the log is kept instead, and grows."""


class Snapshot(NamedTuple):
    """`state` is everything up to and including entry `last`; `previous` is the entry before it.

    `voters`: the command with the newest set of voters up to there; b"" where the config's are in force.
    """

    previous: Entry
    last: Entry
    state: bytes
    voters: bytes = b""

    @property
    def end(self) -> int:
        """The index of the last entry covered."""
        return self.last[1]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a file's bytes: magic, CRC-32C of the rest, the two entries, the state.

    Raises SnapshotTooLarge.
    """
    if len(snapshot.state) > MAX_IMAGE_BYTES:
        raise SnapshotTooLarge(
            f"{len(snapshot.state)} bytes of metadata are over the limit of {MAX_IMAGE_BYTES}"
        )
    (previous, _, previous_term), (last, index, term), state, voters = snapshot
    header = _HEADER.pack(index, term, previous_term, len(previous), len(last))
    if voters:
        header += _VOTERS_SIZE.pack(len(voters)) + voters
    body = b"".join([header, previous, last, state])
    return b"".join([_MAGIC_WITH_VOTERS if voters else _MAGIC, _CRC.pack(crc32c(body)), body])


def decode_snapshot(data: bytes) -> Snapshot:
    """Raise DamagedJournal unless every byte is as it was written."""
    has_voters = data.startswith(_MAGIC_WITH_VOTERS)
    begin, voters = _HEADER.size + has_voters * _VOTERS_SIZE.size, b""
    if not data.startswith((_MAGIC, _MAGIC_WITH_VOTERS)) or len(data) < _BODY_AT + begin:
        raise DamagedJournal("it is not a metadata snapshot of this version")
    body = data[_BODY_AT:]
    if _CRC.unpack_from(data, len(_MAGIC))[0] != crc32c(body):
        raise DamagedJournal("its checksum is wrong")
    index, term, previous_term, previous_size, last_size = _HEADER.unpack_from(body)
    if has_voters:
        voters_at = begin
        begin += _VOTERS_SIZE.unpack_from(body, _HEADER.size)[0]
        voters = body[voters_at:begin]
    middle = begin + previous_size
    end = middle + last_size
    if end > len(body):
        raise DamagedJournal("it is shorter than its header says")
    return Snapshot(
        (body[begin:middle], index - 1, previous_term), (body[middle:end], index, term), body[end:], voters
    )


class SnapshotFiles:
    """The snapshots of one voter, named by the index of their last entry; the newest counts."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def _path(self, index: int) -> str:
        return f"{self._directory}/{index:0{INDEX_DIGITS}d}{SUFFIX}"

    def indexes(self) -> list[int]:
        """Return the indexes of the snapshots in ascending order. A file of another name may be an operator's."""
        stems = (
            name.removesuffix(SUFFIX) for name in self._disk.listdir(self._directory) if name.endswith(SUFFIX)
        )
        return sorted(int(stem) for stem in stems if len(stem) == INDEX_DIGITS and stem.isdecimal())

    def remove_unfinished(self) -> None:
        """Remove what a crash left half written."""
        for name in self._disk.listdir(self._directory):
            if name.endswith(".tmp"):
                self._disk.remove(f"{self._directory}/{name}")

    def load_newest(self) -> Snapshot | None:
        """Raise DamagedJournal with the file's name; an older file is no substitute, since the log was cut to the
        newest.
        """
        indexes = self.indexes()
        if not indexes:
            return None
        path = self._path(indexes[-1])
        try:
            return decode_snapshot(self._disk.read_file(path))
        except DamagedJournal as error:
            raise DamagedJournal(f"{path}: {error}") from error

    def read(self, index: int) -> bytes:
        """Return a file's bytes for sending; the receiver verifies them."""
        return self._disk.read_file(self._path(index))

    def write(self, index: int, data: bytes) -> None:
        """Make an encoded snapshot durable."""
        self._disk.write_file(self._path(index), data)

    def remove_older(self) -> None:
        for index in self.indexes()[:-1]:
            self._disk.remove(self._path(index))


class IncomingSnapshot:
    """Assembles a snapshot from chunks: at most one at a time, in order, from one leader of one term."""

    def __init__(self) -> None:
        self._source: tuple[int, int, int, int] | None = None
        self._chunks: list[bytes] = []
        self._received = 0

    def take(self, peer: int, chunk: SnapshotChunk) -> bytes | None:
        """Return the whole snapshot when this chunk completes it. A chunk out of order discards the others."""
        source = (peer, chunk.term, chunk.index, chunk.total)
        if chunk.start == 0:
            self._source, self._chunks, self._received = source, [], 0
        if (
            source != self._source
            or chunk.start != self._received
            or not 0 < chunk.total <= MAX_SNAPSHOT_BYTES
        ):
            self._source, self._chunks = None, []
            return None
        self._chunks.append(chunk.data)
        self._received += len(chunk.data)
        if self._received < chunk.total:
            return None
        data = b"".join(self._chunks)
        self._source, self._chunks = None, []
        return data if len(data) == chunk.total else None
