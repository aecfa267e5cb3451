"""One partition's log on one disk: append, read, truncate, flush, retain. No roles, clients, clock or threads.

Ordering law: a batch's bytes first, then the log's state (end offset, producers, epochs). An OSError leaves the state
as it was. Offsets count as flushed only through `begin_flush`, `FlushTicket.run`, `complete_flush`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from raftlog.base.disk import Buffer, Disk
from raftlog.base.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from raftlog.base.types import NO_TIMESTAMP
from raftlog.records.batch import read_end_marker
from raftlog.records.header import (
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    STAMP,
    BatchHeader,
    known_max_timestamp,
    stamp_max_timestamp,
)
from raftlog.records.validation import WalkRules
from raftlog.storage import damage as damages
from raftlog.storage import recovery, retention
from raftlog.storage.fetched_batches import GapPolicy, has_gap, iter_valid_batches
from raftlog.storage.flush import FlushState, FlushTicket
from raftlog.storage.log_segments import START, LogSegments
from raftlog.storage.log_truncation import LogTruncation
from raftlog.storage.producer_snapshots import ProducerSnapshots
from raftlog.storage.producers import AbortedTransaction, BatchMetadata, LogAppendInfo
from raftlog.storage.recovery import LoadedLog
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig

_new_tuple = tuple.__new__


class Log(LogTruncation):
    """Batches from `log_start_offset` to `log_end_offset` (exclusive). Other threads may only call `read`."""

    def __init__(self, disk: Disk, directory: str, *, config: TopicConfig, contents: LoadedLog) -> None:
        self.disk = disk
        self.directory = directory
        self._epochs = contents.epochs
        self.producers = contents.producers
        self.transaction_index = contents.aborted
        self.damage: damages.Damage | None = contents.damage
        """The offset at which records that may have been acknowledged are missing or bad: such a replica must not
        lead.
        """
        self._uncut_from: int | None = None
        """The offset at which damage begins that a reader found, until `truncate_damage`; damage that recovery found
        is cut already.
        """
        self.topic_id: UUID | None = contents.topic_id
        self.log_start_offset = contents.segments[0].base_offset
        self.log_end_offset = contents.segments[-1].end_offset
        self.epochs_begin = contents.epochs_begin
        """The offset at which the leader epochs on disk began, at or before the former log start; 0 if unknown."""
        self.recovery_point = min(contents.recovery_point, self.log_end_offset)
        """Everything below it is flushed, and its leader epochs are in their checkpoint: a start need not check it."""
        self._unflushed = FlushState.recovered(disk, directory, contents)
        self._segments = LogSegments(
            disk, directory, contents.segments, epochs=self._epochs, unflushed=self._unflushed
        )
        self.cleaned_until = 0  # compaction has seen every record before it; it may lie outside the log
        self.truncation_count = 0  # how often the log's end went back
        self._snapshots = ProducerSnapshots(disk, directory, contents.snapshot_offset)
        self._truncation_mark = contents.truncation_mark
        self.truncated_to = self._truncation_mark.until
        """The offset at which the log was cut before it was opened; None if no checkpoint can lie beyond that."""
        self.has_old_reads = False
        """Whether a reader may have loaded indexes of old segments since retention unloaded them last."""
        self.config = config
        is_saved = contents.snapshot_offset == self.log_end_offset
        self._checkpointed = self._segments.end_position if is_saved else START

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        config: TopicConfig,
        recovery_point: int,
        clean: bool,
        topic_id: UUID | None,
        now_ms: int,
    ) -> Log:
        """Open or create the log in `directory` and recover it; may take long.

        After a clean stop (`clean`) the files are trusted; otherwise all from offset `recovery_point` on is checked. A
        log that ends before that is damaged. Raise InconsistentTopicId if the folder belongs to another topic, OSError
        if the disk fails.
        """
        contents = recovery.load(
            disk,
            directory,
            config=config,
            last_stop=recovery.LastStop(clean, recovery_point),
            topic_id=topic_id,
            now_ms=now_ms,
        )
        return cls(disk, directory, config=config, contents=contents)

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self.walk_rules = WalkRules.of(config)
        self.compacted = "compact" in config.cleanup_policy
        self._segments.configure(config)

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def segments(self) -> list[Segment]:
        """All segments, oldest first; do not change the list."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that wrote here or was noted, -1 if none."""
        return self._epochs.latest

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether `checkpoint` has something to write."""
        return self._checkpointed != self._segments.end_position or self._epochs.changed

    @property
    def has_unsaved_epochs(self) -> bool:
        """Whether `checkpoint` waits for the disk."""
        return self._epochs.changed

    @property
    def bytes_since_checkpoint(self) -> int:
        """The bytes that a start would have to read for the indexes and the producers."""
        return self._segments.bytes_since(self._checkpointed)

    # -- appending -----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        header: BatchHeader,
        batch: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        max_timestamp: int | None = None,
    ) -> LogAppendInfo:
        """Give a validated batch the next offsets and write it; `batch` may be reused once this returns.

        `max_timestamp` is the largest of its records if they were walked; None believes the header (`must_be_walked`).
        A retry of any of the producer's last five batches writes no bytes and returns the original's offsets. Raises
        OutOfOrderSequenceNumber, InvalidProducerEpoch, KafkaStorageError (damaged), OSError.
        """
        # All checks come before the append, which only the disk may fail. A batch that a check refuses must not change
        # offsets, epochs or producer state, since its client sends it again.
        if self.damage is not None:
            raise KafkaStorageError("the replica's log is damaged, it may not lead")
        # The sequence is judged first: a retry is answered even if a roll is due.
        if header.producer_id >= 0 and (original := self.producers.check_sequence(header)) is not None:
            return self._answer_retry(original)
        # The offsets of a batch are the log's end: the loop runs one append at a time, so no lock guards it.
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        append_time, stamps_time = NO_TIMESTAMP, self._stamps_time
        timestamp = known_ms = header.max_timestamp
        if stamps_time:
            timestamp = known_ms = append_time = now_ms
        elif max_timestamp is not None:
            timestamp = max_timestamp
            known_ms = known_max_timestamp(header._replace(max_timestamp=timestamp))
        if stamps_time or timestamp != header.max_timestamp:
            head = stamp_max_timestamp(
                header,
                batch,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                max_timestamp=timestamp,
                is_append_time=stamps_time,
            )
        else:
            # Only these first bytes are the leader's to write, and the CRC does not cover them. The rest is not copied.
            head = STAMP.pack(base_offset, header.length - LENGTH_OVERHEAD, leader_epoch)
        buffers = (head, memoryview(batch)[len(head) :])
        segment = self._segments.active
        try:
            # Once at most: an empty segment takes any batch.
            while not segment.append(
                buffers, header.length, last_offset=last_offset, max_timestamp=known_ms, now_ms=now_ms
            ):
                segment = self._roll(now_ms)
        except OSError as error:
            # The producer's next batches may be in flight. They are refused likewise until this batch comes again.
            refused = KafkaStorageError(f"the disk refused it: {error.strerror}")
            self.producers.refused_batches.note(header, refused)
            raise
        # From here on the batch is in the log. The log end moves first, then epochs and producers. A crash rebuilds
        # these from the log, so they may lag behind it, but must never be ahead.
        self.log_end_offset = end_offset = last_offset + 1
        if leader_epoch > self._epochs.latest:
            self._epochs.note(leader_epoch, base_offset)
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                self._end_transaction(header, batch, base_offset)
            else:
                self.producers.record(header, base_offset, timestamp)
        return _new_tuple(LogAppendInfo, (base_offset, end_offset, append_time, self.log_start_offset, False))

    def _answer_retry(self, original: BatchMetadata) -> LogAppendInfo:
        time_ms = original.timestamp if self._stamps_time else NO_TIMESTAMP
        return LogAppendInfo(
            original.base_offset, original.last_offset + 1, time_ms, self.log_start_offset, True
        )

    def _end_transaction(self, header: BatchHeader, batch: Buffer, base_offset: int) -> None:
        marker = read_end_marker(batch)
        ended = None if marker is None else self.producers.end_transaction(header, marker, base_offset)
        if ended is not None:
            self.transaction_index.add(ended)

    def append_as_follower(self, records: Buffer, *, now_ms: int, gaps: GapPolicy = GapPolicy.NONE) -> int:
        """Append the whole batches of a fetch response as the leader stamped them; returns the new log end offset.

        Skip an incomplete batch at the end, and everything after a gap in the offsets that `gaps` does not allow.
        Raise CorruptMessage at a wrong CRC, an offset below the log's end, or a smaller leader epoch. Neither that
        batch nor later batches are written. `gaps`: which batches compaction may have removed from the leader's log.
        """
        view = memoryview(records)
        run: list[BatchHeader] = []
        run_start = run_end = 0
        refused: CorruptMessage | None = None
        end_offset, epoch = self.log_end_offset, self._epochs.latest
        # The mark comes first: a recovery that finds a hole without it considers the rest of the log damaged.
        if not self._segments.active.may_have_gaps and has_gap(view, end_offset=end_offset, gaps=gaps):
            self.write_gaps_mark()
        batches = iter_valid_batches(view, end_offset=end_offset, epoch=epoch, gaps=gaps)
        try:
            for position, header in batches:
                active = self._segments.active
                # Neighbours that fit into one segment are one write: a follower that catches up writes megabytes.
                if not active.has_room(header, size=active.size + position - run_start, now_ms=now_ms):
                    self._append_run(view[run_start:position], run, now_ms)
                    run, run_start = [], position
                    self._roll(now_ms)
                run.append(header)
                run_end = position + header.length
        except CorruptMessage as error:
            refused = error
        # Sound batches before the corrupt batch stay: the next fetch asks only for the corrupt batch.
        self._append_run(view[run_start:run_end], run, now_ms)
        if refused is not None:
            raise refused
        # A reader on another thread may find damage meanwhile. It is cut off and fetched again, not accepted.
        damage = self.damage
        if damage is not None and self._uncut_from is None and self.log_end_offset >= damage.until_offset:
            self.accept_damage()
        return self.log_end_offset

    def _append_run(self, run: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
        if not headers:
            return
        self._segments.active.append_batches(run, headers, now_ms=now_ms)
        self.log_end_offset = headers[-1].end_offset
        position = 0
        for header in headers:
            if header.leader_epoch > self._epochs.latest:
                self._epochs.note_batch(header.leader_epoch, header.base_offset, due=self.log_start_offset)
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    self._end_transaction(header, run[position:], header.base_offset)
                else:
                    self.producers.record(header, header.base_offset, header.max_timestamp)
            position += header.length

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log's end and return it. OSError leaves the old segment active."""
        old = self._segments.active
        assert old.size, "an empty segment is never left behind"
        # Whatever the disk may refuse comes before the list of segments changes.
        old.save_indexes(final=True)
        self.transaction_index.save(self.disk, old)
        self._save_producers()
        return self._segments.roll(self.log_end_offset, now_ms)

    def _save_producers(self) -> bool:
        return self._snapshots.save(self.producers, self.log_end_offset, self._segments.all)

    # -- shrinking -----------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Make `offset` the first that readers may ask for; ignore a lower offset. OffsetOutOfRange past the end."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is past the log's end {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.advance_start(offset)

    def delete_old_segments(self, now_ms: int, *, end_limit: int) -> int:
        """Drop the oldest segments that are too old, too much, or before the log start; returns how many.

        Only segments below `end_limit` (the high watermark) go. A wholly expired log rolls first (as Kafka's does).
        """
        count = retention.count_deletable_segments(
            self._segments.all,
            self._config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            end_limit=end_limit,
        )
        if count == len(self._segments.all):
            self._roll(now_ms)
        count = self._segments.drop_oldest(count)
        if count:
            first_offset = self._segments.all[0].base_offset
            self.advance_log_start(first_offset)
            self.transaction_index.drop_before(first_offset)
        self.has_old_reads = False
        for segment in self._segments.all[:-1]:
            segment.unload_indexes()
        return count

    @property
    def is_drop_waiting(self) -> bool:
        """Whether `delete_old_segments` has more to drop after the next flush."""
        return self._segments.is_drop_waiting

    def next_expiry_ms(self) -> int | None:
        """Return when the oldest segment will be too old, in wall ms; None if it never expires by age."""
        return retention.expiry_ms(self._segments.all[0], self._config)

    @property
    def has_files_to_delete(self) -> bool:
        """Whether files wait for file.delete.delay.ms."""
        return bool(self._segments.pending_deletes)

    def delete_due_files(self, now_ms: int) -> int:
        """Remove the files dropped `file.delete.delay.ms` ago; returns how many."""
        return self._segments.delete_due_files(now_ms, delay_ms=self._config.file_delete_delay_ms)

    @property
    def swaps(self) -> LogSegments:
        """The steps before and after `replace_segments`."""
        return self._segments

    def replace_segments(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Replace neighbouring segments by an announced, synced segment; False if the log no longer has them.

        The mark of gaps is on the disk by then. OSError leaves a log that must go offline.
        """
        if self.damage is not None or not self._segments.replace(group, cleaned):
            return False
        self.transaction_index.cleaned(cleaned.base_offset, cleaned.end_offset)
        return True

    def write_gaps_mark(self) -> None:
        """Write the mark of gaps durably, before the first hole. OSError leaves the log unchanged."""
        recovery.write_gaps_mark(self.disk, self.directory)
        self.note_gaps()

    def note_gaps(self) -> None:
        """Expect holes in all segments from now on. The mark that says so is on the disk already."""
        for segment in self._segments.all:
            segment.may_have_gaps = True

    def aborted_before(self, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records before an offset."""
        return self.transaction_index.overlapping(0, end_offset)

    def must_retain_batch(self, header: BatchHeader) -> bool:
        """Return whether the log needs that batch, even empty, to know its producers or leader epochs."""
        return self._epochs.begins_at(header.base_offset) or self.producers.must_retain_batch(header)

    # -- transactions --------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The end for read_committed: the start of the oldest transaction that is open, or ended by an uncommitted
        marker.

        It is never before the log start, even if records of that transaction were deleted.
        """
        unstable = self.producers.first_unstable_offset
        return None if unstable is None else max(unstable, self.log_start_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Record up to which offset markers are committed; only needed while `first_unstable_offset` is not None."""
        self.producers.on_high_watermark_updated(high_watermark)

    def expire_producers(self, now_ms: int, *, idle_ms: int) -> int:
        """Forget producers idle for `idle_ms` by these calls' times (producer.id.expiration.ms); returns how many."""
        return self.producers.expire(now_ms, idle_ms=idle_ms)

    # -- making durable ------------------------------------------------------------------------------------------

    @property
    def flushed_end_offset(self) -> int:
        """Everything below it is on the disk: what this replica may count towards the high watermark."""
        return self._unflushed.flushed_end_offset

    def begin_flush(self) -> FlushTicket | None:
        """Return the ticket that makes everything up to now flushed; None if all is synced.

        There is one ticket at a time: call `complete_flush`, or abandon the log.
        """
        return self._unflushed.begin(self._segments.active, self.log_end_offset)

    def complete_flush(self, ticket: FlushTicket) -> int:
        """Count what a ticket has synced, except for what was truncated meanwhile; return the new flushed end."""
        return self._unflushed.complete(ticket)

    def flush(self) -> None:
        """Sync everything, and wait for the disk."""
        if (ticket := self.begin_flush()) is not None:
            ticket.run()
            self.complete_flush(ticket)

    def checkpoint(self) -> int:
        """Write indexes, epochs (waits for the disk if they changed) and producers; returns the new recovery point.

        A start reads what was written since, so this is due after some megabytes, and at the latest each minute.
        """
        self._segments.active.save_indexes()
        self.transaction_index.save(self.disk, self._segments.active)
        if self._epochs.changed:
            recovery.write_epoch_checkpoint(self.disk, self.directory, self._epochs)
        if self._save_producers():
            self._checkpointed = self._segments.end_position
        self._truncation_mark.note_checkpoint()
        return self.update_recovery_point()

    def update_recovery_point(self) -> int:
        """Move the recovery point to what is flushed and return it, each second.

        It stays before an epoch that is not in the checkpoint of epochs: a start would hold its batches for damage.
        """
        until = min(self.flushed_end_offset, self._epochs.saved_until)
        self.recovery_point = max(self.recovery_point, until)
        return self.recovery_point

    def recovery_point_written(self, offset: int) -> None:
        """Note that a file with this recovery point is durable; it may have been drawn up before the last cut."""
        if offset <= self.recovery_point:
            self._truncation_mark.note_written_point()

    def high_watermark_written(self) -> None:
        """Note that a file with a high watermark from after the last cut is durable."""
        self._truncation_mark.note_written_high_watermark()

    def close(self, *, clean: bool) -> None:
        """Close all files; `clean` first makes everything durable, so that the next start can trust it."""
        if clean:
            self._segments.active.save_indexes(final=True)
            self.flush()
            self.checkpoint()
        for segment in self._segments.all:
            segment.close()
