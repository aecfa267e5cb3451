"""This broker's group coordinators: one for each partition of `__consumer_offsets` that it leads.

Follows the metadata (a leadership gained is read back, one lost is stood down), finds out which broker coordinates a
group, and has the offsets topic made when the first group asks for it. Handlers stand on this; it knows no wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    RequestTimedOut,
)
from raftlog.base.log import get_logger
from raftlog.base.machine import Answer
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, NO_BROKER
from raftlog.broker.auto_create import create_missing
from raftlog.broker.context import BrokerContext
from raftlog.broker.tenure import Tenure
from raftlog.coordinator.coordinator import SWEPT_AT_ONCE, GroupCoordinator
from raftlog.coordinator.group import Group
from raftlog.coordinator.placement import partition_for
from raftlog.coordinator.requests import (
    CommitOffsets,
    DeleteOffsets,
    Joined,
    JoinGroup,
    MemberIdRequired,
    MemberRef,
    Synced,
    SyncGroup,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState

TICK_S: Final = 0.5
"""How often sessions are looked at."""

STALL_S: Final = 1.0
"""A tick later than this means that the broker itself stood still."""

log = get_logger(__name__)


class Coordinators:
    """Every method but the first two is a request of a client; failures are KafkaErrors, mostly retriable."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._broker_id = broker.config.node_id
        self._tenures: dict[int, Tenure] = {}
        self._creating: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_at = 0.0
        self._timer_at = 0.0

    # -- the metadata --------------------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take up what this broker now leads, drop what it no longer does. Called after the replicas were told."""
        topic = new.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is not old.topics.get(CONSUMER_OFFSETS_TOPIC):
            self._follow(topic.partitions if topic else ())
        if old.topics is not new.topics:
            self._forget_deleted_topics(old, new)

    def _follow(self, partitions: tuple[PartitionState, ...]) -> None:
        led = {
            index: state.leader_epoch
            for index, state in enumerate(partitions)
            if state.leader == self._broker_id
        }
        for index, tenure in tuple(self._tenures.items()):
            if led.get(index) != tenure.leader_epoch:
                self._tenures.pop(index).end(NotCoordinator())
        for index, leader_epoch in led.items():
            if index not in self._tenures:
                self._tenures[index] = tenure = self._new_tenure(index, leader_epoch)
                tenure.start()
        if self._tenures and self._timer is None:
            self._schedule_tick()

    def _new_tenure(self, index: int, leader_epoch: int) -> Tenure:
        replicas = self._broker.replicas
        return Tenure(
            index,
            leader_epoch,
            env=self._broker.env,
            config=self._broker.config,
            find=lambda index: replicas.get(CONSUMER_OFFSETS_TOPIC, index),
            may_add=self._may_add,
        )

    def _may_add(self) -> bool:
        """Whether there is room for one more group."""
        return sum(map(len, self._active())) < self._broker.config.raftlog_group_max_groups

    def _forget_deleted_topics(self, old: MetadataImage, new: MetadataImage) -> None:
        gone = frozenset(
            name
            for name, topic in old.topics.items()
            if (now := new.topics.get(name)) is None or now.topic_id != topic.topic_id
        )
        if gone:
            for tenure in self._tenures.values():
                tenure.forget_topics(gone)

    def _active(self) -> list[GroupCoordinator]:
        return [each.coordinator for each in self._tenures.values() if each.coordinator and not each.is_over]

    async def close(self) -> None:
        """Answer everybody with NOT_COORDINATOR and stop."""
        if self._timer is not None:
            self._timer.cancel()
        if self._creating is not None:
            self._creating.cancel()
        for tenure in self._tenures.values():
            tenure.end(NotCoordinator())
        self._tenures.clear()

    # -- time ----------------------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._tick_due_at = loop.time() + TICK_S
        expiries = [at for each in self._active() if (at := each.next_expiry_at()) is not None]
        self._wake_at(min([self._tick_due_at, *expiries]))

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._tick)

    def _hasten(self, coordinator: GroupCoordinator) -> None:
        """Wake up for a deadline that a request has just set, if that is before the next tick."""
        at = coordinator.next_expiry_at()
        if at is not None and at < self._timer_at and self._timer is not None:
            self._wake_at(at)

    def _tick(self) -> None:
        now, now_ms = self._now()
        late = now - self._tick_due_at
        sweeps = SWEPT_AT_ONCE
        for coordinator in self._active():
            if late > STALL_S:
                coordinator.stalled(late)
            coordinator.tick(now=now, now_ms=now_ms)
            sweeps -= coordinator.sweep(now=now, now_ms=now_ms, most=sweeps)
        self._schedule_tick()

    def _now(self) -> tuple[float, int]:
        return asyncio.get_running_loop().time(), self._broker.env.wall_clock_ms()

    # -- where a group is ----------------------------------------------------------------------------------

    async def find(self, group_id: str) -> int:
        """Return the broker that coordinates a group. Raises CoordinatorNotAvailable, InvalidGroupId."""
        if not group_id:
            raise InvalidGroupId("a group id must not be empty")
        topic = await self._offsets_topic()
        leader = topic.partitions[partition_for(group_id, len(topic.partitions))].leader
        if leader == NO_BROKER:
            raise CoordinatorNotAvailable
        return leader

    async def _offsets_topic(self) -> TopicState:
        """Return the offsets topic; the first who asks has it made."""
        topic = self._broker.image().topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            if self._creating is None or self._creating.done():
                self._creating = asyncio.get_running_loop().create_task(self._create())
            await asyncio.shield(self._creating)
            topic = self._broker.image().topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"{CONSUMER_OFFSETS_TOPIC} is being made")
        return topic

    async def _create(self) -> None:
        codes = await create_missing(self._broker, (CONSUMER_OFFSETS_TOPIC,))
        code = codes[CONSUMER_OFFSETS_TOPIC]
        if code != NONE:
            log.warning("offsets_topic_not_created", error_code=code)
            raise CoordinatorNotAvailable

    def _coordinator(self, group_id: str) -> GroupCoordinator:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        topic = self._broker.image().topics.get(CONSUMER_OFFSETS_TOPIC)
        tenure = self._tenures.get(partition_for(group_id, len(topic.partitions))) if topic else None
        if tenure is None or tenure.is_over:
            raise NotCoordinator
        if tenure.coordinator is None:
            raise CoordinatorLoadInProgress
        return tenure.coordinator

    # -- requests ------------------------------------------------------------------------------------------

    def check(self, group_id: str) -> None:
        """Raises NotCoordinator or CoordinatorLoadInProgress unless this broker answers for a group."""
        self._coordinator(group_id)

    def _ask(self, call: Callable[[Answer], None], *, bounded: bool = True) -> asyncio.Future[Any]:
        """Return what the coordinator will answer; if `bounded`, CoordinatorNotAvailable if that takes too long.

        Who waits for other members is not bounded: the rebalance has its own clock.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def answer(reply: object) -> None:
            if future.done():
                return
            if isinstance(reply, RequestTimedOut):  # fatal to members; Apache Kafka tells them this as well
                future.set_exception(CoordinatorNotAvailable(reply.message))
            elif isinstance(reply, KafkaError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        call(answer)
        if bounded and not future.done():
            late = CoordinatorNotAvailable("not committed in time")
            timer = loop.call_later(self._broker.config.offsets_commit_timeout_ms / 1000, answer, late)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    async def join(self, request: JoinGroup) -> Joined | MemberIdRequired:
        coordinator = self._member_coordinator(request.group_id)
        now, now_ms = self._now()
        waiting = self._ask(
            lambda answer: coordinator.join(request, answer, now=now, now_ms=now_ms), bounded=False
        )
        self._hasten(coordinator)
        reply: Joined | MemberIdRequired = await waiting
        return reply

    async def sync(self, request: SyncGroup) -> Synced:
        coordinator = self._member_coordinator(request.group_id)
        now, now_ms = self._now()
        reply: Synced = await self._ask(
            lambda answer: coordinator.sync(request, answer, now=now, now_ms=now_ms), bounded=False
        )
        return reply

    async def heartbeat(self, group_id: str, member: MemberRef, generation: int) -> None:
        coordinator = self._member_coordinator(group_id)
        now, _ = self._now()
        await self._ask(
            lambda answer: coordinator.heartbeat(group_id, member, answer, generation=generation, now=now)
        )

    async def leave(self, group_id: str, member: MemberRef) -> None:
        coordinator = self._member_coordinator(group_id)
        now, now_ms = self._now()
        waiting = self._ask(
            lambda answer: coordinator.leave(group_id, member, answer, now=now, now_ms=now_ms)
        )
        self._hasten(coordinator)
        await waiting

    async def delete(self, group_id: str) -> None:
        coordinator = self._member_coordinator(group_id)
        await self._ask(lambda answer: coordinator.delete(group_id, answer))

    async def delete_offsets(self, request: DeleteOffsets) -> tuple[int, ...]:
        """Return one error code per place."""
        coordinator = self._member_coordinator(request.group_id)
        codes: tuple[int, ...] = await self._ask(lambda answer: coordinator.delete_offsets(request, answer))
        return codes

    async def commit(self, request: CommitOffsets) -> tuple[int, ...]:
        """Return one error code per commit."""
        coordinator = self._coordinator(request.group_id)
        now, _ = self._now()
        codes: tuple[int, ...] = await self._ask(
            lambda answer: coordinator.commit_offsets(request, answer, now=now)
        )
        return codes

    async def read(self, group_id: str) -> Group:
        """Return a group as committed."""
        coordinator = self._coordinator(group_id)
        group: Group = await self._ask(lambda answer: coordinator.read(group_id, answer))
        return group

    async def read_all(self) -> list[Group]:
        """Return all groups of this broker. Raises CoordinatorLoadInProgress while some are still read back."""
        if any(each.coordinator is None and not each.is_over for each in self._tenures.values()):
            raise CoordinatorLoadInProgress
        groups: list[Group] = []
        for coordinator in self._active():
            groups += await self._ask(coordinator.read_all)
        return groups

    def _member_coordinator(self, group_id: str) -> GroupCoordinator:
        if not group_id:
            raise InvalidGroupId("a group id must not be empty")
        return self._coordinator(group_id)
