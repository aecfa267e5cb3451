"""A segment is cut before rot, though the rot keeps its time index from being made anew."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import append, read_all
from tests.storage.test_recovery import FIRST, overwrite, sim_log

BATCHES = 16
SEGMENT_BYTES = 1500


def rotten(time_index: bytes, back: int) -> tuple[Log, bytes]:
    """Return a log whose first segment has a wrong time index and a bit that flipped, and its records before offset 6.

    `back`: bytes between that bit and the end of the segment.
    """
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=SEGMENT_BYTES)
    for number in range(BATCHES):
        append(log, b"value %d" % number, b"v" * 40, timestamp=1_000 + number)
    first = log.segments[0]
    assert len(log.segments) > 1 and first.end_offset > 8
    kept = log.read(0, 1 << 20, end_offset=6, cached=False)
    assert kept is not None
    position = first.size - back
    log.close(clean=True)
    disk.release()
    with disk.undisturbed():
        file = disk.open(FIRST + ".timeindex")
        file.truncate(0)
        file.sync()
        overwrite(disk, FIRST + ".timeindex", 0, time_index)
    disk.flip_bit(FIRST + ".log", position)
    return sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES), bytes(kept)


WRONG = pytest.mark.parametrize("time_index", [b"", b"\xff" * 24], ids=["lost", "garbled"])


@WRONG
def test_a_cut_before_rot_needs_nothing_of_what_is_cut(time_index: bytes) -> None:
    """The time index is wrong and what it is made of is rotten: the batches before the cut make it."""
    log, kept = rotten(time_index, back=70)
    log.truncate_to(6)
    assert (log.log_end_offset, log.damage) == (6, None)
    assert read_all(log) == kept
    found = log.offset_for_timestamp(1_002)
    assert found is not None and (found.offset, found.timestamp) == (4, 1_002)
    append(log, b"next")
    log.flush()
    assert isinstance(log.disk, SimDisk)
    log.disk.crash()
    assert sim_log(log.disk, segment_bytes=SEGMENT_BYTES).log_end_offset == 7


@WRONG
def test_a_cut_after_rot_takes_the_log_for_damaged_there(time_index: bytes) -> None:
    """Rot in the part that was to stay is cut off too, so that a follower fetches it again."""
    log, kept = rotten(time_index, back=200)
    end_offset = log.segments[0].end_offset
    assert log.truncate_to(end_offset - 1) < end_offset - 1
    assert log.damage is not None and log.damage.offset == log.log_end_offset
    assert read_all(log).startswith(kept)
    for segment, following in pairwise(log.segments):
        assert segment.end_offset == following.base_offset
    log.close(clean=False)
