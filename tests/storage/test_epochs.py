"""The leader-epoch cache (KIP-101, KIP-279; Kafka: LeaderEpochFileCache)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.types import NO_EPOCH, UNKNOWN_EPOCH_END, EpochEnd
from raftlog.storage.epochs import LeaderEpochs

STEPS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 10)), max_size=12)


def cache_of(steps: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[tuple[int, int]]]:
    """Return a cache and its entries: steps are how far (epoch, offset) grow from entry to entry."""
    cache, entries, epoch, start = LeaderEpochs(), [], -1, -1
    for epochs, offsets in steps:
        epoch, start = epoch + epochs, start + offsets
        cache.note(epoch, start)
        entries.append((epoch, start))
    return cache, entries


@given(steps=STEPS, asked=st.integers(-1, 40))
def test_the_end_of_an_epoch_is_the_start_of_the_next(steps: list[tuple[int, int]], asked: int) -> None:
    """end_of gives the largest epoch ≤ the one asked for and where the next begins, as a plain search finds it."""
    cache, entries = cache_of(steps)
    log_end = 1000
    newer = [start for epoch, start in entries if epoch > asked]
    known = [epoch for epoch, _ in entries if epoch <= asked]
    if asked == -1 or not entries or asked > entries[-1][0]:
        expected = UNKNOWN_EPOCH_END
    elif asked == entries[-1][0]:
        expected = EpochEnd(asked, log_end)
    else:
        expected = EpochEnd(known[-1] if known else asked, newer[0])
    assert cache.end_of(asked, log_end) == expected


@given(steps=STEPS, cut=st.integers(-1, 130), offset=st.integers(0, 130))
def test_truncation_forgets_epochs_that_begin_in_the_cut(
    steps: list[tuple[int, int]], cut: int, offset: int
) -> None:
    """After truncate(o) the epochs that began below o are left, and epoch_at finds each record's."""
    cache, entries = cache_of(steps)
    cache.truncate(cut)
    left = [entry for entry in entries if entry[1] < cut]
    assert cache.entries == left
    assert cache.epoch_at(offset) == max([epoch for epoch, start in left if start <= offset], default=-1)


@given(steps=STEPS, start=st.integers(0, 130))
def test_the_log_starts_advance_keeps_the_epoch_in_force(steps: list[tuple[int, int]], start: int) -> None:
    """advance_start drops epochs that ended before the new start; the epoch in force there begins at it."""
    cache, entries = cache_of(steps)
    cache.advance_start(start)
    older = [entry for entry in entries if entry[1] <= start]
    expected = [(older[-1][0], start)] if older else []
    assert cache.entries == expected + [entry for entry in entries if entry[1] > start]


def test_an_epoch_without_records_gives_way() -> None:
    """A newer epoch that begins at the same offset replaces an epoch without records; an older epoch is skipped."""
    cache = LeaderEpochs()
    cache.note(1, 0)
    cache.note(2, 10)
    cache.note(3, 10)
    cache.note(2, 50)
    assert cache.entries == [(1, 0), (3, 10)]


@given(steps=STEPS)
def test_a_checkpoint_file_comes_back(steps: list[tuple[int, int]]) -> None:
    """encode writes Kafka's version-0 checkpoint, decode reads it."""
    cache, entries = cache_of(steps)
    read = LeaderEpochs()
    read.decode(cache.encode())
    assert read.entries == entries


def test_the_checkpoint_is_kafkas_text() -> None:
    """Version, count, then a line of `epoch start-offset` each."""
    cache, _ = cache_of([(1, 1), (4, 100)])
    assert cache.encode() == b"0\n2\n0 0\n4 100\n"


@given(
    garbage=st.binary(max_size=30) | st.sampled_from([b"", b"0\n", b"1\n0\n", b"0\n1\n", b"0\n2\n5 5\n4 6\n"])
)
def test_a_garbled_checkpoint_is_a_value_error(garbage: bytes) -> None:
    """Bytes that do not decode raise ValueError, so that recovery rebuilds the cache from the log."""
    cache = LeaderEpochs()
    try:
        cache.decode(garbage)
    except ValueError:
        assert cache.entries == []


def test_a_cut_off_checkpoint_is_refused() -> None:
    """A checkpoint truncated at any byte never passes for a shorter checkpoint."""
    whole = b"0\n2\n0 0\n4 100\n"
    for length in range(len(whole)):
        with pytest.raises(ValueError):
            LeaderEpochs().decode(whole[:length])


def test_reader_of_another_thread_survives_a_cut_in_between() -> None:
    """A cold read asks on its own thread; entries may go after it has found the place of its own."""
    cache = LeaderEpochs()
    cache.note(0, 0)
    cache.note(4, 100)

    class Cut(list[int]):
        def __getitem__(self, index: object) -> int:  # type: ignore[override]
            found = list(self)[index]  # type: ignore[call-overload]
            cache._epochs.clear()
            return int(found)

    cache._starts = Cut(cache._starts)
    assert cache.epoch_at(150) == NO_EPOCH
