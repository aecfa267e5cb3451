"""This broker's group coordinators: one for each partition of `__consumer_offsets` that it leads.

Request handlers build on it; it does not know the wire protocol. The shards know which partitions those are, and what
was read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from raftlog.base.env import timer_time
from raftlog.base.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Answer
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from raftlog.broker.controller_requests import ASKED_BY
from raftlog.broker.coordination.group_shard import GroupCoordinatorShard
from raftlog.broker.coordination.shards import CoordinatorShards
from raftlog.broker.coordination.transaction_verification import (
    ProducerApiLevel,
    TransactionalProducer,
    TransactionVerifier,
)
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import batches, each_part
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.coordinator.group import Group
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_expiration import GROUPS_PER_SWEEP, SESSIONS_PER_TICK
from raftlog.coordinator.group_requests import (
    CommitOffsets,
    OffsetCommit,
    TxnOffsetCommit,
    WriteTxnMarker,
)
from raftlog.coordinator.groups import GroupCapacity, check_group_id
from raftlog.coordinator.offsets import read_topics
from raftlog.coordinator.partition_writer import Append
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactional_offsets import TransactionalWriter
from raftlog.metadata.image import MetadataImage, TopicState
from raftlog.metadata.persistent_map import changed_keys

if TYPE_CHECKING:
    from raftlog.base.group_events import GroupHistoryAnswer
    from raftlog.coordinator.group_history import HistoryMemory

TICK_S: Final = 0.5
"""The interval of session checks, in seconds."""

LOAD_AWAITED_S: Final = 1.0
"""How long a request may wait for its partition to be read back. A partition that is new takes milliseconds."""

STALL_S: Final = 1.0
"""A tick later than this means that the broker itself was stalled."""


MAX_PENDING_ID_BYTES: Final = 32 * 1024 * 1024
"""The memory for all member ids that were assigned and not yet used, some 100,000 ids."""


class GroupRequest(Protocol):
    """A request to a group's coordinator."""

    @property
    def group_id(self) -> str: ...


R_contra = TypeVar("R_contra", bound=GroupRequest, contravariant=True)


class Verb(Protocol[R_contra]):
    """A method of `GroupCoordinator` that deals with a request."""

    def __call__(
        self, coordinator: GroupCoordinator, request: R_contra, answer: Answer, /, *, at: Moment
    ) -> None: ...


class GroupCoordinators:
    """The group coordinators of this broker. Handlers call the methods under `requests`.

    These raise KafkaErrors, mostly retriable.
    """

    def __init__(self, broker: LocalBroker, verifier: TransactionVerifier) -> None:
        self._broker = broker
        self._verifier = verifier
        self._topics = TopicRegexResolver(broker.image, broker.authorizer)
        self._history: HistoryMemory | None = None
        """Created with the first coordinator."""
        self._shards = CoordinatorShards(broker, CONSUMER_OFFSETS_TOPIC, self._new_shard)
        self._ask = self._shards.ask
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_at = 0.0
        self._timer_at = 0.0

    # -- the metadata --------------------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Begin to coordinate partitions that this broker now leads, and stop for partitions that it no longer leads.

        Called after the replicas have applied the image.
        """
        before = self._shards.all()
        self._shards.on_metadata(old, new)
        if len(self._shards) and self._timer is None:
            self._schedule_tick()
        if old.topic_names is not new.topic_names:
            self._forget_deleted_topics(old, new, before)

    def _new_shard(self, index: int, leader_epoch: int) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(
            index,
            leader_epoch,
            env=self._broker.env,
            find=self._shards.replica,
            new_coordinator=self._new_coordinator,
            is_gone=self._is_gone,
        )

    def _new_coordinator(self, append: Append, transactions: TransactionalWriter) -> GroupCoordinator:
        from raftlog.coordinator.group_history import HistoryMemory

        self._history = self._history or HistoryMemory(asked_by=ASKED_BY.get)
        return GroupCoordinator(
            self._broker.config,
            append,
            new_uuid=self._new_uuid,
            room=GroupCapacity(self._may_add, self._may_expect, self._may_keep, self._history),
            topics=self._topics,
            transactions=transactions,
        )

    def _new_uuid(self) -> UUID:
        return UUID(int=self._broker.env.unguessable.getrandbits(128), version=4)

    def _may_add(self) -> bool:
        """Return whether there is room for one more group."""
        return sum(map(len, self._active())) < self._broker.config.raftlog_group_max_groups

    def _may_expect(self) -> bool:
        """Return whether there is room for one more member id that no member uses yet."""
        return sum(each.pending_join_bytes for each in self._active()) < MAX_PENDING_ID_BYTES

    def _may_keep(self, growth: int, limit: int) -> bool:
        """Return whether all groups together may take this many more bytes, up to a limit."""
        return self.memory_bytes() + growth <= limit

    def memory_bytes(self) -> int:
        """Return the approximate size of all groups that this broker coordinates, in bytes."""
        return sum(each.memory_bytes for each in self._active())

    def recount_memory_bytes(self) -> int:
        """Measure the memory of all groups again, for callers that check `memory_bytes`."""
        return sum(each.recount_memory_bytes() for each in self._active())

    def _forget_deleted_topics(
        self, old: MetadataImage, new: MetadataImage, shards: Iterable[GroupCoordinatorShard]
    ) -> None:
        """`shards` are the shards before this image.

        New shards read their partitions back with the new image, and accept offsets without a topic id.
        """
        gone = {
            name: frozenset({topic.topic_id, None})
            for name in changed_keys(old.topics, new.topics)
            if (topic := old.topics.get(name)) is not None
            and ((now := new.topics.get(name)) is None or now.topic_id != topic.topic_id)
        }
        if gone:
            self._broker.replicas.deleted_topics.note(gone)
            for shard in shards:
                shard.on_topics_deleted(gone)
            if self._timer is not None:
                self._tick()

    def _is_gone(self, name: str, topic_id: UUID) -> bool:
        """Return whether a topic from earlier metadata was deleted, or replaced by another topic of its name."""
        topic = self._broker.image().topics.get(name)
        return topic is None or topic.topic_id != topic_id

    def _active(self) -> list[GroupCoordinator]:
        return [each.coordinator for each in self._shards.all() if each.coordinator and not each.is_over]

    def failures(self) -> list[Failure]:
        """Return the errors of single groups."""
        return [failure for each in self._active() for failure in each.failures]

    async def close(self) -> None:
        """Complete all pending requests with NOT_COORDINATOR and stop."""
        if self._timer is not None:
            self._timer.cancel()
        self._shards.close()

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
        self._timer = asyncio.get_running_loop().call_at(timer_time(at), self._tick)

    def _hasten(self, coordinator: GroupCoordinator) -> None:
        """Wake up for a deadline that a request has just set, if that is before the next tick."""
        at = coordinator.next_expiry_at()
        if at is not None and at < self._timer_at and self._timer is not None:
            self._wake_at(at)

    def _tick(self) -> None:
        at = self._shards.moment()
        by_age = Moment(at.now, self._broker.env.ages.now_ms())
        late = at.now - self._tick_due_at
        sweeps, ends = GROUPS_PER_SWEEP, SESSIONS_PER_TICK
        for coordinator in self._active():
            if late > STALL_S:
                coordinator.on_loop_stall(late)
            ends -= coordinator.tick(at, most=ends)
            sweeps -= coordinator.sweep(by_age, most=sweeps)
        self._schedule_tick()

    # -- where a group is ----------------------------------------------------------------------------------

    async def find(self, group_id: str) -> int:
        """Return the broker that coordinates a group. Raises CoordinatorNotAvailable, InvalidGroupId."""
        if not group_id:
            raise InvalidGroupId("a group id must not be empty")
        check_group_id(group_id)
        return await self._shards.find(group_id)

    async def offsets_topic(self) -> TopicState:
        """Return the offsets topic. The first call creates it. Raises CoordinatorNotAvailable."""
        return await self._shards.topic()

    def _shard(self, group_id: str) -> GroupCoordinatorShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress, InvalidGroupId."""
        check_group_id(group_id)
        return self._shards.of(group_id)

    def _coordinator(self, group_id: str) -> GroupCoordinator:
        """Raises NotCoordinator, CoordinatorLoadInProgress, InvalidGroupId."""
        coordinator = self._shard(group_id).coordinator
        assert coordinator is not None
        return coordinator

    # -- requests ------------------------------------------------------------------------------------------

    def check(self, group_id: str) -> None:
        """Raise NotCoordinator or CoordinatorLoadInProgress unless this broker coordinates the group."""
        self._coordinator(group_id)

    def ask(self, verb: Verb[R_contra], request: R_contra, *, bounded: bool = True) -> asyncio.Future[Any]:
        """Pass a request to a group's coordinator and return its response: `ask(GroupCoordinator.join, …)`.

        Handling has begun when this returns. Only what the group keeps is kept of the request. With `bounded` the
        request fails with CoordinatorNotAvailable after a timeout. Raises at once InvalidGroupId, NotCoordinator and
        CoordinatorLoadInProgress.
        """
        if not request.group_id:
            raise InvalidGroupId("a group id must not be empty")
        coordinator = self._coordinator(request.group_id)
        at = self._shards.moment()
        waiting = self._shards.ask(lambda answer: verb(coordinator, request, answer, at=at), bounded=bounded)
        self._hasten(coordinator)
        return waiting

    async def wait_until_loaded(self, group_id: str) -> None:
        """Wait until a group's partition is read back, LOAD_AWAITED_S at most. Raises NotCoordinator."""
        await self._shards.wait_until_loaded(group_id, LOAD_AWAITED_S)

    def size_of(self, group_id: str) -> int:
        """Return the number of offsets that a group has here; 0 if this broker does not coordinate it."""
        try:
            return self._coordinator(group_id).offset_count_of(group_id)
        except KafkaError:
            return 0

    async def commit(self, request: CommitOffsets) -> tuple[int, ...]:
        """Return one error code per commit. Raises UnknownTopicOrPartition for all if a topic was just deleted."""
        coordinator = self._coordinator(request.group_id)
        self._check_topics(request.commits)
        at = self._shards.moment()
        codes: tuple[int, ...] = await self._ask(
            lambda answer: coordinator.commit_offsets(request, answer, at=at)
        )
        return codes

    async def commit_in_transaction(
        self, request: TxnOffsetCommit, transactional_id: str, *, dialect: ProducerApiLevel
    ) -> tuple[int, ...]:
        """Return one error code per commit; they count once the transaction commits.

        Raises UnknownTopicOrPartition for all commits if any of their topics was deleted while the transaction was
        verified.
        """
        shard = self._shard(request.group_id)
        await self._confirm(shard, request, transactional_id, dialect)
        self._check_topics(request.commits)
        codes: tuple[int, ...] = await self.ask(GroupCoordinator.commit_in_transaction, request)
        return codes

    def _check_topics(self, commits: Iterable[OffsetCommit]) -> None:
        """Raise UnknownTopicOrPartition if a topic does not exist.

        Its offsets would otherwise apply to a later topic of its name.
        """
        for each in commits:
            topic_id = each.committed.topic_id
            if topic_id is not None and self._is_gone(each.topic, topic_id):
                raise UnknownTopicOrPartition("the topic was deleted during this request")

    async def _confirm(
        self,
        shard: GroupCoordinatorShard,
        request: TxnOffsetCommit,
        transactional_id: str,
        dialect: ProducerApiLevel,
    ) -> None:
        """Have the transaction's coordinator verify that the group's partition is part of it (KIP-890)."""
        producer = (request.producer_id, request.producer_epoch)
        verification = shard.begin_verification(*producer)
        if verification is None:
            return
        tp = TopicPartition(CONSUMER_OFFSETS_TOPIC, shard.index)
        writer = TransactionalProducer(transactional_id, *producer)
        refused = (await self._verifier.verify(writer, [tp], dialect=dialect))[tp]
        if isinstance(refused, NotEnoughReplicas | ConcurrentTransactions):
            raise CoordinatorLoadInProgress(refused.message)  # clients retry this without FindCoordinator
        if refused is not None:
            raise refused
        if shard.is_over:
            raise NotCoordinator
        if not verification.confirm():
            raise CoordinatorLoadInProgress("a transaction marker was written concurrently: retry")

    def end_transaction(self, index: int, end: WriteTxnMarker) -> asyncio.Future[None]:
        """Commit or abort a partition's offsets of a transaction; done when its marker is committed."""
        shard = self._shards.at(index)
        if shard is None:
            raise NotLeaderOrFollower
        coordinator = shard.coordinator
        if coordinator is None:
            raise CoordinatorLoadInProgress
        return self._ask(lambda answer: coordinator.end_transaction(end, answer))

    async def read(self, group_id: str) -> Group:
        """Return the committed state of a group."""
        coordinator = self._coordinator(group_id)
        group: Group = await self._ask(lambda answer: coordinator.read(group_id, answer))
        return group

    async def read_history(self, group_id: str) -> GroupHistoryAnswer:
        """Return the committed state of a group, with its history as far as this coordinator knows it."""
        from raftlog.base.group_events import MAX_TOLD_TOPICS, GroupHistoryAnswer

        group = await self.read(group_id)
        shard, coordinator = self._shard(group_id), self._coordinator(group_id)
        events, forgotten = coordinator.events_of(group_id)
        state, members = group.modern, group.membership
        kind = ("classic" if state is None else "consumer") if group.exists else ""
        if group.share is not None:
            kind = "share"
        return GroupHistoryAnswer(
            state=group.state,
            type=kind,
            members=len(members.members if state is None else state.members),
            generation=members.generation if state is None else state.epoch,
            partition=shard.index,
            leader_epoch=shard.leader_epoch,
            loaded_at_ms=shard.loaded_at_ms,
            known_since_ms=coordinator.events_known_since_ms(group_id, shard.loaded_at_ms),
            topics=sorted(read_topics(group) or ())[:MAX_TOLD_TOPICS],
            events=events,
            forgotten=forgotten,
        )

    async def read_all(self) -> list[Group]:
        """Return all groups that this broker coordinates.

        Raises CoordinatorLoadInProgress (`CoordinatorShards.check_loaded`).
        """
        self._shards.check_loaded()
        groups: list[Group] = []
        for coordinator in self._active():
            portions = batches(coordinator.group_ids())
            read = partial(self._read_some, coordinator)
            groups += chain.from_iterable(await each_part(self._broker.env, portions, read, at_once=1))
        return groups

    async def _read_some(self, coordinator: GroupCoordinator, group_ids: Sequence[str]) -> list[Group]:
        read: list[Group] = await self._ask(partial(coordinator.read_some, group_ids))
        return read
