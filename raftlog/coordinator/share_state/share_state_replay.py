"""Replays a partition of `__share_group_state`: snapshots, and the updates that follow them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.share_state.share_state import (
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
    apply,
)
from raftlog.coordinator.share_state.share_state_records import decode
from raftlog.records.batch import Buffer, iter_headers, iter_records, skip_headers

MERGED_TOGETHER: Final = 200
"""Updates that are merged into a state at a time: a turn of the loop reads some hundreds, and a merge takes ms."""


class ShareStateReplay:
    """Collects records batch by batch; damaged or unknown records are counted and skipped.

    A state has many ranges of offsets, so some updates are merged into it at a time. `merge` ends with the last.

    An update without a snapshot is skipped too: pruning removed the snapshot, and a later snapshot or the end of the
    group follows.
    """

    __slots__ = ("_updates", "next_offset", "skipped", "snapshot_offsets", "states")

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        """The states, complete after `merge`."""
        self._updates: dict[SharePartitionKey, list[ShareUpdate]] = {}
        """The updates of each state that are not merged into it."""
        self.snapshot_offsets: dict[SharePartitionKey, int] = {}
        """The offset of the batch with the last snapshot of each state."""
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Apply whole batches as a log returns them; return the offset to continue from."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            if not header.is_control:
                for record in iter_records(
                    view[position : position + header.length], read_headers=skip_headers
                ):
                    self._take(record.key, record.value, header.base_offset)
            self.next_offset = header.end_offset
        return self.next_offset

    def _take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        try:
            record = decode(key, value)
        except CorruptMessage:
            record = None
        if isinstance(record, ShareSnapshot):
            self._updates.pop(record.key, None)
            if record.state is None:
                self.states.pop(record.key, None)
                self.snapshot_offsets.pop(record.key, None)
            else:
                self.states[record.key] = record.state
                self.snapshot_offsets[record.key] = offset
        elif record is not None and record.key in self.states:
            waiting = self._updates.setdefault(record.key, [])
            waiting.append(record)
            if len(waiting) == MERGED_TOGETHER:
                self._merge(record.key)
        else:
            self.skipped += 1

    def merge(self) -> Iterator[None]:
        """Complete the states, each in a step."""
        for key in tuple(self._updates):
            self._merge(key)
            yield

    def _merge(self, key: SharePartitionKey) -> None:
        self.states[key] = apply(self.states[key], tuple(self._updates.pop(key)))
