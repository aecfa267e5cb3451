"""One leadership of one partition of `__consumer_offsets`: the groups in it, from log to coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

import msgspec

from raftlog.base.env import Env
from raftlog.base.errors import (
    InvalidCommitOffsetSize,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    RecordListTooLarge,
)
from raftlog.base.turns import PARTS_AT_ONCE, in_slices
from raftlog.broker.coordination.shard import JOURNAL_ERRORS, CoordinatorShard
from raftlog.broker.long_work.turns import decoded
from raftlog.coordinator.group import DeletedTopics
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.coordinator.group_requests import WriteTxnMarker
from raftlog.coordinator.partition_writer import Append
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.transactional_offsets import TransactionalWriter
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.replica_host import TxnMarker

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.verification import Verification


class GroupCoordinatorShard(CoordinatorShard[GroupCoordinator, GroupReplay]):
    """`new_coordinator` creates a coordinator over a journal.

    `is_gone` returns whether a topic of that name and id was deleted.
    """

    what: ClassVar = "group"
    journal_errors: ClassVar = {
        **JOURNAL_ERRORS,
        MessageTooLarge: InvalidCommitOffsetSize,
        RecordListTooLarge: InvalidCommitOffsetSize,
    }
    """Apache Kafka: GroupCoordinatorService."""

    def __init__(
        self,
        index: int,
        leader_epoch: int,
        *,
        env: Env,
        find: Callable[[int], Partition],
        new_coordinator: Callable[[Append, TransactionalWriter], GroupCoordinator],
        is_gone: Callable[[str, UUID], bool],
    ) -> None:
        super().__init__(index, leader_epoch, env=env, find=find)
        self._new_coordinator = new_coordinator
        self._is_gone = is_gone
        self.loaded_at_ms = -1
        """When the groups were read back, by the wall clock."""
        self._deleted: list[DeletedTopics] = []
        """Topics that were deleted while the partition was read back."""

    def on_topics_deleted(self, topics: DeletedTopics) -> None:
        """Remove the offsets of deleted topics, at once or when they are read back."""
        if self.coordinator is None:
            self._deleted.append(topics)
        elif not self.is_over:
            self.coordinator.on_topics_deleted(topics)

    def begin_verification(self, producer_id: int, epoch: int) -> Verification | None:
        """Return the verification needed before offsets are committed in a transaction, or None."""
        assert self._partition is not None, "whoever has a coordinator has its partition"
        try:
            return self._partition.begin_verification(producer_id, epoch)
        except NotLeaderOrFollower as error:
            raise NotCoordinator from error

    # The coordinator's journal.

    def append_transactional(
        self, records: tuple[KeyValue, ...], producer_id: int, producer_epoch: int
    ) -> int:
        """Append in a producer's transaction. Raises InvalidTxnState unless the transaction was verified."""
        now_ms = self._env.ages.latest_ms()
        batch = build_batch(
            [new_record(key, value, timestamp=now_ms) for key, value in records],
            producer=ProducerIdAndSequence(producer_id, producer_epoch),
            attributes=TRANSACTIONAL_BIT,
        )
        return self._write(
            lambda partition: partition.append_coordinator_batch(batch, now_ms=now_ms).end_offset,
            self.journal_errors,
        )

    def append_end_marker(self, end: WriteTxnMarker) -> int:
        """Append a transaction's marker, unless it is there already."""
        marker = TxnMarker(*msgspec.structs.astuple(end))
        now_ms = self._env.ages.latest_ms()
        return self._write(lambda partition: partition.append_marker(marker, now_ms=now_ms), {})

    def _new_replay(self) -> GroupReplay:
        return GroupReplay(self._is_gone)

    async def _feed(self, replay: GroupReplay, records: bytes) -> int:
        await decoded(self._env, replay.feed_stepwise(records))  # a commit may have very many offsets
        return replay.next_offset

    async def _take_up(self, replay: GroupReplay, end_offset: int) -> tuple[GroupCoordinator, int]:
        coordinator, now = self._new_coordinator(self._append, self), asyncio.get_running_loop().time
        groups = replay.groups()
        coordinator.load([], now=now())  # expiration begins, even without a group
        portions = iter(lambda: list(islice(groups, PARTS_AT_ONCE)), [])
        async for portion in in_slices(self._env, portions, 1):  # many partitions may be gained at once
            coordinator.load(portion, now=now())
        coordinator.committed(end_offset)
        coordinator.delete_topic_offsets(replay.deleted_topics)
        return coordinator, len(coordinator)

    async def _taken_up(self, coordinator: GroupCoordinator) -> None:
        self.loaded_at_ms = self._env.ages.latest_ms()
        for topics in self._deleted:
            coordinator.on_topics_deleted(topics)
