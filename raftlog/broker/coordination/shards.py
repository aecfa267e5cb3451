"""This broker's shards in a coordinators' topic: one for each of its partitions that this broker leads.

It follows the metadata: it reads a gained partition back, and stops coordinating a lost partition. It finds the broker
that coordinates a key, and creates the topic at the first request for it. The caller knows what is coordinated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from raftlog.base.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    RequestTimedOut,
)
from raftlog.base.log import get_logger
from raftlog.base.machine import Answer
from raftlog.base.types import NO_BROKER, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from raftlog.broker.auto_create import create_missing
from raftlog.broker.coordination.shard import CoordinatorShard
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import CallQueue
from raftlog.broker.partition_lookup import is_doubtful
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactions.transaction import check_transactional_id
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.replication.partition import Partition

T = TypeVar("T", bound=CoordinatorShard[Any, Any])

log = get_logger(__name__)


def transaction_coordinator(image: MetadataImage, transactional_id: str) -> int:
    """Return the broker that coordinates an id by this image. Raises CoordinatorNotAvailable, InvalidRequest."""
    check_transactional_id(transactional_id)
    topic = image.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        raise CoordinatorNotAvailable(f"there is no {TRANSACTION_STATE_TOPIC} yet")
    return _leader(_partition(topic, transactional_id))


def share_coordinator(image: MetadataImage, key: str) -> int:
    """Return the broker that coordinates a share partition by this image. Raises CoordinatorNotAvailable."""
    topic = image.topics.get(SHARE_GROUP_STATE_TOPIC)
    if topic is None:
        raise CoordinatorNotAvailable(f"there is no {SHARE_GROUP_STATE_TOPIC} yet")
    return _leader(_partition(topic, key))


def _partition(topic: TopicState, key: str) -> PartitionState:
    return topic.partitions[partition_for(key, len(topic.partitions))]


def _leader(state: PartitionState) -> int:
    if state.leader == NO_BROKER:
        raise CoordinatorNotAvailable
    return state.leader


class CoordinatorShards(Generic[T]):
    """`new_shard(index, leader_epoch)` creates the shard of one partition of `topic`."""

    def __init__(self, broker: LocalBroker, topic: str, new_shard: Callable[[int, int], T]) -> None:
        self._broker = broker
        self._broker_id = broker.config.node_id
        self._topic = topic
        self._new_shard = new_shard
        self._shards: dict[int, T] = {}
        self._creating: asyncio.Task[None] | None = None
        self._answers = CallQueue()
        broker.replicas.role_listeners.append(self._roles_changed)

    def __len__(self) -> int:
        return len(self._shards)

    def all(self) -> list[T]:
        return list(self._shards.values())

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Begin to coordinate partitions that this broker now leads, and stop for partitions that it no longer leads.

        Called after the replicas have applied the image.
        """
        topic = new.topics.get(self._topic)
        if topic is not old.topics.get(self._topic):
            self._follow(topic.partitions if topic else ())

    def _follow(self, partitions: tuple[PartitionState, ...]) -> None:
        led = {
            index: state.leader_epoch
            for index, state in enumerate(partitions)
            if state.leader == self._broker_id
        }
        for index, shard in tuple(self._shards.items()):
            if led.get(index) != shard.leader_epoch:
                self._shards.pop(index).end(NotCoordinator())
        for index, leader_epoch in led.items():
            if index not in self._shards:
                self._shards[index] = shard = self._new_shard(index, leader_epoch)
                shard.start()

    def _roles_changed(self) -> None:
        for shard in self._shards.values():
            shard.role_changed()

    def replica(self, index: int) -> Partition:
        """Return this broker's replica of one partition. Raises KafkaError if it has none."""
        return self._broker.replicas.get(self._topic, index)

    def close(self) -> None:
        """End all shards with NOT_COORDINATOR."""
        if self._creating is not None:
            self._creating.cancel()
        for shard in self._shards.values():
            shard.end(NotCoordinator())
        self._shards.clear()

    # -- where a key is --------------------------------------------------------------------------------------

    async def find(self, key: str) -> int:
        """Return the broker that coordinates a key, once the topic is there. Raises CoordinatorNotAvailable."""
        return self.leader_of(key, await self.topic())

    def leader_of(self, key: str, topic: TopicState) -> int:
        """Return the broker that coordinates a key. Raises CoordinatorNotAvailable."""
        state = _partition(topic, key)
        if is_doubtful(self._broker, state):
            raise CoordinatorNotAvailable(
                "this broker lost its controller session, and another broker may lead by now"
            )
        return _leader(state)

    async def topic(self) -> TopicState:
        """Return the topic. The first call creates it. Raises CoordinatorNotAvailable."""
        topic = self._broker.image().topics.get(self._topic)
        if topic is None:
            if self._creating is None or self._creating.done():
                self._creating = asyncio.get_running_loop().create_task(self._create())
            await asyncio.shield(self._creating)
            topic = self._broker.image().topics.get(self._topic)
        if topic is None:
            raise CoordinatorNotAvailable(f"{self._topic} is being created")
        return topic

    async def _create(self) -> None:
        codes = await create_missing(self._broker, (self._topic,))
        code = codes[self._topic]
        if code != NONE:
            log.warning("coordinators_topic_not_created", topic=self._topic, error_code=code)
            raise CoordinatorNotAvailable

    def of(self, key: str) -> T:
        """Return the shard that coordinates a key. Raises NotCoordinator, CoordinatorLoadInProgress."""
        shard = self._here(key)
        if shard.coordinator is None:
            raise CoordinatorLoadInProgress
        return shard

    async def wait_until_loaded(self, key: str, within_s: float) -> None:
        """Wait until the partition of a key is read back, or the time has passed. Raises NotCoordinator."""
        await self._here(key).wait_until_loaded(within_s)

    def _here(self, key: str) -> T:
        """Return the shard of a key, loaded or not. Raises NotCoordinator."""
        topic = self._broker.image().topics.get(self._topic)
        shard = self._shards.get(partition_for(key, len(topic.partitions))) if topic else None
        if shard is None or shard.is_over or shard.has_failed:
            raise NotCoordinator
        if (
            topic is not None
            and self._broker.silent_members
            and is_doubtful(self._broker, _partition(topic, key))
        ):
            raise NotCoordinator(
                "this broker lost its controller session, and another broker may lead by now"
            )
        return shard

    def at(self, index: int) -> T | None:
        """Return the shard of one partition, None where this broker has none or could not read it back."""
        shard = self._shards.get(index)
        return None if shard is None or shard.is_over or shard.has_failed else shard

    def check_loaded(self, *, wholly: bool = False) -> None:
        """Raise CoordinatorLoadInProgress while a partition is still being read back.

        A partition that could not be read may stay so for ever: this broker does not coordinate it, and knows the
        others. A caller that needs a complete result passes `wholly`: then this raises CoordinatorNotAvailable.
        """
        for each in self._shards.values():
            if wholly and each.has_failed:
                raise CoordinatorNotAvailable(f"partition {each.index} of {self._topic} cannot be read")
            if each.coordinator is None and not each.is_over and not each.has_failed:
                raise CoordinatorLoadInProgress

    def moment(self) -> Moment:
        """Return now, by the loop's clock and by the latest time that this broker knows."""
        return Moment(asyncio.get_running_loop().time(), self._broker.env.ages.latest_ms())

    # -- answers ---------------------------------------------------------------------------------------------

    def ask(
        self, call: Callable[[Answer], None], *, bounded: bool = True, within_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Return a coordinator's result; if `bounded`, raise CoordinatorNotAvailable after a timeout.

        The limit is offsets.commit.timeout.ms, or `within_s` where the client does not wait as long. A wait for other
        members of a group is not bounded: the rebalance has its own clock.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def answer(reply: object) -> None:
            if is_asking:
                settle(reply)
            else:
                self._answers.put(lambda: settle(reply))

        def settle(reply: object) -> None:
            if future.done():
                return
            if isinstance(reply, RequestTimedOut):  # fatal to members; Apache Kafka returns it as well
                future.set_exception(CoordinatorNotAvailable(reply.message))
            elif isinstance(reply, KafkaError):
                # the frames of its traceback hold the request, and this future
                future.set_exception(reply.with_traceback(None))
            else:
                future.set_result(reply)

        is_asking = True
        call(answer)
        is_asking = False
        if bounded and not future.done():
            late = CoordinatorNotAvailable("not committed in time")
            longest_s = self._broker.config.offsets_commit_timeout_ms / 1000
            timer = loop.call_later(longest_s if within_s is None else min(within_s, longest_s), answer, late)
            future.add_done_callback(lambda _: timer.cancel())
        return future
