"""Claims about checking a segment's bytes: sound bytes are reported whole, and the first fault with its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.compiled import crc32c
from raftlog.records.batch import build_batch, new_record
from raftlog.storage.segment_check import CheckedBatch, SegmentFault, check_segment


def batch(offset: int, *, count: int = 1, epoch: int = 0) -> bytes:
    records = [new_record(b"key", b"value", timestamp=1) for _ in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


SOUND = batch(5, count=3) + batch(8) + batch(20, epoch=2)
"""Offsets 5 to 8 and 20: compaction leaves gaps."""


class InMemory:
    """A segment with its file in memory."""

    def __init__(self, contents: bytes) -> None:
        self._contents = contents
        self.size = len(contents)
        self.file = self

    def pread(self, size: int, position: int) -> bytes:
        return self._contents[position : position + size]


def faults(segment: bytes, base_offset: int = 5) -> list[SegmentFault]:
    return [each for each in check_segment(InMemory(segment), base_offset) if isinstance(each, SegmentFault)]


def test_a_sound_segment_is_reported_whole():
    """Every batch with its position; gaps between offsets are compaction's."""
    found = [each for each in check_segment(InMemory(SOUND), 5) if isinstance(each, CheckedBatch)]
    assert [each.header.base_offset for each in found] == [5, 8, 20]
    assert [each.position for each in found] == [0, len(batch(5, count=3)), len(batch(5, count=3) + batch(8))]
    assert b"".join(each.whole for each in found) == SOUND


@given(st.integers(16, len(SOUND) - 1), st.integers(0, 7))
def test_no_flipped_bit_behind_the_stamp_passes(position, bit):
    """The checksum covers all but the first 16 bytes of a batch; a flip there may be harmless."""
    bad = bytearray(SOUND)
    bad[position] ^= 1 << bit
    starts = [0, len(batch(5, count=3)), len(batch(5, count=3) + batch(8))]
    if any(start <= position < start + 16 for start in starts):
        return
    assert len(faults(bytes(bad))) == 1


@given(st.integers(1, len(SOUND) - 1))
def test_a_cut_off_end_is_torn_and_not_damaged(size):
    """A crash may leave any part of the last write."""
    for fault in faults(SOUND[:size]):
        assert fault.is_torn


def test_blocks_that_were_never_written_are_torn():
    """A file system may have made the file longer before the bytes came."""
    (fault,) = faults(SOUND + bytes(4096))
    assert (fault.position, fault.is_torn) == (len(SOUND), True)


def test_offsets_and_epochs_that_go_back_are_damage():
    """Checksums hold, but the order does not."""
    assert [each.reason for each in faults(batch(5) + batch(5))] == ["offset 5 comes after offset 5"]
    (fault,) = faults(batch(5, epoch=3) + batch(6, epoch=2))
    assert fault.reason == "leader epoch 2 comes after epoch 3"
    assert not fault.is_torn


def test_a_batch_before_the_segments_name_is_damage():
    """A segment is named by its first offset."""
    assert len(faults(batch(4))) == 1


def test_what_sound_batches_follow_is_no_torn_end():
    """A length that has rotted reaches beyond the file's end; a block of zeros may be lost in the middle."""
    second = len(batch(5, count=3))
    rotted = bytearray(SOUND)
    rotted[second + 8] = 0x10
    lost = batch(5, count=3) + bytes(2 << 20) + batch(20)
    for damaged, following in ((bytes(rotted), second + len(batch(8))), (lost, second + (2 << 20))):
        (fault,) = faults(damaged)
        assert (fault.position, fault.is_torn) == (second, False)
        assert fault.reason.endswith(f"; sound batches follow at position {following}")


def test_a_batch_that_ends_before_it_begins_is_damage():
    """Its checksum holds, and the next batch would be looked for before it."""
    bad = bytearray(batch(5))
    bad[23:27] = (-3).to_bytes(4, "big", signed=True)
    bad[17:21] = crc32c(bad[21:]).to_bytes(4, "big")
    (fault,) = faults(bytes(bad))
    assert (fault.reason, fault.is_torn) == ("its last offset is 3 below its first", False)
