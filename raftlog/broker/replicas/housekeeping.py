"""A broker's recurring work on its replicas: checkpoints, retention, lagging followers, old producers.

Each chore has its own interval, read anew each time, and never overlaps itself. Work on many logs yields to the loop
after each. A disk error goes to the volume it came from and stops no other chore. Any other failure of one log is
noted in `failures`, and the chore goes on with the other logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.base.log import get_logger
from raftlog.base.recurring_failures import Failures
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.compaction import LogCleaner
from raftlog.broker.replicas.log_directories import LogVolume, offsets
from raftlog.storage.log_directory import Offsets
from raftlog.storage.producers import MAX_IDLE_PRODUCERS

if TYPE_CHECKING:
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.replication.partition import Partition

LAG_CHECKS_PER_LAG_TIME = 2
"""A laggard leaves the ISR at most half of replica.lag.time.max.ms late."""
REAP_INTERVAL = 15.0
"""Seconds between two looks for files whose file.delete.delay.ms is over."""
EXPIRE_INTERVAL = 600.0
"""Seconds between two looks for silent producers (Kafka's producer.id.expiration.check.interval.ms)."""
PRODUCER_LIMIT_INTERVAL = 1.0
"""Seconds between two looks at how many producers all partitions remember together."""
LIFTED_BELOW = 0.8
"""Of raftlog.producer.ids.max, where each partition may remember PRODUCERS_KEPT again."""
CLOCK_INTERVAL = 10.0
"""Seconds between two looks at the clocks, so that a jump is told soon."""
TURN = 0.002
"""Seconds after which work on many logs lets the loop do other things, for as long as it took itself."""

log = get_logger(__name__)

Chore = Callable[[], Awaitable[None]]


class Housekeeping:
    """The chores of one broker; `start` once its replicas did, `stop` before they close."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._env = replicas.env
        self.failures = Failures()
        """The work that failed for single logs."""
        self.compaction = LogCleaner(replicas, self.failures)
        self._tasks: list[asyncio.Task[None]] = []
        self._written: dict[LogVolume, dict[TopicPartition, int]] = {}
        self._written_starts: dict[LogVolume, dict[TopicPartition, int]] = {}
        self._written_cleaned: dict[LogVolume, dict[TopicPartition, int]] = {}
        self._producers_kept = MAX_IDLE_PRODUCERS

    def start(self) -> None:
        config = self._replicas.config

        def each_ms(setting: str) -> Callable[[], float]:
            return lambda: getattr(self._replicas.config_in_force, setting) / 1000

        chores: list[tuple[Callable[[], float], Chore]] = [
            (lambda: self._replicas.replica_lag_time_max / LAG_CHECKS_PER_LAG_TIME, self.shrink_isrs),
            (each_ms("replica_high_watermark_checkpoint_interval_ms"), self.checkpoint_high_watermarks),
            (each_ms("log_flush_offset_checkpoint_interval_ms"), self.checkpoint_logs),
            (each_ms("log_flush_start_offset_checkpoint_interval_ms"), self.checkpoint_log_starts),
            (each_ms("log_retention_check_interval_ms"), self.retain),
            (lambda: EXPIRE_INTERVAL, self.expire_producers),
            (lambda: PRODUCER_LIMIT_INTERVAL, self.limit_producers),
            (lambda: REAP_INTERVAL, self.reap),
            (lambda: CLOCK_INTERVAL, self.look_at_clocks),
        ]
        if config.log_cleaner_enable:
            chores.append((each_ms("log_cleaner_backoff_ms"), self.compact))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(_every(interval, chore)) for interval, chore in chores]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def shrink_isrs(self) -> None:
        """Propose to drop followers that lag, on every partition led here."""
        for partition in self._replicas.led():
            self._try("isr_shrinking", partition, _shrink_laggards)

    async def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint where a high watermark moved."""
        partitions = self._replicas.partitions
        for volume in self._replicas.logs.online:
            newest = {name: partitions[name].high_watermark for name in volume.logs if name in partitions}
            write = volume.directory.write_high_watermarks
            if self._written.get(volume) != newest and await self._checkpoint(volume, write, newest):
                self._written[volume] = newest

    async def checkpoint_logs(self) -> None:
        """Write what a log keeps beside its batches, and up to where it need not be checked after a crash."""
        self._replicas.mark_unflushed(self._replicas.partitions.values())
        for volume in self._replicas.logs.online:
            if await self._visit(volume, "checkpoint", _checkpoint):
                # before the points: what a log was cut to and grew from again is not clean, whatever was written before
                await self._checkpoint_cleaned(volume)
                points = offsets(volume.logs.items(), lambda each: each.recovery_point)
                await self._checkpoint(volume, volume.directory.write_recovery_points, points)

    async def checkpoint_log_starts(self) -> None:
        """Write where logs begin, since DeleteRecords may move that into a segment."""
        for volume in self._replicas.logs.online:
            starts = offsets(volume.logs.items(), lambda each: each.log_start_offset)
            write = volume.directory.write_log_starts
            if self._written_starts.get(volume, {}) != starts and await self._checkpoint(
                volume, write, starts
            ):
                self._written_starts[volume] = starts

    async def retain(self) -> None:
        """Drop segments that are too old or too much; nothing above the high watermark.

        Before the first metadata a log has the broker's defaults for its topic's config: nothing is judged by those.
        """
        self.failures.forget_subjects(frozenset(map(str, self._replicas.partitions)))
        await self._visit_all("retention", self._retain)

    def _retain(self, partition: Partition) -> bool:
        if partition.leader_epoch < 0:
            return False
        dropped = partition.log.delete_old_segments(
            self._env.ages.now_ms(), end_limit=partition.high_watermark
        )
        if dropped:
            partition.log_start_moved()
            start = partition.log_start_offset
            self._replicas.log_event("segments_deleted", partition, segments=dropped, log_start_offset=start)
        return dropped > 0

    async def compact(self) -> None:
        """Clean the compacted logs that are worth it, one after the other, the dirtiest first."""
        for volume in self._replicas.logs.online:
            if await self.compaction.clean(volume):
                await self._checkpoint_cleaned(volume)

    async def _checkpoint_cleaned(self, volume: LogVolume) -> None:
        cleaned = offsets(volume.logs.items(), lambda each: each.cleaned_until)
        write = volume.directory.write_cleaner_offsets
        if self._written_cleaned.get(
            volume, volume.directory.cleaner_offsets
        ) != cleaned and await self._checkpoint(volume, write, cleaned):
            self._written_cleaned[volume] = cleaned

    async def reap(self) -> None:
        """Remove files dropped long enough ago."""
        now_ms = self._uptime_ms()
        await self._visit_all("file_deletion", lambda partition: partition.log.delete_due_files(now_ms) > 0)

    async def expire_producers(self) -> None:
        """Forget idempotent producers that were silent for producer.id.expiration.ms (KIP-98)."""
        now_ms, idle_ms = self._uptime_ms(), self._replicas.config_in_force.producer_id_expiration_ms
        await self._visit_all(
            "producer_expiry",
            lambda partition: partition.log.expire_producers(now_ms, idle_ms=idle_ms) > 0,
        )

    async def limit_producers(self) -> None:
        """Have partitions forget producers where all remember too many together: the fullest, the longest silent.

        The limit of each is lifted once all of them are well below the setting again.
        """
        counts = [len(each.log.producers) for each in self._replicas.partitions.values()]
        most, before = self._replicas.config_in_force.raftlog_producer_ids_max, self._producers_kept
        if sum(counts) > most:
            self._producers_kept = min(fair_share(counts, most), before)
        elif sum(counts) < most * LIFTED_BELOW:
            self._producers_kept = MAX_IDLE_PRODUCERS
        kept = self._producers_kept
        if kept == before == MAX_IDLE_PRODUCERS:
            return
        if before == MAX_IDLE_PRODUCERS:
            log.warning("producer_ids_limited", limit="raftlog.producer.ids.max", per_partition=kept)
        await self._visit_all(
            "producer_limit", lambda partition: partition.log.producers.set_max_idle_producers(kept) > 0
        )

    async def look_at_clocks(self) -> None:
        """A jump of the wall clock is to be noticed before anything is deleted by it, and told."""
        self._env.ages.now_ms()

    @staticmethod
    def _uptime_ms() -> int:
        """A time that no clock's jump changes, for what is measured within this process."""
        return int(asyncio.get_running_loop().time() * 1000)

    async def _visit_all(self, chore: str, call: Callable[[Partition], bool]) -> None:
        for volume in self._replicas.logs.online:
            await self._visit(volume, chore, call)

    async def _visit(self, volume: LogVolume, chore: str, call: Callable[[Partition], bool]) -> bool:
        """Call for each replica on a volume, a few at a time; says whether any call was true."""
        now = self._replicas.stopwatch
        did = False
        turn_began_at = now()
        for name in tuple(volume.logs):
            partition = self._replicas.partitions.get(name)
            if partition is None or volume.error is not None:
                continue
            try:
                did = self._try(chore, partition, call) or did
            except OSError as error:
                self._replicas.logs.report(volume, error)
            took = now() - turn_began_at
            if took > TURN:
                await asyncio.sleep(
                    took
                )  # a checkpoint may wait for the disk: at most half of the loop's time
                turn_began_at = now()
        return did

    def _try(self, chore: str, partition: Partition, call: Callable[[Partition], bool]) -> bool:
        """Call for one replica, unless that failed not long ago; what fails is noted. OSError is the volume's."""
        now = asyncio.get_running_loop().time()
        work = partial(call, partition)
        return self.failures.attempt(chore, str(partition.name), now, work, raises=OSError) or False

    async def _checkpoint(
        self, volume: LogVolume, write: Callable[[Offsets], None], offsets: Offsets
    ) -> bool:
        """Write what was drawn up just now; False: it was out of date or the disk refused it, and is due again."""
        call = partial(volume.checkpoint, write, offsets, volume.generation)
        try:
            return await self._env.offload(call)
        except OSError as error:
            self._replicas.logs.report(volume, error)
            return False


async def _every(interval: Callable[[], float], chore: Chore) -> None:
    while True:
        await asyncio.sleep(interval())
        try:
            await chore()
        except Exception:
            log.exception("chore_crashed")


def _checkpoint(partition: Partition) -> bool:
    if partition.log.recovery_point == partition.log.flushed_end_offset:
        return False
    partition.log.checkpoint()
    return True


def _shrink_laggards(partition: Partition) -> bool:
    partition.maybe_shrink_isr()
    return True


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return the largest number that none of these may exceed so that they are `most` together; 1 at least."""
    left, counted = most, sorted(counts)
    for number, count in enumerate(counted):
        share = left // (len(counted) - number)
        if count > share:
            return max(share, 1)
        left -= count
    return most
