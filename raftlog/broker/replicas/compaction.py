"""Schedules the cleaning of compacted logs beside all other work: which log is next, and when to yield the loop.

The storage room decides what a cleaning keeps; this module decides when it runs, and how it ends. If a cleaning fails,
for whatever reason, its log is marked as uncleanable and retried later. The other logs go on.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.base.log import get_logger
from raftlog.base.recurring_failures import Failures
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.replicas.log_directories import LogVolume
from raftlog.broker.replicas.touched import TouchedPartitions, TouchedQueue
from raftlog.storage.log_to_clean import LogToClean, find_log_to_clean

if TYPE_CHECKING:
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.replication.partition import Partition
    from raftlog.storage.batch_reader import OffloadSteps

CHORE: Final = "compaction"
"""The name of compaction among the failures."""
TURN_S: Final = 0.001
"""After this much work the loop does other things, for as long as the work took."""
TURN_STEPS: Final = 64
"""The maximum number of steps in a turn where no clock measures their time."""

log = get_logger(__name__)


class LogCleaner:
    """Cleans one log at a time, whatever their number. Its counts only grow while the process lives."""

    def __init__(self, replicas: Replicas, failures: Failures) -> None:
        self._replicas = replicas
        self._env = replicas.env
        self._failures = failures
        self.cleanings = 0
        """Completed cleanings."""
        self.failures = 0
        """Cleanings that failed: damage, a disk error, or a batch that could not be rebuilt."""
        self.seconds = 0.0
        self.bytes_before = 0
        self.bytes_after = 0
        self.records_removed = 0
        # without a cleaner the queue would never be drained
        enabled = replicas.config.log_cleaner_enable
        self._touched = replicas.touched.queue() if enabled else TouchedQueue(TouchedPartitions())
        self._compacted: dict[Partition, None] = {}
        """All of this broker's replicas that are."""
        replicas.touched.discard_listeners.append(self._forget)

    async def flush_closed(self, volume: LogVolume) -> list[Partition]:
        """Return a volume's compacted logs with closed segments past their checkpoint, once these are flushed.

        Only what lies before a recovery point is cleaned. The point waits until a new leader epoch is saved, which may
        be a minute away. Kafka moves the point when a segment rolls.
        """
        self._take_touched()
        compacted = self.compacted_on(volume)
        are_behind = await each_part(self._env, compacted, _is_behind)
        behind = [each for each, is_behind in zip(compacted, are_behind, strict=True) if is_behind]
        self._replicas.mark_unflushed(behind)
        if behind and (flushed := volume.flusher.flushed()) is not None:
            await flushed
        return behind

    async def clean(self, volume: LogVolume) -> bool:
        """Clean every log of a volume that needs it, the dirtiest first; return whether any was cleaned."""
        before = self.cleanings
        for partition in await self._due(volume):
            bounds = self._bounds(partition)  # time has passed since they were sorted
            if bounds is not None and self._is_here(volume, partition):
                await self._clean(volume, partition, bounds)
        return self.cleanings > before

    def compacted_on(self, volume: LogVolume) -> list[Partition]:
        """Return the compacted logs of a volume."""
        return [each for each in self._compacted if self._replicas.volume_of(each) is volume]

    def _forget(self, partition: Partition) -> None:
        self._compacted.pop(partition, None)

    def _take_touched(self) -> None:
        for partition in self._touched.drain():
            self._compacted.pop(partition, None)
            if partition.log.compacted and self._replicas.volume_of(partition) is not None:
                self._compacted[partition] = None

    async def _due(self, volume: LogVolume) -> list[Partition]:
        now = asyncio.get_running_loop().time
        found: list[tuple[float, int, Partition]] = []
        self._take_touched()

        def add_if_due(partition: Partition) -> None:
            if partition.leader_epoch < 0:
                return
            if not self._failures.is_due(CHORE, str(partition.name), now()):
                return
            bounds = self._bounds(partition)
            if bounds is not None and bounds.is_due(partition.log.config):
                found.append((-bounds.ratio, len(found), partition))

        await each_part(self._env, self.compacted_on(volume), add_if_due)
        return [partition for _, _, partition in sorted(found)]

    def _bounds(self, partition: Partition) -> LogToClean | None:
        """Return the cleanable range of a log, or None if there is none or it could not be determined."""
        opened, now_ms = partition.log, self._env.ages.now_ms()
        try:
            bounds = find_log_to_clean(opened, end_limit=partition.last_stable_offset, now_ms=now_ms)
        except OSError:
            return None  # the next reader of this log handles the error
        except Exception as error:
            self._note_failure(partition, error)
            return None
        if bounds is None and opened.damage is None:
            self._failures.succeeded(CHORE, str(partition.name))
        return bounds

    def _note_failure(self, partition: Partition, error: Exception) -> None:
        self.failures += 1
        self._failures.failed(CHORE, str(partition.name), error, asyncio.get_running_loop().time())

    def _is_here(self, volume: LogVolume, partition: Partition) -> bool:
        return volume.error is None and volume.logs.get(partition.name) is partition.log

    async def _clean(self, volume: LogVolume, partition: Partition, bounds: LogToClean) -> None:
        from raftlog.storage.cleaner import Cleaning  # a node without compacted logs needs none of it

        cleaning = Cleaning(
            partition.log,
            bounds,
            now_ms=self._env.ages.now_ms(),
            latest_ms=self._env.ages.latest_ms(),
            may_forget=self._replicas.is_whole(partition),
            map_bytes=self._replicas.config_in_force.log_cleaner_dedupe_buffer_size,
        )
        now = asyncio.get_running_loop().time
        began_at = now()
        try:
            with closing(cleaning.steps()) as steps:
                await self._run(steps, volume, partition)
        except Exception as error:
            # a file that was deleted or dropped meanwhile raises too, and is neither damage nor a failing disk
            if self._is_here(volume, partition) and not cleaning.is_log_changed:
                await self._fail(volume, partition, cleaning.position, error)
        self.seconds += now() - began_at
        self.bytes_before += cleaning.bytes_before
        self.bytes_after += cleaning.bytes_after
        self.records_removed += cleaning.records_before - cleaning.records_after
        self._replicas.touch(partition)  # files that it replaced are to be deleted, even if it failed later
        if not cleaning.is_complete:
            return
        self.cleanings += 1
        if cleaning.malformed:
            self._replicas.log_event(
                "malformed_batches_kept",
                partition,
                count=cleaning.malformed,
                first_offset=cleaning.first_malformed,
            )
        self._failures.succeeded(CHORE, str(partition.name))
        self._replicas.log_event(
            "log_compacted",
            partition,
            bytes_before=cleaning.bytes_before,
            bytes_after=cleaning.bytes_after,
            records_before=cleaning.records_before,
            records_after=cleaning.records_after,
            cleaned_until=cleaning.cleaned_until,
        )

    async def _run(self, steps: OffloadSteps[None], volume: LogVolume, partition: Partition) -> None:
        """Take the steps a millisecond's worth at a time, and steps that wait for the disk away from the loop."""
        now = self._replicas.stopwatch
        answer: Any = None
        began_at, taken = now(), 0
        while self._is_here(volume, partition):
            try:
                call = steps.send(answer)
            except StopIteration:
                return
            answer, taken = None, taken + 1
            if call is not None:
                answer = await self._env.offload(call)
            elif (took := now() - began_at) > TURN_S or taken >= TURN_STEPS:
                await asyncio.sleep(took)
            else:
                continue
            began_at, taken = now(), 0

    async def _fail(self, volume: LogVolume, partition: Partition, position: int, error: Exception) -> None:
        if isinstance(error, OSError):
            self._replicas.logs.report(volume, error)
        self._note_failure(partition, error)
        if isinstance(error, CorruptMessage):
            await self._report_damage(partition, position, error)

    async def _report_damage(self, partition: Partition, offset: int, error: CorruptMessage) -> None:
        """Have the log check what a cleaning found damaged, as a reader would, so that the replica is repaired."""
        log.warning(
            "compaction_found_damage", topic=partition.topic, partition=partition.index, reason=str(error)
        )
        opened = partition.log
        read = partial(opened.read, offset, 1, end_offset=opened.log_end_offset, cached=False)
        try:
            await self._env.offload(read)
        except KafkaError as refused:
            partition.read_error_for_client(refused)


def _is_behind(partition: Partition) -> bool:
    """Return whether a log has closed segments that no checkpoint covers."""
    return partition.log.recovery_point < partition.log.active_segment.base_offset
