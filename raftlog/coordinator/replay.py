"""Read a partition of `__consumer_offsets` back into groups: the last word on each key counts."""

from __future__ import annotations

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.consumer.state import Book
from raftlog.coordinator.group import CommittedOffset, Group, GroupChanged, Membership, OffsetCommitted
from raftlog.coordinator.records import decode
from raftlog.records.batch import Buffer, iter_headers, iter_records


class Replay:
    """Collects records batch by batch; damaged or unknown records are counted and left out."""

    __slots__ = ("_books", "_memberships", "_offsets", "next_offset", "skipped")

    def __init__(self) -> None:
        self._memberships: dict[str, Membership] = {}
        self._offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._books: dict[str, Book] = {}
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Take whole batches as a log returns them; returns the offset to read on from."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            if not header.is_control:
                self._feed_batch(view[position : position + header.length])
            self.next_offset = header.end_offset
        return self.next_offset

    def _feed_batch(self, batch: memoryview) -> None:
        for record in iter_records(batch):
            try:
                self._note(record.key, record.value)
            except CorruptMessage:
                self.skipped += 1

    def _note(self, key: bytes | None, value: bytes | None) -> None:
        record = decode(key, value)
        if record is None:
            self.skipped += 1
        elif isinstance(record, GroupChanged):
            if record.membership is None:
                self._memberships.pop(record.group_id, None)
            else:
                self._memberships[record.group_id] = record.membership
        elif isinstance(record, OffsetCommitted):
            offsets = self._offsets.setdefault(record.group_id, {})
            if record.committed is None:
                offsets.pop((record.topic, record.partition), None)
            else:
                offsets[record.topic, record.partition] = record.committed
        else:
            self._books.setdefault(record.group_id, Book()).note(record)

    def groups(self) -> list[Group]:
        """Return every group that something is left of."""
        found = []
        for group_id in self._memberships.keys() | self._offsets.keys() | self._books.keys():
            membership = self._memberships.get(group_id)
            offsets = self._offsets.get(group_id, {})
            book = self._books.get(group_id)
            group = Group(
                group_id,
                membership or Membership(),
                offsets,
                membership is not None,
                consumer=book.membership() if book else None,
            )
            if group.exists:
                found.append(group)
        return sorted(found, key=lambda each: each.group_id)
