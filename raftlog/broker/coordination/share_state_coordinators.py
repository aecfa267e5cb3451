"""This broker's share coordinators: one for each partition of `__share_group_state` that it leads (KIP-932).

The handlers of requests between brokers build on it. It deletes the states of deleted topics by itself, since it
follows the metadata. At an interval it prunes the logs, since records before the oldest snapshot do not count. A state
that is not written for an interval gets a new snapshot, since an old one keeps later records from being deleted.

Ordering law: a state begins only if this broker's metadata has its topic. A later coordinator has all metadata that its
predecessor had. So a topic that its metadata lacks was deleted, and is no topic of the future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import InvalidGroupId, KafkaError, PolicyViolation, UnknownTopicOrPartition
from raftlog.base.log import LimitedLog, get_logger
from raftlog.base.machine import ignore_reply
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from raftlog.broker.coordination.shards import CoordinatorShards
from raftlog.broker.local_broker import LocalBroker
from raftlog.coordinator.groups import check_group_id
from raftlog.coordinator.share_state.share_state_requests import DeleteState
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from raftlog.base.machine import Answer
    from raftlog.broker.coordination.group_share_states import Outcomes, StateQuestion
    from raftlog.broker.coordination.share_state_shard import ShareStateShard
    from raftlog.coordinator.share_state.share_state import SharePartitionKey, ShareState
    from raftlog.coordinator.share_state.share_state_coordinator import ShareStateCoordinator
    from raftlog.coordinator.share_state.share_state_requests import InitializeState, ReadState, WriteState

log = get_logger("share_states")

TICK_S: Final = 1.0
"""The interval of checks for deleted topics and for logs to prune, in seconds."""

STATES_PER_TICK: Final = 200
"""Snapshots of a broker, and deletions, that are written before the loop runs other tasks."""


class ShareStateCoordinators:
    """All methods but the first two are requests of brokers; failures are KafkaErrors."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._shards: CoordinatorShards[ShareStateShard] = CoordinatorShards(
            broker, SHARE_GROUP_STATE_TOPIC, self._new_shard
        )
        self._limited = LimitedLog(log, lambda: asyncio.get_running_loop().time())
        self._timer: asyncio.TimerHandle | None = None
        self._prunes_at = 0.0
        self._prune_s = broker.config.share_coordinator_state_topic_prune_interval_ms / 1000

    # -- the metadata and time -----------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Begin to coordinate partitions that this broker now leads, and stop for partitions that it no longer leads.

        Called after the replicas have applied the image.
        """
        self._shards.on_metadata(old, new)
        if len(self._shards) and self._timer is None:
            self._prunes_at = asyncio.get_running_loop().time() + self._prune_s
            self._schedule_tick()

    async def close(self) -> None:
        """Complete all pending requests with NOT_COORDINATOR and stop."""
        if self._timer is not None:
            self._timer.cancel()
        self._shards.close()

    def __len__(self) -> int:
        """Return the number of states that this broker coordinates."""
        return sum(map(len, self._active()))

    def keys(self) -> list[SharePartitionKey]:
        """Return the share partitions that this broker coordinates."""
        return [key for each in self._active() for key in each.states()]

    def last_state(self, key: SharePartitionKey) -> ShareState | None:
        """Return a state with its uncommitted changes; None if this broker does not coordinate it."""
        try:
            coordinator = self._shards.of(str(key)).coordinator
        except KafkaError:
            return None
        return None if coordinator is None else coordinator.last_state(key)

    def committed_states(self) -> Iterator[tuple[int, SharePartitionKey, ShareState]]:
        """Yield states that no change is under way of, each with the leader epoch of its coordinator's partition."""
        for shard in self._shards.all():
            if shard.coordinator is not None and not shard.is_over:
                for key, state in shard.coordinator.committed_states():
                    yield shard.leader_epoch, key, state

    def _new_shard(self, index: int, leader_epoch: int) -> ShareStateShard:
        from raftlog.broker.coordination.share_state_shard import ShareStateShard  # most nodes need none

        return ShareStateShard(index, leader_epoch, broker=self._broker, find=self._shards.replica)

    def _active(self) -> list[ShareStateCoordinator]:
        return [each.coordinator for each in self._shards.all() if each.coordinator and not each.is_over]

    def _schedule_tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        at = self._shards.moment()
        self._forget_deleted_topics(at.now)
        if at.now >= self._prunes_at:
            left = STATES_PER_TICK
            cold_before_ms = (
                at.now_ms - self._broker.config.share_coordinator_cold_partition_snapshot_interval_ms
            )
            for coordinator in self._active():
                left -= coordinator.snapshot_oldest(before_ms=cold_before_ms, at=at, most=left)
            for shard in self._shards.all():
                shard.prune()
            if left > 0:
                self._prunes_at = at.now + self._prune_s
        self._schedule_tick()

    def _forget_deleted_topics(self, now: float) -> None:
        """Delete some states of topics that the metadata no longer has, in the partition not checked for longest."""
        topics = self._broker.image().topic_names
        due = [
            each
            for each in self._shards.all()
            if each.coordinator is not None and each.topics_checked is not topics
        ]
        if not due:
            return
        shard = min(due, key=lambda each: each.checked_at)
        assert shard.coordinator is not None
        gone = [key for key in shard.coordinator.states() if key.topic_id not in topics]
        for key in gone[:STATES_PER_TICK]:
            shard.coordinator.delete(DeleteState(key), ignore_reply)
        shard.checked_at = now
        if not gone:
            shard.topics_checked = topics

    # -- where a state is ----------------------------------------------------------------------------------

    async def find(self, key: SharePartitionKey) -> int:
        """Return the broker that coordinates a share partition. Raises CoordinatorNotAvailable, InvalidGroupId."""
        _check(key)
        return await self._shards.find(str(key))

    async def ask(self, question: StateQuestion, keys: Iterable[SharePartitionKey]) -> Outcomes:
        """Ask the share coordinators of a group's partitions. Raises CoordinatorNotAvailable without any."""
        from raftlog.broker.coordination.group_share_states import ask_coordinators

        topic = await self._shards.topic()
        return await ask_coordinators(
            self._broker, question, keys, lambda key: self._shards.leader_of(str(key), topic)
        )

    # -- requests of brokers -------------------------------------------------------------------------------

    def initialize(self, request: InitializeState) -> asyncio.Future[None]:
        """Begin a state; done when it is committed, or with FencedStateEpoch.

        Raises at once UnknownTopicOrPartition, PolicyViolation, NotCoordinator and CoordinatorLoadInProgress.
        """
        image = self._broker.image()
        name = image.topic_names.get(request.key.topic_id)
        if name is None or image.partition(name, request.key.partition) is None:
            raise UnknownTopicOrPartition
        at = self._shards.moment()

        def begin(coordinator: ShareStateCoordinator, answer: Answer) -> None:
            limit = self._broker.config.raftlog_share_max_states
            if request.key not in coordinator and len(self) >= limit:
                self._limited.warning("share_states_exhausted", limit=limit, group_id=request.key.group_id)
                raise PolicyViolation(
                    f"raftlog.share.max.states is {limit}, and this broker coordinates as many"
                )
            coordinator.initialize(request, answer, at=at)

        return self._ask(request.key, begin)

    def read(self, request: ReadState) -> asyncio.Future[ShareState]:
        """Return a state, and fence leaders of lower epochs; or fail with InvalidRequest or FencedLeaderEpoch.

        Raises at once NotCoordinator and CoordinatorLoadInProgress, as the others do.
        """
        return self._ask(request.key, lambda it, answer: it.read(request, answer))

    def write(self, request: WriteState) -> asyncio.Future[None]:
        """Change a state, or fail with InvalidRequest, FencedLeaderEpoch or FencedStateEpoch."""
        at = self._shards.moment()
        return self._ask(request.key, lambda it, answer: it.write(request, answer, at=at))

    def delete(self, request: DeleteState) -> asyncio.Future[None]:
        """Remove a state; without one there is nothing to do."""
        return self._ask(request.key, lambda it, answer: it.delete(request, answer))

    def summary(self, key: SharePartitionKey) -> asyncio.Future[ShareState]:
        """Return a state, which need not exist, without fencing a leader."""
        return self._ask(key, lambda it, answer: it.summary(key, answer))

    def _ask(
        self, key: SharePartitionKey, call: Callable[[ShareStateCoordinator, Answer], None]
    ) -> asyncio.Future[Any]:
        """Pass a request to a coordinator here. Raises NotCoordinator, CoordinatorLoadInProgress, InvalidGroupId."""
        _check(key)
        coordinator = self._shards.of(str(key)).coordinator
        assert coordinator is not None
        within_s = self._broker.config.share_coordinator_write_timeout_ms / 1000
        return self._shards.ask(partial(call, coordinator), within_s=within_s)


def _check(key: SharePartitionKey) -> None:
    if not key.group_id:
        raise InvalidGroupId("a group id must not be empty")
    check_group_id(key.group_id)
