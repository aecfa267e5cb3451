"""The sparse indexes against sorted lists, and their file formats (Kafka: OffsetIndex, TimeIndex)."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from raftlog.storage.indexes import OffsetIndex, TimeIndex

BASE = 5_000_000_000
STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=40)


def offset_index(steps: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    """Return an index and its entries: steps are (offsets, bytes) from entry to entry."""
    index, entries, offset, position = OffsetIndex(BASE), [], BASE, 0
    for offsets, size in steps:
        offset, position = offset + offsets, position + size
        index.append(offset, position)
        entries.append((offset, position))
    return index, entries


@given(steps=STEPS, asked=st.integers(-5, 2100))
def test_an_offset_is_looked_up_before_its_batch(steps: list[tuple[int, int]], asked: int) -> None:
    """entry_before gives the last entry with a smaller offset, otherwise none: the segment's start."""
    index, entries = offset_index(steps)
    smaller = [each for each in entries if each[0] < BASE + asked]
    assert index.entry_before(BASE + asked) == max(smaller, default=None)


@given(steps=STEPS, asked=st.integers(0, 400_000))
def test_a_position_is_rounded_down_to_an_indexed_batch(steps: list[tuple[int, int]], asked: int) -> None:
    """entry_at_position gives the entry of the largest position that is not larger, else none."""
    index, entries = offset_index(steps)
    assert index.entry_at_position(asked) == max([each for each in entries if each[1] <= asked], default=None)


@given(steps=STEPS, asked=st.integers(0, 400_000))
def test_truncation_forgets_batches_from_a_position_on(steps: list[tuple[int, int]], asked: int) -> None:
    """After truncate(p) exactly the entries below p are left."""
    index, entries = offset_index(steps)
    index.truncate(asked)
    assert index.entries() == [entry for entry in entries if entry[1] < asked]


@given(steps=STEPS, zeros=st.integers(0, 5), cut=st.integers(0, 7))
def test_an_offset_index_file_comes_back(steps: list[tuple[int, int]], zeros: int, cut: int) -> None:
    """Entries are big-endian (relative offset i32, position i32); Kafka's preallocated zeros and a cut entry go."""
    index, entries = offset_index(steps)
    encoded = index.encode()
    assert encoded == b"".join(struct.pack(">ii", offset - BASE, position) for offset, position in entries)
    read = OffsetIndex(BASE)
    assert read.decode(encoded + bytes(8 * zeros + cut), 1 << 31)
    assert read.entries() == entries
    assert index.encode(len(entries) // 2) == encoded[len(entries) // 2 * 8 :]


@given(garbage=st.binary(max_size=80), size=st.integers(0, 1 << 31))
def test_a_garbled_offset_index_is_refused_or_sorted(garbage: bytes, size: int) -> None:
    """decode says False and stays empty, or the entries grow and lie inside the segment."""
    index = OffsetIndex(BASE)
    sound = index.decode(garbage, size)
    positions = [position for _, position in index.entries()]
    assert sound or not positions
    assert positions == sorted(set(positions)) and all(position < size for position in positions)


TIMES = st.lists(st.tuples(st.integers(-1, 500), st.integers(1, 20)), max_size=40)


def time_index(steps: list[tuple[int, int]]) -> tuple[TimeIndex, list[tuple[int, int]]]:
    """Return an index and the entries that grow in time: steps are (timestamp, offsets)."""
    index, entries, offset = TimeIndex(BASE), [], BASE
    for timestamp, offsets in steps:
        offset += offsets
        index.append(timestamp, offset)
        if timestamp >= 0 and (not entries or timestamp > entries[-1][0]):
            entries.append((timestamp, offset))
    return index, entries


@given(steps=TIMES, asked=st.integers(-1, 600))
def test_a_time_is_looked_up_before_its_first_record(steps: list[tuple[int, int]], asked: int) -> None:
    """offset_for gives an offset at or before which all records are older: the last smaller entry's."""
    index, entries = time_index(steps)
    assert index.entries() == entries
    assert index.entry_before_time(asked) == max([each for each in entries if each[0] < asked], default=None)
    assert index.last() == (entries[-1] if entries else None)


@given(steps=TIMES, end=st.integers(0, 900))
def test_a_time_index_file_comes_back(steps: list[tuple[int, int]], end: int) -> None:
    """Entries are big-endian (timestamp i64, relative offset i32); truncate keeps the offsets below the cut."""
    index, entries = time_index(steps)
    assert index.encode() == b"".join(struct.pack(">qi", time, offset - BASE) for time, offset in entries)
    read = TimeIndex(BASE)
    assert read.decode(index.encode() + bytes(5), BASE + 10_000)
    assert read.entries() == entries
    read.truncate(BASE + end)
    assert read.entries() == [entry for entry in entries if entry[1] < BASE + end]


@given(garbage=st.binary(max_size=120))
def test_a_garbled_time_index_is_refused_or_sorted(garbage: bytes) -> None:
    """decode says False and stays empty, or the timestamps grow and the offsets end before the segment does."""
    index = TimeIndex(BASE)
    sound = index.decode(garbage, BASE + 1000)
    assert sound or not len(index)
    times = [time for time, _ in index.entries()]
    assert times == sorted(set(times)) and all(offset < BASE + 1000 for _, offset in index.entries())
