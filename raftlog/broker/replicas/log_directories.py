"""The log directories of one broker: where each partition's log lies, the flushers, and failures of directories.

It does not know about roles. A failed directory stays failed: no more writes until the process restarts. A full disk
(ENOSPC, EDQUOT) is no failure: the write is refused, and works again once there is room. As long as a directory is
full, the broker's leaderships go to others. It counts as full until it has had room for a while. Each time it fills up
again, the wait is longer, so that leaderships do not go to and fro. A lack of descriptors or memory (EMFILE, ENFILE,
ENOMEM) is no failure either, since the disk may be healthy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from raftlog.base.disk import DISK_FULL, OUT_OF_FILES
from raftlog.base.env import Env
from raftlog.base.errors import InconsistentTopicId, KafkaStorageError
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.types import NO_EPOCH, TopicPartition
from raftlog.broker.replicas.flusher import ADVICE, Flusher
from raftlog.metadata.broker_requests import PreviousOpening
from raftlog.metadata.image import new_incarnation
from raftlog.storage.files import PooledDisk
from raftlog.storage.log import Log
from raftlog.storage.log_directory import ForeignLogDirectory, LogDirectory, Offsets

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig, TopicConfig

TROUBLED_S = 60.0
"""Seconds that a directory counts as troubled after a lack of descriptors."""
RECOVERY_PAUSE_S = 1.0
RECOVERY_RETRIES = 30
"""The pause and the number of retries for a log that cannot be opened for lack of descriptors."""
MAX_CONCURRENT_RECOVERIES = 8
"""Logs that are being recovered at a time."""
ROOM_SHARE, ROOM_BYTES = 0.05, 1 << 30
"""A directory that was full has room again with this share of its disk free, or this many bytes."""
ROOM_AGAIN_AFTER_S, ROOM_AGAIN_AFTER_MOST_S = 10.0, 3600.0
"""Seconds from the last refused write to the next check: at first, and after it has filled up repeatedly."""
MAX_CONCURRENT_CLOSES = 4
"""Threads that share a volume's logs at a clean stop."""

log = get_logger(__name__)


class RecoveredLog(NamedTuple):
    """A log found on disk, and its offsets in the checkpoints."""

    name: TopicPartition
    log: Log
    high_watermark: int


class NewLog(NamedTuple):
    """A log to create."""

    name: TopicPartition
    topic_id: UUID
    config: TopicConfig
    volume: LogVolume


class LogVolume:
    """One log directory in use."""

    def __init__(self, directory: LogDirectory, flusher: Flusher) -> None:
        self.directory = directory
        self.flusher = flusher
        self.logs: dict[TopicPartition, Log] = {}
        self.error: OSError | None = None
        self.trouble = ""
        """The last error for lack of descriptors, as a message."""
        self._troubled_at: float | None = None
        self.generation = 0
        """Grows whenever entries are removed from checkpoints: checkpoints prepared before are out of date."""
        self._checkpoints = Lock()
        self.full = False
        """A write was refused for lack of room, and there was no room for long enough since."""
        self._full_again = 0
        self._refused_at = float("-inf")

    def note_full(self, now: float) -> bool:
        """Note a write that found no room. Returns whether that is news."""
        if not self.full:
            calm = now - self._refused_at > ROOM_AGAIN_AFTER_MOST_S
            self._full_again = 0 if calm else self._full_again + 1
        was, self.full, self._refused_at = self.full, True, now
        return not was

    def has_room(self, free: tuple[int, int], now: float) -> bool:
        """Note the total and usable bytes of the disk. Returns whether a full directory has room again by now."""
        total, usable = free
        wait_s = min(ROOM_AGAIN_AFTER_S * 2**self._full_again, ROOM_AGAIN_AFTER_MOST_S)
        enough = usable >= min(ROOM_BYTES, ROOM_SHARE * total)
        if not self.full or not enough or now - self._refused_at < wait_s:
            return False
        self.full = False
        return True

    def checkpoint(self, write: Callable[[], None], generation: int) -> bool:
        """Write one of the directory's checkpoints, unless it was prepared in an older generation.

        Away from the loop.

        A prepared checkpoint may name a log that was deleted since. Its offset must not apply to a new log of that
        name.
        """
        with self._checkpoints:
            if generation == self.generation:
                write()
            return generation == self.generation

    def mark_clean(self, high_watermarks: Offsets, broker_epoch: int) -> None:
        """Write all checkpoints of closed logs, and that they are whole. Away from the loop. OSError propagates."""
        directory, logs = self.directory, self.logs.items()
        with self._checkpoints:
            self.generation += 1  # a checkpoint that is under way may not replace these
            directory.write_recovery_points(offsets(logs, lambda each: each.recovery_point))
            directory.write_log_starts(offsets(logs, lambda each: each.log_start_offset))
            directory.write_high_watermarks({name: high_watermarks[name] for name in self.logs})
            directory.write_cleaner_offsets(offsets(logs, lambda each: each.cleaned_until))
            directory.write_clean_shutdown_file(broker_epoch)

    def remove_checkpoints(self, names: Iterable[TopicPartition]) -> None:
        """Remove these names from every checkpoint: stale entries must not apply to new logs of the same names."""
        with self._checkpoints:
            self.generation += 1
            self.directory.remove_checkpoints(names)

    @property
    def path(self) -> str:
        return self.directory.path

    def note_trouble(self, error: OSError, now: float) -> None:
        """Note an error for lack of descriptors."""
        self.trouble = error.strerror or str(error)
        self._troubled_at = now

    def end_trouble(self) -> None:
        """Note a successful write of a new file."""
        self._troubled_at = None

    def is_troubled(self, now: float) -> bool:
        """Return whether it had an error for lack of descriptors recently."""
        return self._troubled_at is not None and now - self._troubled_at < TROUBLED_S


class LogDirectories:
    """All logs of this broker. `failed` is called with each volume that goes offline."""

    def __init__(self, env: Env, config: NodeConfig, failed: Callable[[LogVolume], None]) -> None:
        self._env = env
        self._config = config
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._limited = LimitedLog(log, self._loop.time)
        self.disk = PooledDisk(env.disk, limit=env.open_files)
        self.volumes: list[LogVolume] = []
        self.online: list[LogVolume] = []
        """The volumes that have not failed."""
        self.failed_directory_ids: tuple[UUID, ...] = ()
        self.incarnation_id = UUID(int=0)
        """The id of this process, as it registers. The log directories name it from `open_directories` on."""
        self.previous: tuple[PreviousOpening, ...] = ()
        """The earlier processes that each directory names, in the order of `directory_ids`."""
        self.cordoned: frozenset[str] = frozenset()
        """The paths of directories that get no new replicas (KIP-1066)."""
        self.on_full: Callable[[], None] = lambda: None
        """Called when a directory has become full."""

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Return the ids of all directories, including failed directories."""
        return tuple(volume.directory.directory_id for volume in self.volumes)

    def open_directories(self, cluster_id: str | None) -> None:
        """Open every log directory, once. Raises ForeignLogDirectory; OSError where one cannot be used."""
        if self.volumes:
            return
        for path in self._config.log_dirs:
            directory = LogDirectory.open(
                self._env.disk,
                path,
                node_id=self._config.node_id,
                cluster_id=cluster_id,
                new_directory_id=lambda: UUID(int=self._env.unguessable.getrandbits(128), version=4),
            )
            volume = LogVolume(directory, Flusher(self._env, self._loop))
            volume.flusher.failed = partial(self.fail, volume)
            self.volumes.append(volume)
            self.online.append(volume)
        self._check_directory_ids()
        self.previous = tuple(
            PreviousOpening(
                NO_EPOCH if each.clean_broker_epoch is None else each.clean_broker_epoch, each.incarnations
            )
            for each in (volume.directory for volume in self.volumes)
        )
        self._note_incarnation()

    def _check_directory_ids(self) -> None:
        paths = {volume.directory.directory_id: volume.path for volume in self.volumes}
        for volume in self.volumes:
            if paths[volume.directory.directory_id] != volume.path:
                other = paths[volume.directory.directory_id]
                raise ForeignLogDirectory(
                    f"{volume.path} and {other} have the same directory.id: one is a copy"
                )

    def _note_incarnation(self) -> None:
        """Name this process in every directory.

        If a directory has no room for that, the next start compares none of them.
        """
        bits = self._env.unguessable.getrandbits(128)
        self.incarnation_id = new_incarnation(bits, written=True)
        for volume in self.volumes:
            try:
                volume.directory.note_incarnation(self.incarnation_id)
            except OSError as error:
                self.report(volume, error)
                self.incarnation_id = new_incarnation(bits, written=False)

    async def confirm_incarnation(self) -> None:
        """Drop the names of earlier processes, once this process has registered. A disk may keep them if it refuses."""
        for volume in self.online:
            confirm = partial(volume.directory.confirm_incarnation, self.incarnation_id)
            try:
                await self._env.offload(confirm)
            except OSError as error:
                self.report(volume, error)

    async def recover(self, config_of: Callable[[TopicPartition], TopicConfig]) -> list[RecoveredLog]:
        """Open every log that has a folder, away from the loop. A disk error takes the log's volume offline.

        Folders of deleted partitions that the last run did not remove are removed afterwards. This happens one at a
        time, since recoveries and syncs need the threads.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT_RECOVERIES)

        async def open_one(volume: LogVolume, name: TopicPartition) -> RecoveredLog | None:
            async with slots:
                try:
                    opened = await self._open_patiently(volume, name, config_of(name))
                except OSError as error:
                    self.fail(volume, error)
                    return None
            volume.logs[name] = opened
            return RecoveredLog(name, opened, volume.directory.high_watermarks.get(name, 0))

        jobs = [open_one(volume, name) for volume in self.online for name in volume.directory.partitions()]
        left_over = [
            (volume, path) for volume in self.online for path in volume.directory.folders_of_deleted()
        ]
        found = [each for each in await asyncio.gather(*jobs) if each is not None]
        self._remove_next(left_over)
        log.info(
            "logs_recovered",
            logs=len(found),
            clean=not found or all(each.directory.was_clean_shutdown for each in self.volumes),
        )
        return found

    async def _open_patiently(self, volume: LogVolume, name: TopicPartition, config: TopicConfig) -> Log:
        """Open a log away from the loop. Wait for descriptors: a lack of them is not the disk's fault."""
        for _ in range(RECOVERY_RETRIES):
            try:
                return await self._env.offload(partial(self._open, volume, name, None, config))
            except OSError as error:
                if error.errno not in OUT_OF_FILES:
                    raise
                self.report(volume, error)
            await asyncio.sleep(RECOVERY_PAUSE_S)
        return await self._env.offload(partial(self._open, volume, name, None, config))

    def _open(
        self, volume: LogVolume, name: TopicPartition, topic_id: UUID | None, config: TopicConfig
    ) -> Log:
        directory = volume.directory
        opened = Log.open(
            self.disk,
            directory.partition_path(name),
            config=config,
            recovery_point=directory.recovery_points.get(name, 0),
            clean=directory.was_clean_shutdown,
            topic_id=topic_id,
            now_ms=max(self._env.wall_clock_ms(), self._env.ages.floor_ms),  # away from the loop
        )
        # what was truncated since that was written is not in the recovery point any more
        opened.cleaned_until = min(directory.cleaner_offsets.get(name, 0), opened.recovery_point)
        # If its checkpoint is wrong, the epochs count: no epoch is kept that ends before the log start. So records
        # that were deleted do not come back.
        start = directory.log_starts.get(name, 0)
        first, until = opened.segments[0].base_offset, opened.truncated_to
        if until is not None and until <= first:
            start = min(start, first)  # of the log that was there before this one began anew
        start = max(start, opened.epochs_begin)
        if opened.log_start_offset < start <= opened.log_end_offset:
            opened.advance_log_start(start)
        return opened

    def create(self, news: Sequence[NewLog]) -> list[Log | Exception]:
        """Create empty logs, or return why not. May wait for the disk, and run away from the loop."""
        try:
            for volume in dict.fromkeys(new.volume for new in news):
                volume.remove_checkpoints([new.name for new in news if new.volume is volume])
        except OSError as error:
            return [error for _ in news]
        return [self._try_to_create(new) for new in news]

    def _try_to_create(self, new: NewLog) -> Log | Exception:
        try:
            return self._open(new.volume, new.name, new.topic_id, new.config)
        except (OSError, InconsistentTopicId) as error:
            return error

    def roomiest(self, planned: Sequence[NewLog]) -> LogVolume:
        """Return the online volume with the fewest logs, counting `planned`.

        Volumes that are full or troubled are chosen last, and cordoned volumes only if all are. Raise KafkaStorageError
        if no volume is left.
        """
        volumes = self.online
        if not volumes:
            raise KafkaStorageError("no log directory is online")
        if len(volumes) == 1:
            return volumes[0]
        more, now = Counter(new.volume for new in planned), self._loop.time()
        return min(
            volumes,
            key=lambda each: (
                each.path in self.cordoned,
                each.full or each.is_troubled(now),
                len(each.logs) + more[each],
            ),
        )

    def add_created(self, new: NewLog, made: Log | Exception) -> Log:
        """Take a log into service that `create` made. KafkaStorageError if it did not, or its volume failed since."""
        if isinstance(made, OSError):
            self.report(new.volume, made)
            raise KafkaStorageError(str(made)) from made
        if isinstance(made, Exception):
            raise KafkaStorageError(f"the folder of {new.name} belongs to another topic of that name")
        if new.volume.error is not None:
            made.close(clean=False)
            raise KafkaStorageError(f"{new.volume.path} is offline: {new.volume.error}")
        new.volume.logs[new.name] = made
        new.volume.end_trouble()
        return made

    def volume_of(self, opened: Log) -> LogVolume:
        """Return the volume that holds a log."""
        folder = opened.directory.rpartition("/")[0]
        return next(volume for volume in self.volumes if volume.path == folder)

    def remove(self, name: TopicPartition, volume: LogVolume) -> None:
        """Take a log out of service; its files are removed away from the loop."""
        removed = volume.logs.pop(name, None)
        if removed is None or volume.error is not None:
            return
        try:
            removed.close(clean=False)
            path = volume.directory.rename_for_deletion(
                removed.directory, f"{self._env.unguessable.getrandbits(128):032x}"
            )
        except OSError as error:
            self.report(volume, error)
            return
        self._remove_folder(volume, path)

    def _remove_folder(self, volume: LogVolume, path: str) -> asyncio.Future[None]:
        removal = self._env.offload(partial(volume.directory.remove_folder, path))
        removal.add_done_callback(_note_removal)
        return removal

    def _remove_next(self, left_over: list[tuple[LogVolume, str]]) -> None:
        if left_over:
            self._remove_folder(*left_over.pop()).add_done_callback(lambda _: self._remove_next(left_over))

    def set_aside(self, name: TopicPartition, volume: LogVolume) -> str:
        """Take a log out of service and rename its folder to `<name>.<id>-stray`, as Kafka does; returns the folder.

        This is for logs that belong to no known topic. They are left for an operator to inspect.
        """
        removed = volume.logs.pop(name)
        target = f"{removed.directory}.{self._env.unguessable.getrandbits(128):032x}-stray"
        if volume.error is None:
            try:
                removed.close(clean=False)
                self._env.disk.rename(removed.directory, target)
            except OSError as error:
                self.report(volume, error)
        return target

    def report(self, volume: LogVolume, error: OSError) -> None:
        """Handle an error of a volume: a temporary error is only logged, any other takes the volume offline."""
        now = self._loop.time()
        if error.errno in DISK_FULL:
            if volume.note_full(now):
                self.on_full()
                log.warning(
                    "disk_full",
                    directory=volume.path,
                    reason=str(error),
                    advice="leaderships go to others until it has room",
                )
        elif error.errno in OUT_OF_FILES:
            volume.note_trouble(error, now)
            facts = {"directory": volume.path, "reason": str(error), "advice": ADVICE}
            self._limited.warning("too_many_open_files", per=volume.path, **facts)
        else:
            self.fail(volume, error)

    def fail(self, volume: LogVolume, error: OSError) -> None:
        """Take a volume offline. A second call has no effect."""
        if volume.error is not None:
            return
        volume.error = error
        self.online = [each for each in self.volumes if each.error is None]
        volume.flusher.stop()
        self.failed_directory_ids = (*self.failed_directory_ids, volume.directory.directory_id)
        self._failed(volume)
        log.error("log_directory_failed", directory=volume.path, reason=str(error))

    @property
    def lacks_room(self) -> bool:
        """Return whether a directory is full, so that this broker should not lead."""
        for volume in self.online:  # noqa: SIM110 - each heartbeat asks, and a generator costs a call more
            if volume.full:
                return True
        return False

    @property
    def all_cordoned(self) -> bool:
        """Return whether every directory is cordoned, so that this broker gets no new replicas."""
        return bool(self.cordoned) and all(each.path in self.cordoned for each in self.online)

    async def check_free_space(self) -> None:
        """Check whether directories that were full have room again."""
        for volume in self.online:
            if not volume.full:
                continue
            try:
                free = await self._env.offload(partial(self._env.disk.free_bytes, volume.path))
            except OSError as error:
                self.report(volume, error)
                continue
            if volume.has_room(free, self._loop.time()):
                log.info("disk_has_room", directory=volume.path)

    def flush(self, then: Callable[[], None]) -> bool:
        """Call `then` once all that is dirty now is durable; return False if no log is dirty."""
        volumes = self.online
        if len(volumes) == 1:
            return volumes[0].flusher.flush_now(then)
        left = 0

        def flushed() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        left = sum([volume.flusher.flush_now(flushed) for volume in volumes])
        return left > 0

    async def close(self, *, high_watermarks: dict[TopicPartition, int], broker_epoch: int) -> None:
        """Make everything durable, and mark the directories clean."""
        for volume in self.online:
            await volume.flusher.drain()
            try:
                await self._close_logs(tuple(volume.logs.values()))
                await self._env.offload(partial(volume.mark_clean, high_watermarks, broker_epoch))
            except OSError as error:
                log.error("log_directory_failed", directory=volume.path, reason=str(error))

    async def _close_logs(self, logs: tuple[Log, ...]) -> None:
        shares = [logs[start::MAX_CONCURRENT_CLOSES] for start in range(MAX_CONCURRENT_CLOSES)]
        await asyncio.gather(*(self._env.offload(partial(_close, share)) for share in shares))


def _close(logs: Iterable[Log]) -> None:
    for each in logs:
        each.close(clean=True)


def offsets(
    logs: Iterable[tuple[TopicPartition, Log]], of: Callable[[Log], int]
) -> dict[TopicPartition, int]:
    """Return one offset per log, without zeros that carry no information."""
    return {name: offset for name, each in logs if (offset := of(each))}


def _note_removal(future: asyncio.Future[None]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.warning("deleted_log_not_removed", reason=str(error))
