"""Log recovery: what is trusted, what is checked, what is cut, and what counts as damage.

A torn tail (no sound batch after it, or blocks that were never written) is cut: it was never flushed, so it was never
acknowledged. Any other bad part may have been acknowledged. It is set aside and never served, and the replica is
marked, so that it refetches before it may lead. Cutting it silently would turn a disk fault into lost records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from raftlog.base.checked_files import (
    has_checksums,
    read_checked,
    remove_checked,
    write_checked,
    write_checksums,
)
from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage, InconsistentTopicId
from raftlog.base.log import get_logger
from raftlog.base.types import MAX_OFFSET, NO_EPOCH
from raftlog.records.header import BatchHeader
from raftlog.storage import dropped_segments, producer_snapshots, swap
from raftlog.storage.damage import (
    Damage,
    find_next_valid_batch,
    is_cut_off,
    is_torn_write,
    merge_damage,
    quarantine_bytes,
    read_damage_mark,
    write_damage_mark,
)
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.index_check import is_time_entry_true
from raftlog.storage.indexes import MAX_RELATIVE_OFFSET
from raftlog.storage.partition_files import (
    DAMAGE_MARK,
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
from raftlog.storage.segment_scanner import SegmentScanner
from raftlog.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig

_log = get_logger("storage")


class LastStop(NamedTuple):
    """The state of a log after its last stop: everything before `flushed_until` is flushed; all of it after a
    clean stop.
    """

    clean: bool
    flushed_until: int


@dataclass(slots=True)
class LoadedLog:
    """The content of a partition's folder after recovery."""

    segments: list[Segment]
    recovery_point: int
    truncation_mark: TruncationMark
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)
    aborted: TransactionIndex = field(default_factory=TransactionIndex)
    snapshot_offset: int = -1
    damage: Damage | None = None
    topic_id: UUID | None = None
    epochs_begin: int = 0
    unchecked_ok: bool = False
    """Whether an older raftlog wrote the folder, so that its small files have no checksums yet."""
    unsynced_directories: set[str] = field(default_factory=set)


def load(
    disk: Disk,
    directory: str,
    *,
    config: TopicConfig,
    last_stop: LastStop,
    topic_id: UUID | None,
    now_ms: int,
) -> LoadedLog:
    """Return the contents of a partition's folder, made if missing.

    After a clean stop only the last segment is checked, otherwise all from the recovery point on. Raise
    InconsistentTopicId if the folder is another topic's.
    """
    clean, flushed_until = last_stop
    if not disk.exists(directory):
        if not flushed_until:
            return _make(disk, directory, topic_id=topic_id, config=config, now_ms=now_ms)
        disk.mkdir(directory)
    recovery_point = None if clean else flushed_until
    unchecked_ok = not has_checksums(disk, f"{directory}/{PARTITION_METADATA}")
    mark, names = _finish_changes(disk, directory, unchecked_ok=unchecked_ok)
    was_synced = clean or flushed_until > 0
    topic_id = _identify(disk, directory, topic_id, unsynced=not was_synced)
    bases = offsets_in_names(names, ".log")
    segments = [
        Segment(disk, directory, base_offset=base, create=not bases, now_ms=now_ms)
        for base in bases or [mark.begin]
    ]
    for segment in segments:
        segment.index_interval_bytes = config.index_interval_bytes
        segment.may_have_gaps = GAPS_MARK in names
    contents = LoadedLog(segments, 0, mark, topic_id=topic_id, unchecked_ok=unchecked_ok)
    contents.damage = read_damage_mark(disk, directory, unchecked_ok=unchecked_ok)
    if recovery_point is not None or not bases:
        # A killed process may have left unsynced bytes, names and truncations behind.
        contents.segments[-1].dirty = True
        contents.unsynced_directories = {directory, directory.rpartition("/")[0]}
    if mark.until is not None:
        flushed_until = min(flushed_until, mark.until)
        recovery_point = None if recovery_point is None else flushed_until
    rebuild_epochs = not _load_epochs(disk, directory, contents.epochs, unchecked_ok=unchecked_ok)
    if rebuild_epochs and EPOCH_CHECKPOINT in names:  # a log without records would never replace it
        remove_epoch_checkpoint(disk, directory)
    contents.epochs_begin = contents.epochs.first_start
    # all that was flushed up to the recovery point was in the checkpoint before that was written
    known_until = MAX_OFFSET if recovery_point is None else recovery_point
    recovery = _Recovery(
        disk,
        directory,
        contents,
        witness=contents.epochs.copy(),
        known_until=known_until,
        flushed_until=flushed_until,
    )
    recovery.run(recovery_point)
    try:
        _complete(disk, directory, contents, rebuild_epochs=rebuild_epochs)
    except CorruptMessage:
        recovery.run(0)  # rot lies before what had to be checked: so all of it must be
        _complete(disk, directory, contents, rebuild_epochs=rebuild_epochs)
    contents.recovery_point = contents.segments[-1].end_offset if recovery_point is None else recovery_point
    if not rebuild_epochs and contents.epochs.entries == recovery.witness.entries:
        contents.epochs.note_saved()
    for segment in contents.segments:
        segment.epochs = contents.epochs
    if unchecked_ok and topic_id is not None:
        _upgrade(disk, directory, sync=was_synced)
    return contents


def _make(
    disk: Disk, directory: str, *, topic_id: UUID | None, config: TopicConfig, now_ms: int
) -> LoadedLog:
    """Make the folder of a new log. It cannot hold any of the files that `load` looks for."""
    disk.mkdir(directory)
    if topic_id is not None:
        _write_topic_id(disk, directory, topic_id, sync=False)
    segment = Segment(disk, directory, base_offset=0, create=True, now_ms=now_ms)
    segment.index_interval_bytes = config.index_interval_bytes
    contents = LoadedLog([segment], 0, TruncationMark(disk, directory), topic_id=topic_id)
    segment.epochs = contents.epochs
    contents.unsynced_directories = {directory, directory.rpartition("/")[0]}
    return contents


def _complete(disk: Disk, directory: str, contents: LoadedLog, *, rebuild_epochs: bool) -> None:
    """Restore what is stored beside the records. CorruptMessage if they are not all sound after all."""
    end_offset = contents.segments[-1].end_offset
    contents.epochs.truncate(end_offset)
    snapshots = producer_snapshots.remove_after(disk, directory, end_offset)
    if rebuild_epochs:
        _rebuild_epochs(contents)
    contents.aborted = TransactionIndex()
    if not contents.aborted.load(
        disk, contents.segments, end_offset, unchecked_ok=contents.unchecked_ok
    ):  # only the records are left to read
        contents.aborted = TransactionIndex()
        contents.producers = producer_snapshots.replay_all(contents.segments, contents.aborted)
        contents.aborted.save_all(disk, contents.segments)
        return
    contents.aborted.save(disk, contents.segments[-1])  # without the markers of a tail that is gone
    contents.producers, contents.snapshot_offset = producer_snapshots.load(
        disk, directory, contents.segments, offsets=snapshots, aborted=contents.aborted
    )


def _upgrade(disk: Disk, directory: str, *, sync: bool) -> None:
    """Give the files of an older raftlog their checksums; partition.metadata, which stands for all, comes last.

    A folder that was new at a power cut may lack checksums too. Its files may be durable, so only checksums are
    written.
    """
    for name in (EPOCH_CHECKPOINT, DAMAGE_MARK, TRUNCATION_MARK):
        path = f"{directory}/{name}"
        if disk.exists(path):
            write_checksums(disk, path, disk.read_file(path), copy=name != EPOCH_CHECKPOINT)
    path = f"{directory}/{PARTITION_METADATA}"
    write_checksums(disk, path, disk.read_file(path), sync=sync, copy=True)


def _write_topic_id(disk: Disk, directory: str, topic_id: UUID, *, sync: bool) -> None:
    content = encode_partition_metadata(topic_id)
    write_checked(disk, f"{directory}/{PARTITION_METADATA}", content, sync=sync, copy=True)


def _finish_changes(disk: Disk, directory: str, *, unchecked_ok: bool) -> tuple[TruncationMark, list[str]]:
    """Finish the changes of names that a crash interrupted; return the mark of a cut, and the names that are left."""
    names = disk.listdir(directory)
    swap.complete_swaps(disk, directory, names)
    cut_at = dropped_segments.finish_drops(disk, directory, names)
    mark = TruncationMark.read(disk, directory, unchecked_ok=unchecked_ok)
    if cut_at is not None:  # a later start must know of the cut too, and would find no trace of it
        mark.limit(cut_at)
    for name in names:
        if name.endswith(LEFTOVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
    return mark, [name for name in names if not name.endswith(LEFTOVER_SUFFIXES)]


def write_gaps_mark(disk: Disk, directory: str) -> None:
    """Write durably that the log has holes, before its first hole: a start does not know the topic's policy.

    It does not wait for the folder's next sync. btrfs keeps the name of a file that was synced, as a cleaned segment
    is, and may lose a name that was given before it.
    """
    disk.write_file(f"{directory}/{GAPS_MARK}", b"0\n")


def _identify(disk: Disk, directory: str, topic_id: UUID | None, *, unsynced: bool) -> UUID | None:
    path = f"{directory}/{PARTITION_METADATA}"
    content = read_checked(disk, path, unchecked_ok=True, unsynced=unsynced)
    found = None
    if content is not None:
        try:
            found = decode_partition_metadata(content)
        except ValueError:
            _log.warning("partition_metadata_unreadable", directory=directory)
    if found is None and topic_id is not None:
        _write_topic_id(disk, directory, topic_id, sync=not unsynced)
        return topic_id
    if topic_id is not None and found != topic_id:
        raise InconsistentTopicId(f"{directory} belongs to topic id {found}, not {topic_id}")
    return found


def _load_epochs(disk: Disk, directory: str, epochs: LeaderEpochs, *, unchecked_ok: bool) -> bool:
    content = read_checked(disk, f"{directory}/{EPOCH_CHECKPOINT}", unchecked_ok=unchecked_ok)
    try:
        epochs.decode(content or b"")
    except ValueError:
        return False
    return True


def write_epoch_checkpoint(disk: Disk, directory: str, epochs: LeaderEpochs) -> None:
    """Write the file of leader epochs durably."""
    write_checked(disk, f"{directory}/{EPOCH_CHECKPOINT}", epochs.encode())
    epochs.note_saved()


def remove_epoch_checkpoint(disk: Disk, directory: str) -> None:
    """Remove the file of leader epochs durably, if it exists."""
    remove_checked(disk, f"{directory}/{EPOCH_CHECKPOINT}")


class TruncationMark:
    """The file that says that records below a recovery point were cut on purpose.

    It stays until the recovery point and the high watermark that follow the cut are written, and goes with the next
    checkpoint.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_is_checkpointed",
        "_is_high_watermark_written",
        "_is_superseded",
        "begin",
        "until",
    )

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._is_checkpointed = self._is_superseded = self._is_high_watermark_written = False
        self.until: int | None = None
        """The offset of the lowest cut; None without the file. No checkpoint beyond it is believed, as a recovery point
        may be from before all cuts.
        """
        self.begin = 0
        """The offset of the newest cut: a log without a segment begins there."""

    @classmethod
    def read(cls, disk: Disk, directory: str, *, unchecked_ok: bool) -> TruncationMark:
        """Read the file of a folder. If it is wrong, no checkpoint is believed."""
        mark = cls(disk, directory)
        path = f"{directory}/{TRUNCATION_MARK}"
        if not disk.exists(path):
            return mark
        mark.until = 0
        try:
            content = read_checked(disk, path, unchecked_ok=unchecked_ok) or b""
            offsets = [int(line) for line in content.splitlines()[1:]]
            mark.until, mark.begin = offsets[0], offsets[-1]
        except (ValueError, IndexError):
            pass
        return mark

    def cut(self, end_offset: int) -> None:
        """Write durably that the log was cut at `end_offset`, whatever a recovery point claims."""
        self._write(end_offset, begin=end_offset)

    def limit(self, offset: int) -> None:
        """Write durably that no recovery point beyond `offset` is to be believed."""
        self._write(offset, begin=offset if self.until is None else self.begin)

    def _write(self, offset: int, *, begin: int) -> None:
        self.until, self.begin = offset if self.until is None else min(offset, self.until), begin
        content = f"0\n{self.until}\n{begin}\n".encode()
        write_checked(self._disk, f"{self._directory}/{TRUNCATION_MARK}", content, copy=True)
        self._is_checkpointed = self._is_superseded = self._is_high_watermark_written = False

    def note_checkpoint(self) -> None:
        """Note a checkpoint of the log, and remove the file if it is no longer needed."""
        if self._is_superseded and self._is_high_watermark_written and self.until is not None:
            remove_checked(self._disk, f"{self._directory}/{TRUNCATION_MARK}")
            self.until = None
        self._is_checkpointed = True

    def note_written_point(self) -> None:
        """Note that the recovery point is durable. The next checkpoint removes the file if a checkpoint came before."""
        self._is_superseded = self._is_checkpointed

    def note_written_high_watermark(self) -> None:
        """Note that a high watermark from after the last cut is durable."""
        self._is_high_watermark_written = True


def _rebuild_epochs(contents: LoadedLog) -> None:
    contents.epochs.clear()
    for segment in contents.segments:
        for _, header in segment.iter_headers(0):
            if header.leader_epoch < contents.epochs.latest:
                raise CorruptMessage(f"leader epoch goes back at offset {header.base_offset}")
            contents.epochs.note_batch(header.leader_epoch, header.base_offset, due=segment.base_offset)
    contents.epochs.changed = True


class _Recovery:
    """One walk over what must be checked.

    `witness` knows the epochs of all batches before `known_until`. All before `flushed_until` was on the disk once.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        contents: LoadedLog,
        *,
        witness: LeaderEpochs,
        known_until: int,
        flushed_until: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._contents = contents
        self._segments = contents.segments
        self.witness = witness
        self._known_until = known_until
        self._flushed_until = flushed_until
        self._lone: tuple[int, int, int] | None = None
        """The segment's number, position and offset of the last batch, if only it is of a new epoch."""
        self._before = NO_EPOCH
        """The second newest epoch."""
        self._unflushed_at = 0
        """The position of the first batch in the segment that ends beyond the recovery point."""

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
            window, begin = SegmentScanner(segment), (0, segment.base_offset)
            if number == first:
                begin = self._begin(segment, window, recovery_point)
            segment.start_recovery(*begin)
            self._contents.epochs.truncate(begin[1])  # the walk finds them again
            if number == first:
                self._lone, self._before = None, self._contents.epochs.latest
            flushed_until = 0 if recovery_point is None else recovery_point
            ended, position, offset = self._walk(number, window, *begin, flushed_until=flushed_until)
            if ended < number:
                self._cut(ended, position, offset)
                return
            segment.verified = (begin[0], position)
            if recovery_point is not None:
                segment.rewrite(self._unflushed_at, position)
            if number + 1 < len(segments):
                segment.save_indexes(final=True)
                segment.file.sync()
                segment.dirty = False
            following_base = segments[number + 1].base_offset if number + 1 < len(segments) else offset
            if position < segment.size or offset != following_base:  # no hole ends a segment
                self._cut(number, position, offset)
                return
            segment.end_offset = offset
        self._expect_flushed()

    def _begin(self, segment: Segment, window: SegmentScanner, recovery_point: int | None) -> tuple[int, int]:
        """Return the position and base offset of the last indexed batch before the recovery point."""
        if recovery_point is not None and recovery_point <= segment.base_offset:
            return 0, segment.base_offset  # the walk makes the indexes anew
        try:
            segment.load_time_index()
            entry = segment.index.entry_before(
                segment.end_offset if recovery_point is None else recovery_point
            )
        except CorruptMessage:
            entry = None
            _log.info("index_rebuilt", path=segment.path)
        if entry is None:
            return 0, segment.base_offset
        last_offset, position = entry
        header = window.valid_header_at(position)
        if header is not None and header.last_offset == last_offset:
            times = segment.time_index.entry_before(header.base_offset)
            if times is None or is_time_entry_true(segment, times):
                return position, header.base_offset
        _log.info("index_rebuilt", path=segment.path)
        return 0, segment.base_offset

    def _walk(
        self, number: int, window: SegmentScanner, position: int, offset: int, *, flushed_until: int
    ) -> tuple[int, int, int]:
        """Walk over sound batches; return where they end: the number of a segment, a position in it, an offset.

        If the epoch goes back after a single batch of a new epoch, either batch may be rotten, so both are bad. The
        first may be the last of the segment before.
        """
        epochs, segment = self._contents.epochs, self._segments[number]
        self._unflushed_at = position
        while position < segment.size:
            header = window.valid_header_at(position)
            if header is None:
                break
            if not self._follows(segment, header, offset):
                is_back = self._before <= header.leader_epoch < epochs.latest
                return self._lone if self._lone and is_back else (number, position, offset)
            segment.index_batch(position, header)
            is_new = header.leader_epoch > epochs.latest
            is_lone = is_new and self._epoch_of(header) == NO_EPOCH
            self._lone = (number, position, offset) if is_lone else None
            self._before = epochs.latest if is_new else self._before
            epochs.note_batch(header.leader_epoch, header.base_offset, due=offset)
            position += header.length
            offset = header.end_offset
            if offset <= flushed_until:
                self._unflushed_at = position
        return number, position, offset

    def _follows(self, segment: Segment, header: BatchHeader, offset: int) -> bool:
        """Check a batch's place: offsets and leader epochs lie outside the CRC."""
        if header.leader_epoch < self._contents.epochs.latest:
            return False
        return self._epoch_of(header) in (NO_EPOCH, header.leader_epoch) and segment.follows(header, offset)

    def _epoch_of(self, header: BatchHeader) -> int:
        """Return the leader epoch of the batch by the checkpoint; -1 if unknown."""
        offset = header.base_offset
        return self.witness.epoch_at(offset) if offset < self._known_until else NO_EPOCH

    def _cut(self, number: int, position: int, offset: int) -> None:
        segment, later = self._segments[number], self._segments[number + 1 :]
        until = self._acknowledged_until(segment, later, position, offset)
        if offset < self._flushed_until:  # a torn tail was never flushed
            until = max(self._flushed_until, until or 0)
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
            if damaged:
                each.rename_for_deletion(".damaged")
            else:
                dropped_segments.remove_segment(self._disk, self._directory, each.base_offset)
        if later:  # else an old segment could come back after the next batches
            self._disk.sync_dir(self._directory)
        del self._segments[number + 1 :]
        segment.truncate(position, offset)
        epochs = self._contents.epochs
        epochs.truncate(offset)
        if damaged:  # the refetched batches may belong to other producers
            write_epoch_checkpoint(self._disk, self._directory, epochs)
        self._limit_recovery_point(offset)
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

    def _expect_flushed(self) -> None:
        """Detect flushed records that are missing although the rest is sound."""
        end_offset, until = self._segments[-1].end_offset, self._flushed_until
        if end_offset < until:
            self._contents.damage = merge_damage(self._contents.damage, Damage(end_offset, until))
            write_damage_mark(self._disk, self._directory, self._contents.damage)
            self._limit_recovery_point(end_offset)
            _log.error("flushed_records_missing", directory=self._directory, offset=end_offset)

    def _limit_recovery_point(self, end_offset: int) -> None:
        """Make later starts ignore a recovery point beyond the log's end: refetched records are not flushed."""
        if end_offset < self._known_until:
            self._contents.truncation_mark.limit(end_offset)
