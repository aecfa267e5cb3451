"""Bringing a log back: what is trusted, what is checked, what is cut, and what counts as damage.

A torn tail (nothing sound after it, or blocks that were never written) is cut: it was never flushed, so nobody was
told of it. Anything else that is bad has been acknowledged perhaps: it is set aside, never served, and the replica
marked, so that it refetches before it may lead. Cutting it silently would turn a disk's fault into lost records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import structlog

from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage, InconsistentTopicId
from raftlog.records.batch import read_end_marker
from raftlog.records.header import HEADER_BYTES, MAGIC, BatchHeader, check_crc, read_header
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.indexes import MAX_RELATIVE_OFFSET
from raftlog.storage.layout import (
    DAMAGE_MARK,
    EPOCH_CHECKPOINT,
    LEFTOVER_SUFFIXES,
    PARTITION_METADATA,
    decode_partition_metadata,
    encode_partition_metadata,
    numbered,
)
from raftlog.storage.producers import BATCHES_KEPT, ProducedBatch, ProducerState
from raftlog.storage.segment import WALK_BYTES, Segment

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig

_log = structlog.get_logger(__name__)

HOLE_BYTES: Final = 512
"""A run of zeros this long (or half of a smaller gap) is a block that was never written."""


class Damage(NamedTuple):
    """Records in [offset, until_offset) are bad or missing though they may have been acknowledged."""

    offset: int
    until_offset: int


@dataclass(slots=True)
class Contents:
    """What a partition's folder holds after recovery."""

    segments: list[Segment]
    recovery_point: int
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)
    snapshot_offset: int = -1
    damage: Damage | None = None
    topic_id: UUID | None = None
    unsynced_directories: set[str] = field(default_factory=set)


def load(
    disk: Disk,
    directory: str,
    *,
    config: TopicConfig,
    recovery_point: int | None,
    topic_id: UUID | None,
    now_ms: int,
) -> Contents:
    """Return the contents of a partition's folder, made if missing; `recovery_point` None trusts a clean stop.

    Raises InconsistentTopicId if the folder is another topic's.
    """
    fresh = not disk.exists(directory)
    disk.mkdir(directory)
    names = _without_leftovers(disk, directory)
    topic_id = _identify(disk, directory, topic_id)
    bases = numbered(names, ".log")
    segments = [
        Segment(disk, directory, base_offset=base, create=not bases, now_ms=now_ms) for base in bases or [0]
    ]
    for segment in segments:
        segment.index_interval_bytes = config.index_interval_bytes
    contents = Contents(segments, 0, topic_id=topic_id, damage=_read_mark(disk, directory))
    if fresh or not bases:
        contents.unsynced_directories = {directory, directory.rpartition("/")[0]}
    rebuild_epochs = not _load_epochs(disk, directory, contents.epochs)
    _Recovery(disk, directory, contents, gaps="compact" in config.cleanup_policy).run(recovery_point)
    end_offset = contents.segments[-1].end_offset
    contents.epochs.truncate(end_offset)
    if rebuild_epochs:
        _rebuild_epochs(contents)
    contents.producers, contents.snapshot_offset = load_producers(
        disk, directory, contents.segments, end_offset
    )
    contents.recovery_point = end_offset if recovery_point is None else recovery_point
    return contents


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    names = disk.listdir(directory)
    for name in names:
        if name.endswith(LEFTOVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
    return [name for name in names if not name.endswith(LEFTOVER_SUFFIXES)]


def _identify(disk: Disk, directory: str, topic_id: UUID | None) -> UUID | None:
    path = f"{directory}/{PARTITION_METADATA}"
    found = None
    if disk.exists(path):
        try:
            found = decode_partition_metadata(disk.read_file(path))
        except ValueError:
            _log.warning("partition_metadata_unreadable", directory=directory)
    if found is None and topic_id is not None:
        disk.write_file(path, encode_partition_metadata(topic_id), sync=False)
        return topic_id
    if topic_id is not None and found != topic_id:
        raise InconsistentTopicId(f"{directory} belongs to topic id {found}, not {topic_id}")
    return found


def _load_epochs(disk: Disk, directory: str, epochs: LeaderEpochs) -> bool:
    try:
        epochs.decode(disk.read_file(f"{directory}/{EPOCH_CHECKPOINT}"))
    except (FileNotFoundError, ValueError):
        return False
    return True


def _rebuild_epochs(contents: Contents) -> None:
    contents.epochs.clear()
    for segment in contents.segments:
        for _, header in segment.headers(0):
            contents.epochs.note(header.leader_epoch, header.base_offset)
    contents.epochs.changed = True


class _Recovery:
    """One walk over what must be checked."""

    def __init__(self, disk: Disk, directory: str, contents: Contents, *, gaps: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._contents = contents
        self._segments = contents.segments
        self._gaps = gaps

    def run(self, recovery_point: int | None) -> None:
        segments = self._segments
        for segment, following in pairwise(segments):
            segment.end_offset = following.base_offset
        segments[-1].end_offset = segments[-1].base_offset + MAX_RELATIVE_OFFSET
        if recovery_point is None:
            first = len(segments) - 1
        else:
            first = max(sum(segment.base_offset <= recovery_point for segment in segments) - 1, 0)
        for number in range(first, len(segments)):
            segment = segments[number]
            begin = self._begin(segment, recovery_point) if number == first else (0, segment.base_offset)
            segment.start_recovery(*begin)
            position, offset = self._walk(segment, *begin)
            following_base = segments[number + 1].base_offset if number + 1 < len(segments) else offset
            if position < segment.size or (offset != following_base and not self._gaps):
                self._cut(number, position, offset)
                return
            segment.end_offset = offset if number + 1 == len(segments) else following_base
        self._expect(recovery_point)

    def _begin(self, segment: Segment, recovery_point: int | None) -> tuple[int, int]:
        try:
            segment.load_time_index()
            if recovery_point is not None:
                found = segment.locate(recovery_point, cached=False)
                assert found is not None
                if found[0] < segment.size:
                    return found
            position = segment.index.position_at_most(segment.size - 1)
            if position:
                return position, read_header(segment.file.pread(HEADER_BYTES, position)).base_offset
        except CorruptMessage:
            _log.warning("index_rebuilt", path=segment.path)
        return 0, segment.base_offset

    def _walk(self, segment: Segment, position: int, offset: int) -> tuple[int, int]:
        """Take in sound batches; returns where they end."""
        epochs = self._contents.epochs
        window = _Window(segment)
        while position < segment.size:
            header = window.sound(position)
            if header is None or not self._follows(header, offset):
                break
            segment.absorb(position, header)
            epochs.note(header.leader_epoch, header.base_offset)
            position += header.length
            offset = header.end_offset
        return position, offset

    def _follows(self, header: BatchHeader, offset: int) -> bool:
        return header.base_offset == offset or (self._gaps and header.base_offset > offset)

    def _cut(self, number: int, position: int, offset: int) -> None:
        segment, later = self._segments[number], self._segments[number + 1 :]
        until = self._acknowledged_until(segment, later, position, offset)
        cut_bytes = segment.size - position + sum(each.size for each in later)
        damaged = until is not None
        if until is not None:
            self._contents.damage = _merge(self._contents.damage, Damage(offset, until))
            mark_damage(self._disk, self._directory, self._contents.damage)
            set_aside(self._disk, segment, position, offset)
        event = "log_damage_set_aside" if damaged else "log_tail_cut"
        _log.warning(event, directory=self._directory, offset=offset, cut_bytes=cut_bytes)
        for each in later:
            paths = each.rename_away(".damaged" if damaged else ".deleted")
            if not damaged:
                for path in paths:
                    self._disk.remove(path)
        del self._segments[number + 1 :]
        segment.truncate(position, offset)
        self._contents.unsynced_directories.add(self._directory)

    def _acknowledged_until(
        self, segment: Segment, later: list[Segment], position: int, offset: int
    ) -> int | None:
        """Return the end of what may have been acknowledged after a bad batch; None if it is a torn tail."""
        following = _next_sound(segment, position, offset)
        sound_later = [each for each in later if each.size and _Window(each).sound(0) is not None]
        if following is None and not sound_later:
            return None
        stop = segment.size if following is None else following
        if _has_hole(segment, position, stop):
            return None
        end = offset
        last, begin = (sound_later[-1], 0) if sound_later else (segment, stop)
        window = _Window(last)
        while begin < last.size and (header := window.sound(begin)) is not None:
            begin, end = begin + header.length, header.end_offset
        return end

    def _expect(self, recovery_point: int | None) -> None:
        """Find out when flushed records are missing though what is there is sound."""
        end_offset = self._segments[-1].end_offset
        if recovery_point is not None and end_offset < recovery_point:
            self._contents.damage = _merge(self._contents.damage, Damage(end_offset, recovery_point))
            mark_damage(self._disk, self._directory, self._contents.damage)
            _log.error("flushed_records_missing", directory=self._directory, offset=end_offset)


def _merge(old: Damage | None, new: Damage) -> Damage:
    if old is None:
        return new
    return Damage(min(old.offset, new.offset), max(old.until_offset, new.until_offset))


class _Window:
    """A forward-moving view of a segment's bytes, a megabyte or a batch at a time."""

    __slots__ = ("_chunk", "_segment", "_start")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._chunk = b""
        self._start = 0

    def sound(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position` if all of it is there and its CRC holds."""
        try:
            header = read_header(self._view(position, HEADER_BYTES), position - self._start)
            if header.length > self._segment.size - position or header.last_offset_delta < 0:
                return None
            check_crc(self._view(position, header.length), position - self._start, header)
        except CorruptMessage:
            return None
        return header

    def _view(self, position: int, length: int) -> bytes:
        if position < self._start or position + length > self._start + len(self._chunk):
            wanted = min(max(length, WALK_BYTES), self._segment.size - position)
            self._chunk, self._start = self._segment.file.pread(wanted, position), position
        return self._chunk


def _next_sound(segment: Segment, position: int, offset: int) -> int | None:
    """Return the position of the first sound batch after a bad one, found by the looks of its header."""
    window = _Window(segment)
    pattern = re.compile(
        re.escape((offset >> 32).to_bytes(4, "big")) + b"(?=.{12}" + bytes([MAGIC]) + b")", re.S
    )
    position += 1
    while position < segment.size:
        chunk = segment.file.pread(WALK_BYTES + HEADER_BYTES, position)
        for match in pattern.finditer(chunk):
            header = window.sound(position + match.start())
            if header is not None and header.base_offset > offset:
                return position + match.start()
        position += WALK_BYTES
    return None


def _has_hole(segment: Segment, position: int, stop: int) -> bool:
    """Say whether [position, stop) is missing or has a block that was never written, which reads as zeros."""
    if stop <= position:
        return True
    zeros = bytes(min(HOLE_BYTES, max((stop - position) // 2, 1)))
    while position < stop:
        if zeros in segment.file.pread(min(WALK_BYTES + HOLE_BYTES, stop - position), position):
            return True
        position += WALK_BYTES
    return False


def first_bad_offset(segment: Segment, offset: int) -> int:
    """Return the offset of the first batch that is not sound, at or after the one that holds `offset`."""
    window = _Window(segment)
    try:
        found = segment.locate(offset, cached=False)
    except CorruptMessage:
        found = 0, segment.base_offset
    assert found is not None
    position, bad = found
    while position < segment.size and (header := window.sound(position)) is not None:
        position, bad = position + header.length, header.end_offset
    return bad


def position_after(segment: Segment, offset: int) -> int:
    """Return the position where the sound batches before `offset` end."""
    if offset == segment.base_offset:
        return 0
    found = segment.locate(offset - 1, cached=False)
    assert found is not None
    return found[0] + read_header(segment.file.pread(HEADER_BYTES, found[0])).length


# -- damage ------------------------------------------------------------------------------------------------------


def mark_damage(disk: Disk, directory: str, damage: Damage) -> None:
    """Make the mark of a damaged log durable."""
    disk.write_file(f"{directory}/{DAMAGE_MARK}", f"0\n{damage.offset} {damage.until_offset}\n".encode())


def unmark_damage(disk: Disk, directory: str) -> None:
    """Remove the mark, if there is one."""
    if disk.exists(f"{directory}/{DAMAGE_MARK}"):
        disk.remove(f"{directory}/{DAMAGE_MARK}")
        disk.sync_dir(directory)


def _read_mark(disk: Disk, directory: str) -> Damage | None:
    path = f"{directory}/{DAMAGE_MARK}"
    if not disk.exists(path):
        return None
    _, line, _ = disk.read_file(path).decode("ascii").split("\n")
    offset, until_offset = line.split(" ")
    return Damage(int(offset), int(until_offset))


def set_aside(disk: Disk, segment: Segment, position: int, offset: int) -> None:
    """Copy a segment's bytes from a position on to `<offset>.damaged`: they may be the only ones left."""
    directory = segment.path.rpartition("/")[0]
    target = disk.open(f"{directory}/{offset:020d}.damaged", create=True)
    try:
        for start in range(position, segment.size, WALK_BYTES):
            chunk = segment.file.pread(min(WALK_BYTES, segment.size - start), start)
            target.pwritev([chunk], start - position)
        target.sync()
    finally:
        target.close()


# -- producer state ----------------------------------------------------------------------------------------------


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"


def load_producers(
    disk: Disk, directory: str, segments: list[Segment], end_offset: int
) -> tuple[ProducerState, int]:
    """Return the producer state at the log's end and the offset of the snapshot it came from (-1: none)."""
    first = segments[0].base_offset
    for offset in reversed(numbered(disk.listdir(directory), ".snapshot")):
        if not first <= offset <= end_offset:
            continue
        try:
            state = ProducerState.decode(disk.read_file(snapshot_path(directory, offset)))
        except ValueError:
            continue
        _recall_batches(state, segments, offset)
        _replay(state, segments, offset)
        return state, offset
    state = ProducerState()
    _replay(state, segments, first)
    return state, -1


def _replay(state: ProducerState, segments: list[Segment], offset: int) -> None:
    for segment in segments:
        if segment.end_offset <= offset:
            continue
        found = segment.locate(offset, cached=False)
        assert found is not None
        for position, header in segment.headers(found[0]):
            if header.producer_id < 0:
                continue
            if not header.is_control:
                state.record(header, header.base_offset, header.max_timestamp)
                continue
            marker = read_end_marker(segment.file.pread(header.length, position))
            if marker is not None:
                state.end_transaction(header, marker, header.base_offset)


def _recall_batches(state: ProducerState, segments: list[Segment], offset: int) -> None:
    """Find the batches before each producer's last in the log's end: a snapshot keeps only the last (KIP-98)."""
    segment = next((each for each in reversed(segments) if each.base_offset < offset), None)
    if segment is None or not len(state):
        return
    stop = segment.locate(offset, cached=False)
    assert stop is not None
    begin = segment.index.position_at_most(max(stop[0] - WALK_BYTES, 0))
    recalled: dict[int, list[ProducedBatch]] = {}
    for _, header in segment.headers(begin, stop[0]):
        producer = state.get(header.producer_id)
        if producer is not None and header.producer_epoch == producer.epoch and header.base_sequence >= 0:
            recalled.setdefault(header.producer_id, []).append(ProducedBatch.of(header))
    for producer_id, batches in recalled.items():
        state.recall(producer_id, batches[-BATCHES_KEPT:])


def save_producers(disk: Disk, directory: str, state: ProducerState, offset: int) -> None:
    """Write a snapshot; it carries a CRC, so that one lost in a crash is only passed over."""
    disk.write_file(snapshot_path(directory, offset), state.encode(), sync=False)


def remove_snapshot(disk: Disk, directory: str, offset: int) -> None:
    """Remove one snapshot, if it is there."""
    if disk.exists(snapshot_path(directory, offset)):
        disk.remove(snapshot_path(directory, offset))


def remove_snapshots(disk: Disk, directory: str, *, after: int) -> None:
    """Remove the snapshots of a log's cut off end."""
    for offset in numbered(disk.listdir(directory), ".snapshot"):
        if offset > after:
            disk.remove(snapshot_path(directory, offset))
