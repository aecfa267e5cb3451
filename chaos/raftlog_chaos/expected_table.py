"""The content of a compacted partition before any cleaning, and what must therefore be left.

Laws: a record never changes and never moves. The newest committed record of each key is there. If that is a tombstone,
no record of that key that a reader could see may be left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raftlog.base.errors import CorruptMessage
from raftlog.records.batch import Record, iter_records, read_end_marker
from raftlog.records.header import BatchHeader

MAX_FAULTS: Final = 3


class Row(NamedTuple):
    """A record, without its offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int


def records_of(batch: memoryview) -> list[Record]:
    """Return a batch's records; none of a malformed batch, which readers pass over and compaction keeps as it is."""
    try:
        return list(iter_records(batch))
    except CorruptMessage:
        return []


class ExpectedTable:
    """Filled with every batch as it is first seen to be committed, in the order of offsets."""

    def __init__(self) -> None:
        self.end = 0
        self.rows: dict[int, Row] = {}
        self._open: dict[int, list[int]] = {}
        self._aborted: set[int] = set()

    def take(self, header: BatchHeader, batch: memoryview) -> list[str]:
        """Learn from a new committed batch, or compare a known batch; returns what is wrong."""
        if header.is_control:
            self._end_transaction(header, batch)
            return []
        is_new = header.base_offset >= self.end
        faults = []
        for record in records_of(batch):
            row = Row(record.key, record.value, record.timestamp)
            if is_new:
                self.rows[record.offset] = row
                if header.is_transactional:
                    self._open.setdefault(header.producer_id, []).append(record.offset)
            elif self.rows.get(record.offset) != row:
                known = self.rows.get(record.offset)
                faults.append(
                    f"committed offset {record.offset} holds another record ({row}) than before ({known})"
                )
        self.end = max(self.end, header.end_offset)
        return faults[:MAX_FAULTS]

    def _end_transaction(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_end_marker(batch)
        if marker is None or header.base_offset < self.end:
            return
        ended = self._open.pop(header.producer_id, [])
        if not marker.commit:
            self._aborted.update(ended)
        self.end = header.end_offset

    def judge(self, offsets: Iterable[int], start: int, end: int) -> list[str]:
        """Compare what a log still has in [start, end) with what it had; returns what is wrong.

        A key with a newer record at or after `end` is ignored. A replica that catches up gets its records from a leader
        that cleaned further.
        """
        undecided = {offset for opened in self._open.values() for offset in opened}
        limit = min([end, *undecided])
        newest = self._newest(offset for offset in self.rows if offset >= start and offset not in undecided)
        had = {key: offset for key, offset in newest.items() if offset < limit}
        left = self._newest(offset for offset in sorted(offsets) if start <= offset < limit)
        faults = [
            f"key {key!r} is gone, whose newest record was at offset {offset}"
            for key, offset in had.items()
            if key is not None and self.rows[offset].value is not None and left.get(key) != offset
        ]
        faults += [
            f"key {key!r} is back with offset {offset}, though it was deleted"
            for key, offset in left.items()
            if key in had and self.rows[offset].value is not None and self.rows[had[key]].value is None
        ]
        return faults[:MAX_FAULTS]

    def _newest(self, offsets: Iterator[int]) -> dict[bytes | None, int]:
        """The newest offset of each key, of records that are committed for good."""
        return {self.rows[offset].key: offset for offset in offsets if offset not in self._aborted}
