"""Replays a partition of `__share_group_state`: snapshots, and the updates that follow them."""

from __future__ import annotations

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.share_state.share_state import (
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    apply,
)
from raftlog.coordinator.share_state.share_state_records import decode
from raftlog.records.batch import Buffer, iter_headers, iter_records


class ShareStateReplay:
    """Collects records batch by batch; damaged or unknown records are counted and skipped.

    An update without a snapshot is skipped too: pruning removed the snapshot, and a later snapshot or the end of the
    group follows.
    """

    __slots__ = ("next_offset", "skipped", "snapshot_offsets", "states")

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.snapshot_offsets: dict[SharePartitionKey, int] = {}
        """The offset of the batch with the last snapshot of each state."""
        self.next_offset = 0
        self.skipped = 0

    def feed(self, batches: Buffer) -> int:
        """Apply whole batches as a log returns them; return the offset to continue from."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            if not header.is_control:
                for record in iter_records(view[position : position + header.length]):
                    self._take(record.key, record.value, header.base_offset)
            self.next_offset = header.end_offset
        return self.next_offset

    def _take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        try:
            record = decode(key, value)
        except CorruptMessage:
            record = None
        state = None if record is None else self.states.get(record.key)
        if isinstance(record, ShareSnapshot):
            if record.state is None:
                self.states.pop(record.key, None)
                self.snapshot_offsets.pop(record.key, None)
            else:
                self.states[record.key] = record.state
                self.snapshot_offsets[record.key] = offset
        elif record is not None and state is not None:
            self.states[record.key] = apply(state, (record,))
        else:
            self.skipped += 1
