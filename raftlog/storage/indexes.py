"""The two sparse indexes of a segment, in memory: sorted arrays that encode to Kafka's `.index` and `.timeindex`.

Reads may come from another thread than the writer's. Growing appends the looked-up array last, and shrinking replaces
both arrays at once, so that a reader always holds a consistent pair.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

from raftlog.base.types import NO_TIMESTAMP

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY: Final = Struct(">qI")
TIME_ENTRY_BYTES: Final = TIME_ENTRY.size
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Entries hold offsets relative to the segment's base in 31 bits; a segment may not span more."""

_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Last offset of a batch → file position of that batch, for about one batch in `index.interval.bytes`."""

    __slots__ = ("_arrays", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._arrays: tuple[array[int], array[int]] = (array("I"), array("I"))

    def __len__(self) -> int:
        return len(self._arrays[0])

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with `offset`; both numbers grow from entry to entry."""
        offsets, positions = self._arrays
        positions.append(position)
        offsets.append(offset - self.base_offset)

    def entry_before(self, offset: int) -> tuple[int, int] | None:
        """Return the last (absolute offset, position) of a batch that ends before `offset`."""
        offsets, positions = self._arrays
        found = bisect_left(offsets, max(offset - self.base_offset, 0)) - 1
        return (self.base_offset + offsets[found], positions[found]) if found >= 0 else None

    def entry_at_position(self, position: int) -> tuple[int, int] | None:
        """Return the last (absolute offset, position) of a batch that begins at or before `position`."""
        offsets, positions = self._arrays
        found = bisect_right(positions, position) - 1
        return (self.base_offset + offsets[found], positions[found]) if found >= 0 else None

    def last(self) -> tuple[int, int] | None:
        """Return the last (absolute offset, position)."""
        offsets, positions = self._arrays
        return (self.base_offset + offsets[-1], positions[-1]) if offsets else None

    def entries(self) -> list[tuple[int, int]]:
        """Return all (absolute offset, position)."""
        return [(self.base_offset + offset, position) for offset, position in zip(*self._arrays, strict=True)]

    def truncate(self, position: int) -> None:
        """Forget the batches at or after a file position."""
        offsets, positions = self._arrays
        keep = bisect_left(positions, position)
        self._arrays = (offsets[:keep], positions[:keep])

    def encode(self, first: int = 0) -> bytes:
        """Return the file bytes of the entries from number `first` on."""
        offsets, positions = self._arrays
        out = array("I", bytes(OFFSET_ENTRY_BYTES * (len(offsets) - first)))
        out[0::2] = offsets[first:]
        out[1::2] = positions[first : len(offsets)]
        if _SWAP:
            out.byteswap()
        return out.tobytes()

    def decode(self, file_bytes: bytes, size: int) -> bool:
        """Load a file's entries; False (and empty) if they are not sorted inside a segment of `size` bytes.

        Zeros that Kafka preallocates after the last entry are ignored.
        """
        numbers = array("I", file_bytes[: len(file_bytes) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if _SWAP:
            numbers.byteswap()
        offsets, positions = numbers[0::2], numbers[1::2]
        while offsets and offsets[-1] == 0 and positions[-1] == 0:
            offsets.pop()
            positions.pop()
        sound = (
            _strictly_grows(offsets) and _strictly_grows(positions) and positions[-1:] < array("I", [size])
        )
        self._arrays = (offsets, positions) if sound else (array("I"), array("I"))
        return sound


class TimeIndex:
    """Largest timestamp so far → the offset of its batch's last record."""

    __slots__ = ("_arrays", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._arrays: tuple[array[int], array[int]] = (array("q"), array("I"))

    def __len__(self) -> int:
        return len(self._arrays[0])

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is larger than the last."""
        timestamps, offsets = self._arrays
        if timestamp >= 0 and (not timestamps or timestamp > timestamps[-1]):
            offsets.append(offset - self.base_offset)
            timestamps.append(timestamp)

    def end(self, timestamp: int, offset: int, *, end_offset: int) -> None:
        """Add the largest timestamp of a segment that ends at `end_offset`, so that the file records it.

        Without any timestamp it names the last batch: an index without entries counts as lost.
        """
        self.append(timestamp, offset)
        if not len(self) and end_offset > self.base_offset:
            timestamps, offsets = self._arrays
            offsets.append(end_offset - 1 - self.base_offset)
            timestamps.append(NO_TIMESTAMP)

    def entry_before_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return the last (timestamp, absolute offset) that is older, as is every record before that offset."""
        timestamps, offsets = self._arrays
        found = bisect_left(timestamps, timestamp) - 1
        return (timestamps[found], self.base_offset + offsets[found]) if found >= 0 else None

    def entry_before(self, offset: int) -> tuple[int, int] | None:
        """Return the last (timestamp, absolute offset) below `offset`."""
        timestamps, offsets = self._arrays
        found = bisect_left(offsets, max(offset - self.base_offset, 0)) - 1
        return (timestamps[found], self.base_offset + offsets[found]) if found >= 0 else None

    def last(self) -> tuple[int, int] | None:
        """Return the last (timestamp, offset)."""
        timestamps, offsets = self._arrays
        return (timestamps[-1], self.base_offset + offsets[-1]) if timestamps else None

    def entries(self) -> list[tuple[int, int]]:
        """Return all (timestamp, absolute offset)."""
        return [
            (timestamp, self.base_offset + offset) for timestamp, offset in zip(*self._arrays, strict=True)
        ]

    def truncate(self, offset: int) -> None:
        """Forget entries at or after an absolute offset."""
        timestamps, offsets = self._arrays
        keep = bisect_left(offsets, max(offset - self.base_offset, 0))
        self._arrays = (timestamps[:keep], offsets[:keep])

    def encode(self, first: int = 0) -> bytes:
        """Return the file bytes of the entries from number `first` on."""
        timestamps, offsets = self._arrays
        return b"".join(map(TIME_ENTRY.pack, timestamps[first:], offsets[first : len(timestamps)]))

    def decode(self, file_bytes: bytes, end_offset: int) -> bool:
        """Load a file's entries; False (and empty) if they are not sorted or reach `end_offset`."""
        timestamps, offsets = array("q"), array("I")
        whole = len(file_bytes) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES
        entries = list(TIME_ENTRY.iter_unpack(file_bytes[:whole]))
        while len(entries) > 1 and entries[-1] == (0, 0):  # preallocated by Kafka
            entries.pop()
        for timestamp, offset in entries:
            timestamps.append(timestamp)
            offsets.append(offset)
        sound = _strictly_grows(timestamps) and all(map(int.__le__, offsets, offsets[1:]))
        sound = sound and (not offsets or self.base_offset + offsets[-1] < end_offset)
        self._arrays = (timestamps, offsets) if sound else (array("q"), array("I"))
        return sound


def _strictly_grows(numbers: array[int]) -> bool:
    return all(map(int.__lt__, numbers, numbers[1:]))
