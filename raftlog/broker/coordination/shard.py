"""One leadership of a partition of a coordinators' topic: read it back, coordinate its contents, stand down.

The subclass knows the meaning of the records. Ordering law: no request is handled before everything in the log at the
start of the leadership is committed and read. From then on the coordinator alone writes to the partition, and the high
watermark shows what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

from raftlog.base.env import Env
from raftlog.base.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.records.batch import Buffer, build_batch, new_record

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

READ_BYTES: Final = 64 * 1024
"""The maximum size read back before the loop gets its turn again."""

RETRY_S: Final = 1.0
"""Pause after a failed attempt to read the partition back."""

COLD_READS: Final = 5
"""Attempts to read what is not in memory."""

ALL_ACKS: Final = -1

JOURNAL_ERRORS: Final[Mapping[type[KafkaError], type[KafkaError]]] = {
    KafkaStorageError: NotCoordinator,
    NotEnoughReplicas: CoordinatorNotAvailable,
    NotLeaderOrFollower: NotCoordinator,
    UnknownTopicOrPartition: CoordinatorNotAvailable,
}
"""The client error for a failed append; subclasses add to it."""

log = get_logger(__name__)


class PartitionCoordinator(Protocol):
    """The calls of a shard to its coordinator."""

    def committed(self, end_offset: int) -> None: ...

    def on_unloaded(self, error: KafkaError) -> None: ...


class PartitionReplay(Protocol):
    """A reader that replays the records of a partition, batch by batch."""

    skipped: int

    def feed(self, batches: Buffer) -> int:
        """Replay whole batches. Returns the next offset to read."""


C = TypeVar("C", bound=PartitionCoordinator)
R = TypeVar("R", bound=PartitionReplay)


class CoordinatorShard(Generic[C, R]):
    """Begins when the metadata makes this broker the leader. `coordinator` is set once it accepts requests."""

    what: ClassVar[str]
    """The kind of coordinator, in the names of log events."""
    journal_errors: ClassVar[Mapping[type[KafkaError], type[KafkaError]]] = JOURNAL_ERRORS

    def __init__(
        self,
        index: int,
        leader_epoch: int,
        *,
        env: Env,
        find: Callable[[int], Partition],
    ) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.coordinator: C | None = None
        self.is_over = False
        self.has_failed = False
        """Whether the last attempt to read it back failed."""
        self._env = env
        self._find = find
        self._partition: Partition | None = None
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read the partition back in the background."""
        self._task = asyncio.get_running_loop().create_task(self._begin())

    async def wait_until_loaded(self, within_s: float) -> None:
        """Wait until the partition is read back, this shard is over, or the time has passed."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    def end(self, error: KafkaError) -> None:
        """Complete all pending requests with `error`. The shard is finished."""
        if self.is_over:
            return
        self.is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._partition is not None:
            self._partition.unpark(self)
        if self.coordinator is not None:
            self.coordinator.on_unloaded(error)

    def _new_replay(self) -> R:
        raise NotImplementedError

    async def _take_up(self, replay: R, end_offset: int) -> tuple[C, int]:
        """Return the coordinator of the records, all committed up to `end_offset`, and the number of its entries."""
        raise NotImplementedError

    async def _taken_up(self, coordinator: C) -> None:
        """Start to accept requests for the coordinator."""

    def wake(self, partition: Partition) -> None:
        """Check the state, since the high watermark moved or the replica's role changed."""
        self._moved.set()
        if not self._leads(partition):
            self.end(NotCoordinator())
        elif self.coordinator is not None:
            self.coordinator.committed(partition.high_watermark)

    def role_changed(self) -> None:
        """Check the replica again: it may have been made, or have become the leader, only now."""
        self._moved.set()

    def _leads(self, partition: Partition) -> bool:
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    async def _begin(self) -> None:
        """Read the partition back, and retry until it succeeds.

        No other broker can coordinate its contents while this broker leads. A failure may be temporary. Until then
        clients get NOT_COORDINATOR rather than COORDINATOR_LOAD_IN_PROGRESS, so they look up the coordinator again.
        """
        while True:
            try:
                await self._load()
                return
            except (KafkaError, OSError) as error:
                log.error(f"{self.what}_records_unreadable", partition=self.index, reason=str(error))
            except Exception:
                log.exception(f"{self.what}_records_unreadable", partition=self.index)
            self.has_failed = True
            self._forget()
            await asyncio.sleep(RETRY_S)

    def _forget(self) -> None:
        if self._partition is not None:
            self._partition.unpark(self)
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            coordinator.on_unloaded(NotCoordinator())

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        partition = self._partition = await self._lead()
        partition.park(self)
        replay = await self._read_back(partition)
        coordinator, count = await self._take_up(replay, partition.high_watermark)
        self.coordinator = coordinator
        await self._taken_up(coordinator)
        self.has_failed = False
        if count or replay.skipped:
            log.info(
                f"{self.what}s_loaded",
                partition=self.index,
                leader_epoch=self.leader_epoch,
                count=count,
                skipped=replay.skipped,
                duration_ms=round((loop.time() - began_at) * 1000),
            )

    async def _lead(self) -> Partition:
        """Wait for the replica to take the role in the metadata. The next metadata ends a wait in vain."""
        while True:
            try:
                partition = self._find(self.index)
            except KafkaError:
                partition = None
            if partition is not None and self._leads(partition):
                return partition
            self._moved.clear()
            await self._moved.wait()

    async def _read_back(self, partition: Partition) -> R:
        # A new leader's high watermark may lie below what its predecessor committed and acknowledged. Reading up to it
        # could miss that, and records above it may still vanish. So wait until everything here is committed.
        end_offset = partition.log_end_offset
        while partition.high_watermark < end_offset:
            self._moved.clear()
            await self._moved.wait()
        replay = self._new_replay()
        offset = partition.log_start_offset
        while offset < end_offset:
            records = await self._read(partition, offset)
            await self._env.turns.next()  # twenty partitions gained at once are not read in one turn
            offset = await self._feed(replay, records)
        return replay

    async def _feed(self, replay: R, records: bytes) -> int:
        """Let the reader replay whole batches. Returns the next offset to read."""
        return replay.feed(records)

    async def _read(self, partition: Partition, offset: int) -> bytes:
        return await read_committed(self._env, partition, offset)

    def _append(self, records: tuple[tuple[bytes, bytes | None], ...]) -> int:
        now_ms = self._env.ages.latest_ms()
        batch = memoryview(build_batch([new_record(key, value, timestamp=now_ms) for key, value in records]))
        return self._write(
            lambda partition: (
                partition.append_produced(
                    batch, acks=ALL_ACKS, now_ms=now_ms, max_timestamp=now_ms
                ).end_offset
            ),
            self.journal_errors,
        )

    def _write(
        self, write: Callable[[Partition], int], errors: Mapping[type[KafkaError], type[KafkaError]]
    ) -> int:
        partition = self._partition
        assert partition is not None
        # This broker may lead the partition again, in a newer epoch, before this shard learns that its own epoch is
        # over. This shard's state depends on a tail that may be gone by now. Another shard reads the partition back.
        if not self._leads(partition):
            raise NotCoordinator
        try:
            return write(partition)
        except KafkaError as error:
            raise errors.get(type(error), type(error))(error.message) from error


async def read_committed(
    env: Env, partition: Partition, offset: int, *, leader_only: bool = True, max_bytes: int = READ_BYTES
) -> bytes:
    """Return whole batches from `offset` on, up to the high watermark, and at least one. Raises KafkaError."""
    read = partition.read(offset, max_bytes, min_one=True, leader_only=leader_only)
    if read.error_code:
        raise from_code(read.error_code)
    records = read.records
    if records is None:
        records = await _read_cold(env, partition, offset, max_bytes)
    if not records:
        raise KafkaStorageError(f"no record to read at offset {offset}")
    return bytes(records)


async def _read_cold(env: Env, partition: Partition, offset: int, max_bytes: int) -> Buffer | None:
    """Read away from the loop, where only the log may be accessed."""
    end_offset = partition.high_watermark
    read = partial(partition.log.read, offset, max_bytes, end_offset=end_offset, cached=False)
    for _ in range(COLD_READS):
        try:
            return await env.offload(read)
        except FileNotFoundError:
            continue  # compaction replaced the segment meanwhile
        except OSError as error:
            raise partition.storage_failed(error) from error
        except CorruptMessage as error:
            raise partition.read_error_for_client(error) from error
    return None
