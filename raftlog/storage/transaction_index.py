"""The aborted transactions of a log, and Kafka's `.txnindex` files (KIP-98)."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from struct import Struct
from typing import Final

from raftlog.base.checked_files import read_checked, write_checked
from raftlog.base.disk import Buffer, Disk
from raftlog.records.header import end_offset_of
from raftlog.storage.producers import AbortedTransaction
from raftlog.storage.segment import Segment

ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_LAST_OFFSET: Final = attrgetter("last_offset")


class TransactionIndex:
    """The aborted transactions of a log by the offset of their marker."""

    __slots__ = ("_entries", "_unsaved")

    def __init__(self) -> None:
        self._entries: list[AbortedTransaction] = []
        self._unsaved = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, aborted: AbortedTransaction) -> None:
        """Add a transaction when its marker is appended; ignore a known transaction (a replayed marker)."""
        if not self._entries or self._entries[-1].last_offset < aborted.last_offset:
            self._entries.append(aborted)
            self._unsaved = True

    def between(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the transactions with records in [start, end)."""
        overlapping = self.overlapping(start_offset, end_offset)
        return [(aborted.producer_id, aborted.first_offset) for aborted in overlapping]

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions that may have records in [start, end), without a walk over all later ones."""
        found: list[AbortedTransaction] = []
        entries = self._entries
        for index in range(self._first_since(start_offset), len(entries)):
            aborted = entries[index]
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break  # transactions that ended later began there or after it
        return found

    def in_batches(self, offset: int, batches: Buffer) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the transactions with records in batches read from `offset` on."""
        if not self._entries or self._entries[-1].last_offset < offset or not len(batches):
            return []
        return self.between(offset, end_offset_of(batches))

    def since(self, start_offset: int) -> TransactionIndex:
        """Return a copy of the transactions that may have records from there on."""
        copy = TransactionIndex()
        copy._entries = self._entries[self._first_since(start_offset) :]
        return copy

    def _first_since(self, start_offset: int) -> int:
        return bisect_left(self._entries, start_offset, key=_LAST_OFFSET)

    def cleaned(self, start_offset: int, end_offset: int) -> None:
        """Forget the transactions with a marker in [start, end): compaction has removed all of their records."""
        first = bisect_left(self._entries, start_offset, key=_LAST_OFFSET)
        stop = bisect_left(self._entries, end_offset, key=_LAST_OFFSET)
        del self._entries[first:stop]

    def truncate(self, end_offset: int) -> None:
        """Forget the transactions with a marker at or after `end_offset`. Save before the log grows there again."""
        keep = bisect_left(self._entries, end_offset, key=_LAST_OFFSET)
        self._unsaved = self._unsaved or keep < len(self._entries)
        del self._entries[keep:]

    def drop_before(self, start_offset: int) -> None:
        """Forget the transactions with a marker before `start_offset`."""
        del self._entries[: bisect_left(self._entries, start_offset, key=_LAST_OFFSET)]

    def save(self, disk: Disk, segment: Segment) -> None:
        """Write the active segment's index durably if it has changed.

        Call it before the producers' snapshot is written: recovery replays the log from that snapshot on, and does
        not see earlier markers again.
        """
        if not self._unsaved:
            return
        first = bisect_left(self._entries, segment.base_offset, key=_LAST_OFFSET)
        _write(disk, segment, self._entries[first:])
        self._unsaved = False

    def save_all(self, disk: Disk, segments: list[Segment]) -> None:
        """Write the indexes of all segments durably, where a file existed or is needed now."""
        for segment in segments:
            first = bisect_left(self._entries, segment.base_offset, key=_LAST_OFFSET)
            stop = bisect_left(self._entries, segment.end_offset, key=_LAST_OFFSET)
            if first < stop or disk.exists(segment.path + ".txnindex"):
                _write(disk, segment, self._entries[first:stop])
        self._unsaved = False

    def load(self, disk: Disk, segments: list[Segment], end_offset: int, *, unchecked_ok: bool) -> bool:
        """Read the indexes of all segments, without markers from `end_offset` on, which the next save removes.

        Return False if a file is corrupt: then all indexes have to be rebuilt. `unchecked_ok` accepts files without a
        checksum, as releases before 0.4 wrote them, and adds checksums.
        """
        stale = False
        for segment in segments:
            path = segment.path + ".txnindex"
            if not disk.exists(path):
                continue
            file_bytes = read_checked(disk, path, unchecked_ok=unchecked_ok)
            if file_bytes is None:
                return False
            whole = len(file_bytes) // ENTRY.size * ENTRY.size
            for version, *fields in ENTRY.iter_unpack(file_bytes[:whole]):
                aborted = AbortedTransaction(*fields)
                if version == _VERSION and segment.base_offset <= aborted.last_offset < end_offset:
                    self.add(aborted)
                else:
                    stale = True
        self._unsaved = stale
        if unchecked_ok:
            self.save_all(disk, segments)
        return True


def _write(disk: Disk, segment: Segment, entries: list[AbortedTransaction]) -> None:
    packed = [ENTRY.pack(_VERSION, *aborted) for aborted in entries]
    write_checked(disk, segment.path + ".txnindex", b"".join(packed))
