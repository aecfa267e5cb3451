"""Replays a partition of `__consumer_offsets` into groups: the last record of each key counts.

Offsets in a producer's transaction are pending until its marker, also at the end of the log.

An offset has the id of its topic. A new coordinator has applied all metadata that a former coordinator had: the record
of its leadership is later, and ended the former leadership. So an offset with another id than the present topic belongs
to a deleted topic, never to a future topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.committed_offsets import GroupOffsets
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembershipBuilder, ConsumerRecord
from raftlog.coordinator.group import CommittedOffset, Group, GroupChanged, Membership, OffsetCommitted
from raftlog.coordinator.group_records import decode
from raftlog.records.batch import (
    BatchHeader,
    Buffer,
    iter_headers,
    iter_records,
    read_end_marker,
    skip_headers,
)

if TYPE_CHECKING:
    from raftlog.coordinator.share.share_membership import ShareMembershipBuilder, ShareRecord


class GroupReplay:
    """Collects records batch by batch; damaged or unknown records are counted and skipped."""

    __slots__ = (
        "_books",
        "_is_gone",
        "_memberships",
        "_offsets",
        "_open",
        "_shares",
        "deleted_topics",
        "next_offset",
        "skipped",
    )

    def __init__(self, is_gone: Callable[[str, UUID], bool] = lambda _name, _id: False) -> None:
        """`is_gone` returns whether a topic of this name and id is deleted."""
        self._is_gone = is_gone
        self.deleted_topics: dict[str, dict[str, set[UUID]]] = {}
        """Keyed by group and name: the deleted topics of the offsets read, even if replaced later."""
        self._memberships: dict[str, Membership] = {}
        self._offsets: dict[str, GroupOffsets[CommittedOffset]] = {}
        self._books: dict[str, ConsumerMembershipBuilder] = {}
        self._shares: dict[str, ShareMembershipBuilder] = {}
        self._open: dict[int, set[str]] = {}
        """The groups in which its transaction has offsets, by producer id."""
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Apply whole batches as a log returns them; return the offset to continue from."""
        for _ in self.feed_stepwise(batches):
            pass
        return self.next_offset

    def feed_stepwise(self, batches: Buffer) -> Iterator[None]:
        """Apply whole batches record by record; after the last, `next_offset` is where to continue."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            batch = view[position : position + header.length]
            if header.is_control:
                self._feed_marker(header, batch)
            else:
                yield from self._feed_batch(header, batch)
            self.next_offset = header.end_offset

    def _feed_marker(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_end_marker(batch)
        if marker is not None:
            for group_id in self._open.pop(header.producer_id, ()):
                self._offsets[group_id].end_transaction(header.producer_id, commit=marker.commit)

    def _feed_batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        for record in iter_records(batch, read_headers=skip_headers):
            try:
                self._note(header, record.key, record.value)
            except CorruptMessage:
                self.skipped += 1
            yield

    def _note(self, header: BatchHeader, key: bytes | None, value: bytes | None) -> None:
        record = decode(key, value)
        if record is None:
            self.skipped += 1
        elif isinstance(record, GroupChanged):
            if record.membership is None:
                self._memberships.pop(record.group_id, None)
            else:
                self._memberships[record.group_id] = record.membership
        elif isinstance(record, OffsetCommitted):
            self._move(header, record)
        elif isinstance(record, ConsumerRecord):
            self._books.setdefault(record.group_id, ConsumerMembershipBuilder()).apply(record)
        else:
            self._note_share(record)

    def _note_share(self, record: ShareRecord) -> None:
        from raftlog.coordinator.share.share_membership import ShareMembershipBuilder

        self._shares.setdefault(record.group_id, ShareMembershipBuilder()).apply(record)

    def _move(self, header: BatchHeader, record: OffsetCommitted) -> None:
        positions = self._offsets.get(record.group_id)
        if positions is None:
            positions = self._offsets[record.group_id] = GroupOffsets()
        if record.committed is not None:
            self._note_topic(record, record.committed.topic_id)
        tp = (record.topic, record.partition)
        if header.is_transactional and record.committed is not None:
            positions.put_pending(header.producer_id, tp, record.committed)
            self._open.setdefault(header.producer_id, set()).add(record.group_id)
        else:
            positions.put(tp, record.committed)

    def _note_topic(self, record: OffsetCommitted, topic_id: UUID | None) -> None:
        if topic_id is not None and self._is_gone(record.topic, topic_id):
            self.deleted_topics.setdefault(record.group_id, {}).setdefault(record.topic, set()).add(topic_id)

    def groups(self) -> Iterator[Group]:
        """Yield every non-empty group, by name."""
        described = self._memberships.keys() | self._books.keys() | self._shares.keys()
        for group_id in sorted(described | self._offsets.keys()):
            membership = self._memberships.get(group_id)
            book, share = self._books.get(group_id), self._shares.get(group_id)
            positions = self._offsets.get(group_id) or GroupOffsets()
            group = Group(
                group_id,
                membership or Membership(),
                positions.offsets,
                membership is not None,
                pending=positions.pending,
                next_pending_number=positions.next_pending_number,
                consumer=book.build() if book else None,
                share=share.build() if share else None,
            )
            if group.exists:
                yield group
