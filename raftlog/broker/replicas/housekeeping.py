"""A broker's recurring work on its replicas: checkpoints, retention, lagging followers, old producers.

Each chore has its own interval, read anew each time, and never overlaps itself. It checks the partitions that were
touched since its last run, and partitions that it keeps because they will need work later. Work on many logs yields to
the loop after each. A disk error goes to the volume it came from and stops no other chore. Any other failure of one
log is noted in `failures`, and the chore goes on with the other logs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush, nlargest
from typing import TYPE_CHECKING, Final

from raftlog.base.env import shared_time
from raftlog.base.log import get_logger
from raftlog.base.recurring_failures import Failures
from raftlog.base.turns import each_part, in_slices
from raftlog.broker.replicas.compaction import LogCleaner
from raftlog.broker.replicas.offset_checkpoint import LOGS_AT_ONCE, OffsetCheckpoint
from raftlog.broker.replicas.touched import TouchedPartitions, TouchedQueue
from raftlog.replication.leader_role import LeaderRole
from raftlog.storage.log import Log
from raftlog.storage.log_directory import LogDirectory
from raftlog.storage.producers import MAX_IDLE_PRODUCERS
from raftlog.storage.segment_age import bytes_looked_at

if TYPE_CHECKING:
    from raftlog.base.types import TopicPartition
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.replication.partition import Partition

LAG_CHECKS_PER_LAG_TIME = 2
"""A lagging follower leaves the ISR at most half of replica.lag.time.max.ms late."""
RECOVERY_POINT_INTERVAL: Final = 1.0
"""Seconds between two updates of the recovery points: what a start after a crash has to check."""
UNSAVED_BYTES: Final = 32 << 20
"""Bytes of all logs together that a start may have to read for indexes and producers, apart from the last second."""
UNSAVED_LOG_BYTES: Final = 64 << 10
"""Bytes of one log that may always be unsaved."""
SAVED_PER_SECOND: Final = 200
"""Logs that are saved in one interval for their unsaved bytes, some 0.2 ms each."""
UNSAVED_EPOCH_BYTES: Final = 8 << 20
"""Bytes of one log with a new leader epoch that may always be unsaved."""
EPOCHS_SAVED_PER_SECOND: Final = 4
"""Such logs that are saved in one interval: the loop waits for four syncs of the disk each time."""
REAP_INTERVAL = 15.0
"""Seconds between two searches for files whose file.delete.delay.ms is over."""
PRODUCER_LIMIT_INTERVAL = 1.0
"""Seconds between two counts of the producers of all partitions together."""
LIFTED_BELOW = 0.8
"""The share of raftlog.producer.ids.max below which each partition may keep MAX_IDLE_PRODUCERS again."""
ROOM_INTERVAL = 2.0
"""Seconds between two checks of log directories that were full."""
FEW_ENTRIES = 100
"""The size that the queue of expiries may always have, including entries of replicas that were checked since, or are
gone."""
TURN = 0.002
"""Seconds after which work on many logs yields the loop, for as long as the work took."""

log = get_logger(__name__)

Chore = Callable[[], Awaitable[None]]


class Housekeeping:
    """The chores of one broker; `start` once its replicas did, `stop` before they close."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._env = replicas.env
        self.failures = Failures()
        """Failures of work on single logs."""
        self.compaction = LogCleaner(replicas, self.failures)
        self._tasks: list[asyncio.Task[None]] = []
        queue = replicas.touched.queue
        self._to_checkpoint, self._starts, self._high_watermarks = queue(), queue(), queue()
        self._ahead = queue()
        """Replicas with a recovery point below the log's end."""
        self._to_reap, self._to_retain = queue(), queue()
        self._with_producers, self._to_count = queue(), queue()
        replicas.touched.discard_listeners.append(self._forget)
        env = self._env
        self._written_high_watermarks = OffsetCheckpoint(
            env, LogDirectory.write_high_watermarks, written=lambda log, _: log.high_watermark_written()
        )
        self._written_starts = OffsetCheckpoint(env, LogDirectory.write_log_starts)
        self._written_cleaned = OffsetCheckpoint(env, LogDirectory.write_cleaner_offsets)
        self._written_points = OffsetCheckpoint(
            env, LogDirectory.write_recovery_points, written=Log.recovery_point_written
        )
        self._saved_last: frozenset[Partition] = frozenset()
        """The logs that were saved in the last interval for their unsaved bytes."""
        self._writing = asyncio.Lock()
        """Held while points are written, so that no older file replaces a newer one."""
        self._expiries: list[tuple[int, int, TopicPartition]] = []
        """When the oldest segment of a log grows too old (wall ms), a number, and the replica's name."""
        self._expires: dict[Partition, int] = {}
        """The number of the entry above that counts."""
        self._entries = itertools.count()
        self._half_judged: dict[Partition, None] = {}
        """Replicas with more retention work than fits into one turn."""
        self._producer_counts: dict[Partition, int] = {}
        self._producer_count = 0
        self._producers_kept = MAX_IDLE_PRODUCERS

    def start(self) -> None:
        config = self._replicas.config

        def each_ms(setting: str) -> Callable[[], float]:
            return lambda: getattr(self._replicas.config_in_force, setting) / 1000

        def of_lag_time() -> float:
            return self._replicas.replica_lag_time_max / LAG_CHECKS_PER_LAG_TIME

        chores: list[tuple[Callable[[], float], Chore]] = [
            (of_lag_time, self.shrink_isrs),
            (of_lag_time, self.send_readers_back),
            (each_ms("replica_high_watermark_checkpoint_interval_ms"), self.checkpoint_high_watermarks),
            (each_ms("log_flush_offset_checkpoint_interval_ms"), self.checkpoint_logs),
            (lambda: RECOVERY_POINT_INTERVAL, self.update_recovery_points),
            (each_ms("log_flush_start_offset_checkpoint_interval_ms"), self.checkpoint_log_starts),
            (each_ms("log_retention_check_interval_ms"), self.retain),
            (each_ms("producer_id_expiration_check_interval_ms"), self.expire_producers),
            (lambda: PRODUCER_LIMIT_INTERVAL, self.limit_producers),
            (lambda: REAP_INTERVAL, self.reap),
            (lambda: ROOM_INTERVAL, self._replicas.logs.check_free_space),
        ]
        if config.log_cleaner_enable:
            chores.append((each_ms("log_cleaner_backoff_ms"), self.compact))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(_every(interval, chore)) for interval, chore in chores]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget(self, partition: Partition) -> None:
        self._half_judged.pop(partition, None)
        self._expires.pop(partition, None)
        self._count_producers(partition)
        for checkpoint in (
            self._written_high_watermarks,
            self._written_starts,
            self._written_cleaned,
            self._written_points,
        ):
            checkpoint.forget(partition)

    async def shrink_isrs(self) -> None:
        """Propose to remove lagging followers from the ISR, on the partitions led here with any behind."""
        await self._visit(
            self._replicas.unsettled_isrs, "isr_shrinking", _shrink_laggards, _has_followers_behind
        )

    async def send_readers_back(self) -> None:
        """Wake the consumers that wait at followers without a leader, so that they go on at another replica."""
        awaited = self._replicas.awaited
        async for partition in in_slices(self._env, tuple(awaited), LOGS_AT_ONCE):
            if not partition.waiting_consumers:
                awaited.pop(partition, None)
            elif partition.has_lost_leader():
                partition.high_watermark_moved()

    async def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint where a high watermark moved."""
        async for partition in in_slices(self._env, self._high_watermarks.drain(), LOGS_AT_ONCE):
            volume = self._replicas.volume_of(partition)
            if volume is not None:
                self._written_high_watermarks.note(volume, partition, partition.high_watermark)
                if partition.high_watermark != partition.log_end_offset:
                    self._high_watermarks.requeue(partition)
        await self._write(self._written_high_watermarks)

    async def checkpoint_logs(self) -> None:
        """Write the data that logs keep beside their batches, and their recovery points."""
        touched = tuple(self._to_checkpoint)
        self._replicas.mark_unflushed(touched)
        await self._visit(self._to_checkpoint, "checkpoint", _checkpoint, _is_ahead_of_checkpoint)
        await self._write_checkpoints(touched)

    async def update_recovery_points(self) -> None:
        """Move the recovery points to what is flushed: one file for all logs of a directory, if any moved.

        Logs that grew by much are saved afterwards, since a start also reads what their indexes and producers lack.
        """
        ahead = self._ahead.drain()
        try:
            await each_part(self._env, ahead, self._update_recovery_point)
        except Exception:
            for partition in ahead:
                self._ahead.requeue(partition)
            raise
        await self._write_checkpoints(ahead)
        await self._visit_these(await self._most_unsaved(), "checkpoint", _checkpoint)

    def _update_recovery_point(self, partition: Partition) -> None:
        if self._replicas.volume_of(partition) is None:
            return
        log = partition.log
        if log.flushed_end_offset < log.active_segment.base_offset:
            self._replicas.mark_unflushed([partition])  # a segment is synced when it is full
        if log.update_recovery_point() != log.log_end_offset:
            self._ahead.requeue(partition)

    async def _most_unsaved(self) -> list[Partition]:
        """Return the logs to save, so that all logs together keep below UNSAVED_BYTES.

        After a failover all logs have a new leader epoch, and the loop may not wait for the disk so often. So only the
        few of these that grew most are saved, and the others wait for the recurring checkpoint. A log that was just
        saved waits too: its producers may not be saved before their markers are committed, and others have their turn.
        """
        growing = list(self._to_checkpoint)
        most = max(UNSAVED_BYTES // max(len(growing), 1), UNSAVED_LOG_BYTES)
        slices = in_slices(self._env, growing, LOGS_AT_ONCE)
        grown = [
            each
            async for each in slices
            if each.log.bytes_since_checkpoint > most and each not in self._saved_last
        ]
        large = [each for each in grown if each.log.bytes_since_checkpoint > UNSAVED_EPOCH_BYTES]
        chosen = _most_grown(EPOCHS_SAVED_PER_SECOND, (each for each in large if each.log.has_unsaved_epochs))
        chosen += _most_grown(SAVED_PER_SECOND, (each for each in grown if not each.log.has_unsaved_epochs))
        self._saved_last = frozenset(chosen)
        return chosen

    async def _write_checkpoints(self, partitions: Iterable[Partition]) -> None:
        async with self._writing:
            async for partition in in_slices(self._env, partitions, LOGS_AT_ONCE):
                volume = self._replicas.volume_of(partition)
                if volume is not None:
                    self._written_cleaned.note(volume, partition, partition.log.cleaned_until)
                    self._written_points.note(volume, partition, partition.log.recovery_point)
            # before the points: what a log was cut to and grew from again is not clean, whatever was written before
            await self._write(self._written_cleaned)
            await self._write(self._written_points)

    async def checkpoint_log_starts(self) -> None:
        """Write where logs begin, since DeleteRecords may move that into a segment."""
        async for partition in in_slices(self._env, self._starts.drain(), LOGS_AT_ONCE):
            volume = self._replicas.volume_of(partition)
            if volume is not None:
                self._written_starts.note(volume, partition, partition.log_start_offset)
        await self._write(self._written_starts)

    async def retain(self) -> None:
        """Delete segments beyond the retention time or size, but no records above the high watermark.

        Before the first metadata a log has the broker's default config, which may not be the topic's. Retention is not
        applied until then.
        """
        if len(self.failures):
            self.failures.forget_subjects(frozenset(map(str, self._replicas.partitions)))
        now_ms = self._env.ages.now_ms()
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, number, name = heappop(self._expiries)
            partition = self._replicas.partitions.get(name)
            if partition is not None and self._expires.get(partition) == number:
                self._to_retain.requeue(partition)
        await self._visit(self._to_retain, "retention", self._retain, _has_uncommitted)
        while self._half_judged:
            for volume in self._replicas.logs.online:
                if (flushed := volume.flusher.flushed()) is not None:
                    await flushed
            queue = TouchedQueue(TouchedPartitions())
            queue.waiting, self._half_judged = self._half_judged, {}
            await self._visit(queue, "retention", self._retain, _is_done)

    def _retain(self, partition: Partition) -> bool:
        if partition.leader_epoch < 0:
            return False
        segments, limit = partition.log.segments, partition.high_watermark
        looked_at = bytes_looked_at(segments)
        dropped = partition.log.delete_old_segments(self._env.ages.now_ms(), end_limit=limit)
        is_changed = partition.log.segments is not segments
        waits_for_flush = is_changed or partition.log.is_drop_waiting
        if waits_for_flush or bytes_looked_at(segments) > looked_at:
            self._half_judged[partition] = None
        # files of dropped segments go, and more are dropped, once that is durable
        if waits_for_flush and (volume := self._replicas.volume_of(partition)) is not None:
            volume.flusher.mark(partition)
        if dropped:
            partition.log_start_moved()
            start = partition.log_start_offset
            self._replicas.log_event("segments_deleted", partition, segments=dropped, log_start_offset=start)
        self._note_expiry(partition)
        return dropped > 0

    def _note_expiry(self, partition: Partition) -> None:
        """Check the log again when its oldest segment expires, even if it is not touched until then."""
        expires_ms = partition.log.next_expiry_ms()
        number = self._expires.pop(partition, None)
        if expires_ms is not None:
            self._expires[partition] = number = next(self._entries)
            heappush(self._expiries, (expires_ms, number, partition.name))
        if len(self._expiries) > 2 * len(self._expires) + FEW_ENTRIES:
            counts = frozenset(self._expires.values())
            self._expiries = [each for each in self._expiries if each[1] in counts]
            heapify(self._expiries)

    async def compact(self) -> None:
        """Clean the compacted logs that need it, one by one, the dirtiest first."""
        for volume in self._replicas.logs.online:
            behind = await self.compaction.flush_closed(volume)
            await self._visit_these(behind, "checkpoint", _checkpoint)
            await self._write_checkpoints(behind)
            if await self.compaction.clean(volume):
                # all logs, since the file lists all, and after a start no offsets are noted yet
                for partition in self.compaction.compacted_on(volume):
                    self._written_cleaned.note(volume, partition, partition.log.cleaned_until)
        async with self._writing:
            await self._write(self._written_cleaned)

    async def reap(self) -> None:
        """Remove files dropped long enough ago."""
        now_ms = self._uptime_ms()
        await self._visit(
            self._to_reap,
            "file_deletion",
            lambda partition: partition.log.delete_due_files(now_ms) > 0,
            _has_files_to_delete,
        )

    async def expire_producers(self) -> None:
        """Forget idempotent producers that were silent for producer.id.expiration.ms (KIP-98)."""
        now_ms, idle_ms = self._uptime_ms(), self._replicas.config_in_force.producer_id_expiration_ms

        def expire(partition: Partition) -> bool:
            return partition.log.expire_producers(now_ms, idle_ms=idle_ms) > 0

        await self._visit(self._with_producers, "producer_expiry", expire, _has_producers)
        self._recount_producers()

    def _recount_producers(self) -> None:
        """Count again in every partition that had producers, since expiry and eviction do not touch a partition."""
        for partition in tuple(self._producer_counts):
            self._count_producers(partition)

    def _count_producers(self, partition: Partition) -> None:
        known = 0 if self._replicas.volume_of(partition) is None else len(partition.log.producers)
        self._producer_count += known - self._producer_counts.pop(partition, 0)
        if known:
            self._producer_counts[partition] = known

    async def limit_producers(self) -> None:
        """Evict producers where all partitions together have too many.

        The fullest partitions evict first, and the longest silent producers.

        The limit of each is lifted once all of them are well below the setting again.
        """
        for partition in self._to_count.drain():
            self._count_producers(partition)
        most, before = self._replicas.config_in_force.raftlog_producer_ids_max, self._producers_kept
        if self._producer_count > most or before < MAX_IDLE_PRODUCERS:
            self._recount_producers()
        if self._producer_count > most:
            self._producers_kept = min(fair_share(self._producer_counts.values(), most), before)
        elif self._producer_count < most * LIFTED_BELOW:
            self._producers_kept = MAX_IDLE_PRODUCERS
        kept = self._producers_kept
        if kept == before == MAX_IDLE_PRODUCERS:
            return
        if before == MAX_IDLE_PRODUCERS:
            log.warning("producer_ids_limited", limit="raftlog.producer.ids.max", per_partition=kept)
        await self._visit_these(
            self._replicas.partitions.values(),
            "producer_limit",
            lambda partition: partition.log.producers.set_max_idle_producers(kept) > 0,
        )

    @staticmethod
    def _uptime_ms() -> int:
        """Return a monotonic time, for durations within this process."""
        return int(asyncio.get_running_loop().time() * 1000)

    async def _visit_these(
        self, partitions: Iterable[Partition], chore: str, call: Callable[[Partition], bool]
    ) -> None:
        queue = TouchedQueue(TouchedPartitions())
        queue.waiting.update(dict.fromkeys(partitions))
        await self._visit(queue, chore, call, _is_done)

    async def _visit(
        self,
        queue: TouchedQueue,
        chore: str,
        call: Callable[[Partition], bool],
        has_more: Callable[[Partition], bool],
    ) -> None:
        """Call for each waiting replica, a few at a time.

        Replicas that failed or have more to do later stay in the queue.
        """
        now = self._replicas.stopwatch
        turn_began_at = now()
        for partition in queue:
            queue.waiting.pop(partition, None)
            volume = self._replicas.volume_of(partition)
            if volume is None or volume.error is not None:
                continue
            done = False
            try:
                done = self._try(chore, partition, call)
            except OSError as error:
                self._replicas.logs.report(volume, error)
            if not done or has_more(partition):
                queue.requeue(partition)
            took = now() - turn_began_at
            if took > TURN:
                await asyncio.sleep(
                    took
                )  # a checkpoint may wait for the disk: at most half of the loop's time
                turn_began_at = now()

    def _try(self, chore: str, partition: Partition, call: Callable[[Partition], bool]) -> bool:
        """Call for one replica, unless it failed recently. Return False if it failed, now or then.

        OSError is raised.
        """
        now = asyncio.get_running_loop().time()
        work = partial(call, partition)
        return self.failures.attempt(chore, str(partition.name), now, work, raises=OSError) is not None

    async def _write(self, checkpoint: OffsetCheckpoint) -> None:
        """Write the files in which an offset moved. Files that the disk refuses are due again."""
        for volume in self._replicas.logs.online:
            try:
                writing = checkpoint.write_if_changed(volume)
                if writing is not None:
                    await writing
            except OSError as error:
                self._replicas.logs.report(volume, error)


async def _every(interval: Callable[[], float], chore: Chore) -> None:
    loop = asyncio.get_running_loop()
    while True:
        now = loop.time()
        await asyncio.sleep(shared_time(now, interval()) - now)
        try:
            await chore()
        except Exception:
            log.exception("chore_crashed")


def _most_grown(count: int, partitions: Iterable[Partition]) -> list[Partition]:
    return nlargest(count, partitions, key=lambda each: each.log.bytes_since_checkpoint)


def _checkpoint(partition: Partition) -> bool:
    if not partition.log.is_checkpoint_due:
        partition.log.update_recovery_point()
        return False
    partition.log.checkpoint()
    return True


def _shrink_laggards(partition: Partition) -> bool:
    partition.maybe_shrink_isr()
    return True


def _has_followers_behind(partition: Partition) -> bool:
    role = partition.role
    return type(role) is LeaderRole and not role.all_caught_up


def _is_ahead_of_checkpoint(partition: Partition) -> bool:
    return partition.log.recovery_point != partition.log_end_offset


def _has_uncommitted(partition: Partition) -> bool:
    return partition.leader_epoch < 0 or partition.high_watermark != partition.log_end_offset


def _has_files_to_delete(partition: Partition) -> bool:
    return partition.log.has_files_to_delete


def _has_producers(partition: Partition) -> bool:
    return len(partition.log.producers) > 0


def _is_done(partition: Partition) -> bool:
    return False


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return the largest limit per partition for which the sum is `most`; 1 at least."""
    left, counted = most, sorted(counts)
    for number, count in enumerate(counted):
        share = left // (len(counted) - number)
        if count > share:
            return max(share, 1)
        left -= count
    return most
