"""One leadership of one partition of `__consumer_offsets`: read it back, coordinate its groups, stand down.

Ordering law: nothing is answered before everything that the log held when the leadership began is committed and read.
From then on the coordinator alone writes to the partition, and the high watermark tells it what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.env import Env
from raftlog.base.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    InvalidCommitOffsetSize,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.coordinator.coordinator import GroupCoordinator, Room
from raftlog.coordinator.records import KeyValue
from raftlog.coordinator.replay import Replay
from raftlog.records.batch import Buffer, build_batch, new_record

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

READ_BYTES: Final = 64 * 1024
"""How much is read back before the loop gets its turn again."""

POLL_S: Final = 0.02
"""How often to look whether the replica has become the leader that the metadata says it is."""

COLD_READS: Final = 5
"""Attempts at what is not in memory."""

ALL_ACKS: Final = -1

JOURNAL_ERRORS: Final[dict[type[KafkaError], type[KafkaError]]] = {
    KafkaStorageError: NotCoordinator,
    MessageTooLarge: InvalidCommitOffsetSize,
    NotEnoughReplicas: CoordinatorNotAvailable,
    NotLeaderOrFollower: NotCoordinator,
    RecordListTooLarge: InvalidCommitOffsetSize,
    UnknownTopicOrPartition: CoordinatorNotAvailable,
}
"""What a failed append means to a group's member (Apache Kafka: GroupCoordinatorService)."""

log = get_logger(__name__)


class Tenure:
    """Begins when the metadata makes this broker the leader. `coordinator` is there once it may be asked."""

    def __init__(
        self,
        index: int,
        leader_epoch: int,
        *,
        env: Env,
        config: NodeConfig,
        find: Callable[[int], Partition],
        room: Room,
    ) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.coordinator: GroupCoordinator | None = None
        self.is_over = False
        self._env = env
        self._config = config
        self._find = find
        self._room = room
        self._partition: Partition | None = None
        self._deleted_topics: frozenset[str] = frozenset()
        """Topics that were deleted while the partition was read back."""
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read the partition back in the background."""
        self._task = asyncio.get_running_loop().create_task(self._begin())

    def end(self, error: KafkaError) -> None:
        """Answer all who wait with `error`; the tenure is over."""
        if self.is_over:
            return
        self.is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._partition is not None:
            self._partition.unpark(self)
        if self.coordinator is not None:
            self.coordinator.stand_down(error)

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: remove their offsets, at once or when they are read back."""
        if self.coordinator is None:
            self._deleted_topics |= topics
        elif not self.is_over:
            self.coordinator.forget_topics(topics)

    def wake(self, partition: Partition) -> None:
        """The high watermark moved, or the replica's role changed."""
        self._moved.set()
        if not self._leads(partition):
            self.end(NotCoordinator())
        elif self.coordinator is not None:
            self.coordinator.committed(partition.high_watermark)

    def _leads(self, partition: Partition) -> bool:
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            partition = self._partition = await self._lead()
            partition.park(self)
            replay = await self._read_back(partition)
        except (KafkaError, OSError) as error:
            log.error("group_records_unreadable", partition=self.index, reason=str(error))
            self.end(NotCoordinator())
            return
        except Exception:
            # A bug of ours: clients must not be told for ever that the groups are being loaded.
            log.exception("group_records_unreadable", partition=self.index)
            self.end(NotCoordinator())
            return
        groups = replay.groups()
        coordinator = GroupCoordinator(
            self._config,
            self._append,
            new_uuid=self._new_uuid,
            room=self._room,
        )
        coordinator.load(groups, now=loop.time())
        coordinator.committed(partition.high_watermark)
        self.coordinator = coordinator
        coordinator.forget_topics(self._deleted_topics)
        if groups or replay.skipped:
            log.info(
                "groups_loaded",
                partition=self.index,
                leader_epoch=self.leader_epoch,
                groups=len(groups),
                skipped=replay.skipped,
                duration_ms=round((loop.time() - began_at) * 1000),
            )

    def _new_uuid(self) -> UUID:
        return UUID(int=self._env.random.getrandbits(128), version=4)

    async def _lead(self) -> Partition:
        """Wait for the replica to take the role that the metadata gave it; the next metadata ends a vain wait."""
        while True:
            try:
                partition = self._find(self.index)
            except KafkaError:
                partition = None
            if partition is not None and self._leads(partition):
                return partition
            await asyncio.sleep(POLL_S)

    async def _read_back(self, partition: Partition) -> Replay:
        end_offset = partition.log_end_offset
        while partition.high_watermark < end_offset:
            self._moved.clear()
            await self._moved.wait()
        replay = Replay()
        offset = partition.log_start_offset
        while offset < end_offset:
            records = await self._read(partition, offset)
            async with self._env.slices:  # twenty partitions gained at once are not read in one turn
                offset = replay.feed(records)
                await asyncio.sleep(0)
        return replay

    async def _read(self, partition: Partition, offset: int) -> bytes:
        read = partition.read(offset, READ_BYTES, min_one=True)
        if read.error_code:
            raise from_code(read.error_code)
        records = read.records
        if records is None:
            records = await self._read_cold(partition, offset)
        if not records:
            raise KafkaStorageError(f"nothing to read at offset {offset}")
        return bytes(records)

    async def _read_cold(self, partition: Partition, offset: int) -> Buffer | None:
        """Away from the loop, where only the log may be asked."""
        end_offset = partition.high_watermark
        read = partial(partition.log.read, offset, READ_BYTES, end_offset=end_offset, cached=False)
        for _ in range(COLD_READS):
            try:
                return await self._env.offload(read)
            except FileNotFoundError:
                continue  # compaction put another segment in its place meanwhile
            except OSError as error:
                raise partition.storage_failed(error) from error
            except CorruptMessage as error:
                raise partition.refusal(error) from error
        return None

    def _append(self, records: tuple[KeyValue, ...]) -> int:
        partition = self._partition
        assert partition is not None
        if not self._leads(partition):
            raise NotCoordinator
        now_ms = self._env.wall_clock_ms()
        batch = build_batch([new_record(key, value, timestamp=now_ms) for key, value in records])
        try:
            appended = partition.append_produced(
                memoryview(batch), acks=ALL_ACKS, now_ms=now_ms, has_keys=True
            )
            return appended.end_offset
        except KafkaError as error:
            raise JOURNAL_ERRORS.get(type(error), type(error))(error.message) from error
