"""Producer snapshots on disk, and how the log's end completes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage
from raftlog.base.log import get_logger
from raftlog.base.types import NO_OFFSET
from raftlog.records.batch import read_end_marker
from raftlog.records.header import HEADER_BYTES, BatchHeader, read_header
from raftlog.storage.index_check import boundary_before
from raftlog.storage.partition_files import offsets_in_names
from raftlog.storage.producers import NUM_BATCHES_TO_RETAIN, BatchMetadata, ProducerState
from raftlog.storage.segment import Segment
from raftlog.storage.segment_scanner import SEQUENTIAL_READ_BYTES, SegmentScanner
from raftlog.storage.transaction_index import TransactionIndex

RECALL_BYTES: Final = (SEQUENTIAL_READ_BYTES // 64, SEQUENTIAL_READ_BYTES // 8, SEQUENTIAL_READ_BYTES)
"""Bytes before a snapshot that are read for the batches of its producers, as long as some are missing."""

_log = get_logger("storage")


class ProducerSnapshots:
    """The snapshots of an open log. Only snapshots at the start of a segment outlive the next snapshot."""

    __slots__ = ("_directory", "_disk", "_latest_offset")

    def __init__(self, disk: Disk, directory: str, latest_offset: int) -> None:
        """`latest_offset`: of the newest snapshot, -1 if there is none."""
        self._disk = disk
        self._directory = directory
        self._latest_offset = latest_offset

    def save(self, producers: ProducerState, end_offset: int, segments: list[Segment]) -> bool:
        """Write a snapshot for the log's end, unless it exists or the log is empty. Return False if it must wait.

        None is written while a marker is not known to be committed, since a snapshot does not hold its transaction.
        After a restart compaction would treat the records as committed, while their marker may still be cut off.
        """
        old = self._latest_offset
        if end_offset in (old, segments[0].base_offset):
            return True
        if producers.has_uncommitted_markers:
            return False
        save(self._disk, self._directory, producers, end_offset)
        self._latest_offset = end_offset
        if old >= 0 and all(segment.base_offset != old for segment in segments):
            remove(self._disk, self._directory, old)
        return True

    def truncate(self, end_offset: int) -> None:
        """Remove the snapshots beyond the log's new end, durably."""
        remove_after(self._disk, self._directory, end_offset)
        if self._latest_offset > end_offset:
            self._latest_offset = -1

    def load(self, segments: list[Segment], *, aborted: TransactionIndex) -> ProducerState:
        """Return the producer state at the log's end, as `load` does."""
        offsets = offsets_in_names(self._disk.listdir(self._directory), ".snapshot")
        producers, self._latest_offset = load(
            self._disk, self._directory, segments, offsets=offsets, aborted=aborted
        )
        return producers


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"


def load(
    disk: Disk, directory: str, segments: list[Segment], *, offsets: list[int], aborted: TransactionIndex
) -> tuple[ProducerState, int]:
    """Return the producer state at the log's end and the offset of the snapshot it came from (-1: none).

    `offsets` are those of the folder's snapshots, sorted. Transactions that turn out to be aborted on the way are added
    to `aborted`. CorruptMessage if a batch since the snapshot is not sound; unsound batches before it are ignored.
    """
    first, end_offset = segments[0].base_offset, segments[-1].end_offset
    for offset in reversed(offsets):
        if not first <= offset <= end_offset:
            continue
        try:
            state = ProducerState.decode(disk.read_file(snapshot_path(directory, offset)))
        except ValueError as error:
            _log.warning("producer_snapshot_ignored", directory=directory, offset=offset, reason=str(error))
            continue
        state.markers_known_from = offset
        _recall_batches(state, segments, offset)
        _replay(state, segments, offset, aborted)
        return state, offset
    return replay_all(segments, aborted), -1


def replay_all(segments: list[Segment], aborted: TransactionIndex) -> ProducerState:
    """Return the producer state at the log's end from its records alone, and add the aborted transactions."""
    state = ProducerState()
    _replay(state, segments, segments[0].base_offset, aborted)
    return state


def _replay(state: ProducerState, segments: list[Segment], offset: int, aborted: TransactionIndex) -> None:
    for segment in segments:
        if segment.end_offset <= offset:
            continue
        found = segment.locate(offset, cached=False)
        assert found is not None
        begin, expected = found
        for position, header in SegmentScanner(segment).headers(begin):
            if not segment.follows(header, expected):
                raise CorruptMessage(f"the batch at offset {header.base_offset} does not follow {expected}")
            expected = header.end_offset
            if header.producer_id < 0:
                continue
            if not header.is_control:
                state.record(header, header.base_offset, header.max_timestamp)
                continue
            marker = read_end_marker(segment.file.pread(header.length, position))
            ended = None if marker is None else state.end_transaction(header, marker, header.base_offset)
            if ended is not None:
                aborted.add(ended)


def _recall_batches(state: ProducerState, segments: list[Segment], offset: int) -> None:
    """Find the batches before each producer's last in the log's end: a snapshot keeps only the last (KIP-98).

    Most logs have few producers, so a short stretch is read first, and a longer one only if it may hold more.
    """
    if not len(state):
        return
    wanted = state.active_since(_begin_of(_stretch_before(segments, offset, RECALL_BYTES[-1])))
    for size in RECALL_BYTES:
        recalled = _batches_before(state, segments, offset, size)
        if all(each in recalled and _is_whole(recalled[each]) for each in wanted):
            break
    for producer_id, batches in recalled.items():
        state.restore_batches(producer_id, batches)


def _begin_of(stretch: list[tuple[Segment, int, int]]) -> int:
    """Return the first offset of a stretch, 0 if that cannot be read."""
    for segment, begin, stop in stretch:
        if begin < stop:
            with suppress(CorruptMessage):
                return read_header(segment.file.pread(HEADER_BYTES, begin)).base_offset
    return 0


def _is_whole(batches: list[BatchMetadata]) -> bool:
    """Return whether no batch is missing: there are enough, or they begin with the first of the producer's epoch."""
    return len(batches) >= NUM_BATCHES_TO_RETAIN or batches[0].base_sequence == 0


def _batches_before(
    state: ProducerState, segments: list[Segment], offset: int, size: int
) -> dict[int, list[BatchMetadata]]:
    """Return each producer's batches in at least `size` bytes that end with `offset`."""
    found: dict[int, list[tuple[Segment, int, BatchHeader]]] = {}
    for segment, begin, stop in _stretch_before(segments, offset, size):
        for position, header in _batches_in_place(segment, begin, stop):
            producer = state.get(header.producer_id)
            is_recalled = producer is not None and header.producer_epoch == producer.epoch
            if is_recalled and header.base_sequence >= 0:
                found.setdefault(header.producer_id, []).append((segment, position, header))
    recalled = {producer_id: _last_sound(batches) for producer_id, batches in found.items()}
    return {producer_id: batches for producer_id, batches in recalled.items() if batches}


def _last_sound(batches: list[tuple[Segment, int, BatchHeader]]) -> list[BatchMetadata]:
    """Return as many of the last batches as are remembered, without those whose CRC does not hold."""
    sound: list[BatchMetadata] = []
    for segment, position, header in reversed(batches):
        if SegmentScanner(segment, read_bytes=header.length).valid_header_at(position) is not None:
            sound.append(BatchMetadata.of(header))
        if len(sound) == NUM_BATCHES_TO_RETAIN:
            break
    return sound[::-1]


def _batches_in_place(segment: Segment, begin: int, stop: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch that its neighbours bear out: base offsets lie outside of the CRC."""
    expected = segment.base_offset if begin == 0 else NO_OFFSET
    doubted: tuple[int, BatchHeader] | None = None
    for each in segment.iter_headers(begin, stop):
        header = each[1]
        follows = segment.follows(header, expected)
        if follows and doubted is not None:
            yield doubted
        if follows:
            yield each
        doubted = None if follows else each
        expected = header.end_offset


def _stretch_before(segments: list[Segment], offset: int, size: int) -> list[tuple[Segment, int, int]]:
    """Return (segment, start, stop) of at least `size` bytes that end with `offset`, oldest first."""
    stretch: list[tuple[Segment, int, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= offset or size <= 0:
            continue
        found = segment.locate(offset, cached=False)
        assert found is not None
        start = boundary_before(segment, max(found[0] - size, 0))
        stretch.insert(0, (segment, start, found[0]))
        size -= found[0] - start
    return stretch


def save(disk: Disk, directory: str, state: ProducerState, offset: int) -> None:
    """Write a snapshot with a CRC, so that a snapshot lost in a crash is only skipped."""
    disk.write_file(snapshot_path(directory, offset), state.encode(), sync=False)


def remove(disk: Disk, directory: str, offset: int) -> None:
    """Remove one snapshot, if it is there."""
    if disk.exists(snapshot_path(directory, offset)):
        disk.remove(snapshot_path(directory, offset))


def remove_after(disk: Disk, directory: str, end_offset: int) -> list[int]:
    """Remove the snapshots of a log's truncated end, durably: the log may grow to their offset with other batches.

    Return the sorted offsets of the others.
    """
    offsets = offsets_in_names(disk.listdir(directory), ".snapshot")
    stale = [offset for offset in offsets if offset > end_offset]
    for offset in stale:
        disk.remove(snapshot_path(directory, offset))
    if stale:
        disk.sync_dir(directory)
    return offsets[: len(offsets) - len(stale)]
