"""The write-ahead log's bytes: what a torn write may cost, and what it may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.quorum.wal import (
    MAX_COMMAND_BYTES,
    DamagedJournal,
    MissingEntries,
    ReplayedState,
    commit_record,
    encode_file,
    entry_record,
    group_record,
    replay,
    truncate_record,
    vote_record,
)

FRESH = encode_file(7, entries=[], term=0, voted_for=None, commit_index=1)


def grouped(groups: list[list[bytes]]) -> tuple[bytes, list[int]]:
    """Return a file's bytes, and where each group ends."""
    data, ends = FRESH, []
    for records in groups:
        data += group_record(len(data)) + b"".join(records)
        ends.append(len(data))
    return data, ends


def told(found: ReplayedState) -> tuple[object, ...]:
    return found.entries, found.term, found.voted_for, found.commit_index


GROUPS = [
    [entry_record((b"noop", 1, 0)), vote_record(1, 2), commit_record(1)],
    [entry_record((b"a", 2, 1)), entry_record((b"b" * 40, 3, 1)), commit_record(1)],
    [truncate_record(3), entry_record((b"c", 3, 2)), vote_record(2, None), commit_record(2)],
    [entry_record((b"d" * 700, 4, 2)), commit_record(3)],
]


@pytest.mark.parametrize("groups", range(1, len(GROUPS) + 1))
def test_a_log_cut_at_any_byte_keeps_every_group_before(groups: int) -> None:
    """Only the group that was being written may lose its tail, for a torn write at every byte."""
    data, ends = grouped(GROUPS[:groups])
    last = ends[-2] if groups > 1 else len(FRESH)
    whole, before = told(replay(data)), told(replay(data[:last]))
    for size in range(last, len(data) + 1):
        found = replay(data[:size])
        assert found.good_bytes <= size
        again = replay(data[: found.good_bytes])
        assert told(again) == told(found) and again.good_bytes == found.good_bytes
        if size == len(data):
            assert told(found) == whole
        if found.good_bytes <= last + len(group_record(last)):
            assert told(found) == before


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 100, b"GET / HTTP/1.1", b"\0"])
def test_garbage_after_the_last_record_is_a_torn_tail(tail: bytes) -> None:
    """File systems leave zeros or old blocks where a write did not arrive."""
    data, _ = grouped(GROUPS)
    assert replay(data + tail) == replay(data)


@given(st.data())
def test_sectors_of_the_last_group_that_did_not_arrive_cost_that_group_only(draw: st.DataObject) -> None:
    """A disk writes sectors in any order: zeroing any of the last group's leaves the groups before intact."""
    data, ends = grouped(GROUPS)
    start = ends[-2]
    lost = draw.draw(st.sets(st.integers(start // 64, len(data) // 64), min_size=1))
    torn = bytearray(data)
    for sector in lost:
        for position in range(max(start, sector * 64), min(len(data), (sector + 1) * 64)):
            torn[position] = 0
    found = replay(bytes(torn))
    assert found.entries[:3] == replay(data[:start]).entries and found.good_bytes >= start


def test_a_flipped_bit_before_the_last_group_is_damage_not_a_torn_tail() -> None:
    """Cutting there would forget entries and votes that were promised: refuse to start instead."""
    data, ends = grouped(GROUPS)
    for position in range(ends[-2]):
        rotten = bytearray(data)
        rotten[position] ^= 4
        with pytest.raises(DamagedJournal):
            replay(bytes(rotten))


def test_a_flipped_bit_in_the_last_group_never_yields_another_state() -> None:
    """CRC-32C covers every byte: what is read is a prefix of what was written."""
    data, ends = grouped(GROUPS)
    possible = [told(replay(data[:size])) for size in range(ends[-2], len(data) + 1)]
    for position in range(ends[-2], len(data)):
        rotten = bytearray(data)
        rotten[position] ^= 4
        assert told(replay(bytes(rotten))) in possible


@pytest.mark.parametrize("data", [b"", b"\0" * 100, GROUPS[0][0], FRESH[:20]])
def test_a_file_that_does_not_say_whose_it_is_is_refused(data: bytes) -> None:
    """The file is created whole, by rename, so even its first record cannot be torn."""
    with pytest.raises(DamagedJournal):
        replay(data)


def test_a_gap_between_entries_is_damage() -> None:
    """Raft's log has no holes."""
    data, _ = grouped([[entry_record((b"", 1, 0)), entry_record((b"", 3, 0))]])
    with pytest.raises(MissingEntries):
        replay(data)


def test_a_huge_length_is_not_believed() -> None:
    """For a torn length field no memory is allocated."""
    data, _ = grouped(GROUPS)
    assert replay(data + b"\0\0\0\0\xff\xff\xff\xff\x02rest") == replay(data)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.binary(max_size=30)),
        st.tuples(st.just("cut"), st.integers(0, 5)),
        st.tuples(st.just("vote"), st.one_of(st.none(), st.integers(0, 9))),
    ),
    max_size=40,
)


@given(operations)
def test_replay_equals_what_was_done(steps: list[tuple[str, object]]) -> None:
    """Any order of appends, truncations and votes is read back as the state it left."""
    entries: list[tuple[bytes, int, int]] = [(b"noop", 1, 0)]
    records = [entry_record(entries[0])]
    term, voted_for = 0, None
    for step, value in steps:
        if step == "add":
            entry = (value, entries[-1][1] + 1, term)
            entries.append(entry)
            records.append(entry_record(entry))
        elif step == "cut":
            index = max(2, entries[-1][1] + 1 - value)
            del entries[index - 1 :]
            records.append(truncate_record(index))
        else:
            term, voted_for = term + 1, value
            records.append(vote_record(term, voted_for))
    data, _ = grouped([[record] for record in records])
    assert told(replay(data)) == (entries, term, voted_for, 1)
    image = encode_file(7, entries=entries, term=term, voted_for=voted_for, commit_index=1)
    assert told(replay(image)) == (entries, term, voted_for, 1)


def test_an_entry_is_bounded() -> None:
    """Larger commands would take PySyncObj's chunked path, which the filters do not cover."""
    with pytest.raises(AssertionError):
        entry_record((b"x" * (MAX_COMMAND_BYTES + 1), 2, 1))
