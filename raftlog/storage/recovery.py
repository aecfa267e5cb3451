"""Bringing a log back: what is trusted, what is checked, what is cut, and what counts as damage.

A torn tail (nothing sound after it, or blocks that were never written) is cut: it was never flushed, so nobody was
told of it. Anything else that is bad has been acknowledged perhaps: it is set aside, never served, and the replica
marked, so that it refetches before it may lead. Cutting it silently would turn a disk's fault into lost records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from uuid import UUID

from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage, InconsistentTopicId
from raftlog.base.log import get_logger
from raftlog.base.types import NO_EPOCH
from raftlog.records.header import BatchHeader
from raftlog.storage import producer_snapshots, swap
from raftlog.storage.damage import (
    Damage,
    SegmentScanner,
    find_next_valid_batch,
    is_cut_off,
    is_torn_write,
    merge_damage,
    quarantine_bytes,
    read_damage_mark,
    write_damage_mark,
)
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.indexes import MAX_RELATIVE_OFFSET
from raftlog.storage.partition_files import (
    EPOCH_CHECKPOINT,
    GAPS_MARK,
    LEFTOVER_SUFFIXES,
    PARTITION_METADATA,
    TRUNCATION_MARK,
    decode_partition_metadata,
    encode_partition_metadata,
    offsets_in_names,
)
from raftlog.storage.producers import ProducerState
from raftlog.storage.segment import Segment
from raftlog.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig

_log = get_logger("storage")

MAX_OFFSET: Final = 2**63 - 1


@dataclass(slots=True)
class LoadedLog:
    """The content of a partition's folder after recovery."""

    segments: list[Segment]
    recovery_point: int
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)
    aborted: TransactionIndex = field(default_factory=TransactionIndex)
    snapshot_offset: int = -1
    damage: Damage | None = None
    topic_id: UUID | None = None
    truncated: bool = False
    unsynced_directories: set[str] = field(default_factory=set)


def load(
    disk: Disk,
    directory: str,
    *,
    config: TopicConfig,
    recovery_point: int | None,
    topic_id: UUID | None,
    now_ms: int,
) -> LoadedLog:
    """Return the contents of a partition's folder, made if missing; `recovery_point` None trusts a clean stop.

    Raises InconsistentTopicId if the folder is another topic's.
    """
    disk.mkdir(directory)
    swap.complete_swaps(disk, directory)
    names = _without_leftovers(disk, directory)
    topic_id = _identify(disk, directory, topic_id)
    bases = offsets_in_names(names, ".log")
    segments = [
        Segment(disk, directory, base_offset=base, create=not bases, now_ms=now_ms) for base in bases or [0]
    ]
    gaps = disk.exists(f"{directory}/{GAPS_MARK}")
    for segment in segments:
        segment.index_interval_bytes = config.index_interval_bytes
        segment.may_have_gaps = gaps
    contents = LoadedLog(segments, 0, topic_id=topic_id, damage=read_damage_mark(disk, directory))
    if recovery_point is not None or not bases:
        # A killed process may have left unsynced bytes, names and truncations behind.
        contents.segments[-1].dirty = True
        contents.unsynced_directories = {directory, directory.rpartition("/")[0]}
    truncated_to = _read_truncation(disk, directory)
    if truncated_to is not None:
        contents.truncated = True
        recovery_point = None if recovery_point is None else min(recovery_point, truncated_to)
    rebuild_epochs = not _load_epochs(disk, directory, contents.epochs)
    # all that was flushed up to the recovery point was in the checkpoint before that was written
    known_until = MAX_OFFSET if recovery_point is None else recovery_point
    recovery = _Recovery(disk, directory, contents, witness=contents.epochs.copy(), known_until=known_until)
    recovery.run(recovery_point)
    try:
        _complete(disk, directory, contents, rebuild_epochs=rebuild_epochs)
    except CorruptMessage:
        recovery.run(0)  # rot lies before what had to be checked: so all of it must be
        _complete(disk, directory, contents, rebuild_epochs=rebuild_epochs)
    contents.recovery_point = contents.segments[-1].end_offset if recovery_point is None else recovery_point
    for segment in contents.segments:
        segment.epochs = contents.epochs
    return contents


def _complete(disk: Disk, directory: str, contents: LoadedLog, *, rebuild_epochs: bool) -> None:
    """Bring back what stands beside the records. CorruptMessage if they are not all sound after all."""
    end_offset = contents.segments[-1].end_offset
    contents.epochs.truncate(end_offset)
    producer_snapshots.remove_after(disk, directory, end_offset)
    if rebuild_epochs:
        _rebuild_epochs(contents)
    contents.aborted = TransactionIndex()
    contents.aborted.load(disk, contents.segments, end_offset)
    contents.aborted.save(disk, contents.segments[-1])  # without the markers of a tail that is gone
    contents.producers, contents.snapshot_offset = producer_snapshots.load(
        disk, directory, contents.segments, aborted=contents.aborted
    )


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    names = disk.listdir(directory)
    for name in names:
        if name.endswith(LEFTOVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
    return [name for name in names if not name.endswith(LEFTOVER_SUFFIXES)]


def write_gaps_mark(disk: Disk, directory: str) -> None:
    """Write down durably that the log has holes, before its first one: a start knows nothing of the topic's policy.

    It does not wait for the folder's next sync: btrfs keeps the names of files that were synced, such as a cleaned
    segment's, and may lose one that was given before them.
    """
    disk.write_file(f"{directory}/{GAPS_MARK}", b"0\n")


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


def remove_epoch_checkpoint(disk: Disk, directory: str) -> None:
    """Remove the file of leader epochs durably, if there is one."""
    if disk.exists(f"{directory}/{EPOCH_CHECKPOINT}"):
        disk.remove(f"{directory}/{EPOCH_CHECKPOINT}")
        disk.sync_dir(directory)


class TruncationMark:
    """The file that says that records below a recovery point were cut on purpose.

    It stays until the recovery point that follows the cut is written, which is so at the second checkpoint.
    """

    __slots__ = ("_checkpoints_left", "_directory", "_disk")

    def __init__(self, disk: Disk, directory: str, *, is_there: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._checkpoints_left = 2 if is_there else 0

    def write(self, end_offset: int) -> None:
        """Write durably that what a recovery point beyond `end_offset` claims was cut."""
        self._disk.write_file(f"{self._directory}/{TRUNCATION_MARK}", f"0\n{end_offset}\n".encode())
        self._checkpoints_left = 2

    def count_checkpoint(self) -> None:
        """Remove the file if it is no longer needed."""
        if self._checkpoints_left == 1:
            self._disk.remove(f"{self._directory}/{TRUNCATION_MARK}")
        self._checkpoints_left = max(0, self._checkpoints_left - 1)


def _read_truncation(disk: Disk, directory: str) -> int | None:
    path = f"{directory}/{TRUNCATION_MARK}"
    return int(disk.read_file(path).split(b"\n")[1]) if disk.exists(path) else None


def _rebuild_epochs(contents: LoadedLog) -> None:
    contents.epochs.clear()
    for segment in contents.segments:
        for _, header in segment.iter_headers(0):
            if header.leader_epoch < contents.epochs.latest:
                raise CorruptMessage(f"leader epoch goes back at offset {header.base_offset}")
            contents.epochs.note_batch(header.leader_epoch, header.base_offset, due=segment.base_offset)
    contents.epochs.changed = True


class _Recovery:
    """One walk over what must be checked. `witness` knows the epochs of all batches before `known_until`."""

    def __init__(
        self, disk: Disk, directory: str, contents: LoadedLog, *, witness: LeaderEpochs, known_until: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._contents = contents
        self._segments = contents.segments
        self._witness = witness
        self._known_until = known_until

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
            self._contents.epochs.truncate(begin[1])  # the walk finds them again
            position, offset = self._walk(segment, *begin)
            segment.verified = (begin[0], position)
            if recovery_point is not None:
                segment.rewrite(begin[0], position)
            if number + 1 < len(segments):
                segment.save_indexes(final=True)
                segment.file.sync()
                segment.dirty = False
            following_base = segments[number + 1].base_offset if number + 1 < len(segments) else offset
            if position < segment.size or offset != following_base:  # no hole ends a segment
                self._cut(number, position, offset)
                return
            segment.end_offset = offset
        self._expect(recovery_point)

    def _begin(self, segment: Segment, recovery_point: int | None) -> tuple[int, int]:
        try:
            segment.load_time_index()
            entry = segment.index.entry_before(
                segment.end_offset if recovery_point is None else recovery_point
            )
        except CorruptMessage:
            _log.info("index_rebuilt", path=segment.path)
            entry = None
        if entry is None:
            return 0, segment.base_offset
        last_offset, position = entry
        header = SegmentScanner(segment).valid_header_at(position)
        if header is None or header.last_offset != last_offset:
            return 0, segment.base_offset
        return position, header.base_offset

    def _walk(self, segment: Segment, position: int, offset: int) -> tuple[int, int]:
        """Take in sound batches; returns where they end.

        An epoch that goes back after a single batch of a new one means that batch may be the rotten one: both are bad.
        """
        epochs = self._contents.epochs
        window = SegmentScanner(segment)
        lone: tuple[int, int] | None = None
        before = epochs.latest
        while position < segment.size:
            header = window.valid_header_at(position)
            if header is None:
                break
            if not self._follows(segment, header, offset):
                return lone if lone and before <= header.leader_epoch < epochs.latest else (position, offset)
            segment.index_batch(position, header)
            is_new = header.leader_epoch > epochs.latest
            lone = (position, offset) if is_new and self._epoch_of(header) == NO_EPOCH else None
            before = epochs.latest if is_new else before
            epochs.note_batch(header.leader_epoch, header.base_offset, due=offset)
            position += header.length
            offset = header.end_offset
        return position, offset

    def _follows(self, segment: Segment, header: BatchHeader, offset: int) -> bool:
        """Hold a batch to its place: offsets and leader epochs lie outside the CRC."""
        if header.leader_epoch < self._contents.epochs.latest:
            return False
        return self._epoch_of(header) in (NO_EPOCH, header.leader_epoch) and segment.follows(header, offset)

    def _epoch_of(self, header: BatchHeader) -> int:
        """Which leader epoch the batch is of, as the checkpoint has it; -1 if that cannot tell."""
        offset = header.base_offset
        return self._witness.epoch_at(offset) if offset < self._known_until else NO_EPOCH

    def _cut(self, number: int, position: int, offset: int) -> None:
        segment, later = self._segments[number], self._segments[number + 1 :]
        until = self._acknowledged_until(segment, later, position, offset)
        cut_bytes = segment.size - position + sum(each.size for each in later)
        damaged = until is not None
        if until is not None:
            self._contents.damage = merge_damage(self._contents.damage, Damage(offset, until))
            write_damage_mark(self._disk, self._directory, self._contents.damage)
            quarantine_bytes(self._disk, segment, position, offset)
        say, event = (_log.error, "log_damage_set_aside") if damaged else (_log.warning, "log_tail_cut")
        say(event, directory=self._directory, offset=offset, cut_bytes=cut_bytes)
        for each in reversed(later):
            each.close()
            paths = each.rename_for_deletion(".damaged" if damaged else ".deleted")
            if not damaged:
                for path in paths:
                    self._disk.remove(path)
        del self._segments[number + 1 :]
        segment.truncate(position, offset)
        epochs = self._contents.epochs
        epochs.truncate(offset)
        if damaged:  # what is fetched again may be of others
            self._disk.write_file(f"{self._directory}/{EPOCH_CHECKPOINT}", epochs.encode())
        self._contents.unsynced_directories.add(self._directory)

    def _acknowledged_until(
        self, segment: Segment, later: list[Segment], position: int, offset: int
    ) -> int | None:
        """Return the end of what may have been acknowledged after a bad batch; None if it is a torn tail."""
        following = find_next_valid_batch(segment, position, offset)
        sound_later = [
            each for each in later if each.size and SegmentScanner(each).valid_header_at(0) is not None
        ]
        if following is None and not sound_later:
            return None
        stop = segment.size if following is None else following
        if is_torn_write(segment, position, stop, offset) or (
            following is None and is_cut_off(segment, position)
        ):
            return None
        end = offset
        last, begin = (sound_later[-1], 0) if sound_later else (segment, stop)
        window = SegmentScanner(last)
        while begin < last.size and (header := window.valid_header_at(begin)) is not None:
            begin, end = begin + header.length, header.end_offset
        return end

    def _expect(self, recovery_point: int | None) -> None:
        """Find out when flushed records are missing though what is there is sound."""
        end_offset = self._segments[-1].end_offset
        if recovery_point is not None and end_offset < recovery_point:
            self._contents.damage = merge_damage(self._contents.damage, Damage(end_offset, recovery_point))
            write_damage_mark(self._disk, self._directory, self._contents.damage)
            _log.error("flushed_records_missing", directory=self._directory, offset=end_offset)
