"""This broker's replicas: which partitions it holds, and what the metadata, the disks and the other brokers do to them.

It reconciles: it compares the newest image with what it has, and never takes orders. It is the `Host` of its
partitions: their notes are gathered here and acted upon once per loop iteration.

Ordering law of a removal: the partition is retired, then its fetcher and flusher let it go, then the files go; a topic
of the same name that is made meanwhile waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from raftlog.base.config import topic_config
from raftlog.base.env import Env
from raftlog.base.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from raftlog.base.log import get_logger
from raftlog.base.types import TopicPartition
from raftlog.broker.isr_changes import IsrChanges
from raftlog.broker.logs import Logs, Volume
from raftlog.broker.peers import Peers
from raftlog.metadata.image import (
    EMPTY_IMAGE,
    BrokerState,
    MetadataImage,
    PartitionState,
    changed_partitions,
)
from raftlog.replication.following import Following
from raftlog.replication.leading import Leading
from raftlog.replication.partition import Partition

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig, TopicConfig
    from raftlog.broker.context import Submit

EVENT_LEVELS = {
    "committed_records_truncated": "error",
    "log_truncated": "warning",
    "damaged_log_cut": "error",
}
"""Events of partitions that are more than news (`info`)."""
ROLES_SAID_ONE_BY_ONE = 20
"""Role changes of one image that get a line each; more are only counted."""

CREATE_TURN = 0.01
"""Seconds of making replicas after which the loop may do other things."""
CREATE_AGAIN_AFTER = 5.0
"""Seconds after which a replica is tried again that a full disk had no room for."""

log = get_logger(__name__)


class Replicas:
    """All replicas of one broker. `start` first; then `on_metadata` with every image; `close` last."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        *,
        submit: Submit,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.env = env
        self.config = config
        self.broker_id = config.node_id
        self.replica_lag_time_max = config.replica_lag_time_max_ms / 1000
        self.flush_before_commit = config.log_flush_policy == "commit"
        self.partitions: dict[TopicPartition, Partition] = {}
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self.broker_epoch = broker_epoch
        self._image = image
        self._applied = EMPTY_IMAGE
        self._loop = loop = asyncio.get_running_loop()
        self.now = loop.time
        self.logs = Logs(env, config, self._volume_failed)
        self._volumes: dict[Partition, Volume] = {}
        self._told: list[Partition] = []
        self._removing: set[TopicPartition] = set()
        self._missing: dict[TopicPartition, None] = {}
        self._creating: asyncio.Handle | None = None
        self._strays_removed = False
        self._isr_changes = IsrChanges(submit, broker_id=self.broker_id, broker_epoch=broker_epoch, loop=loop)
        self.peers = Peers(
            env, config, image=image, broker_epoch=broker_epoch, when_flushed=self.when_flushed, loop=loop
        )
        self.on_directory_failed: Callable[[], None] = _nothing
        """Called when a log directory failed, so that the next heartbeat leaves at once."""

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the log directories and recover every log in them. Raises ForeignLogDirectory; OSError."""
        self.logs.open_directories(self.config.cluster_id)
        for name, opened, high_watermark in await self.logs.recover(self._config_of):
            volume = self.logs.volume_of(opened)
            if opened.topic_id is None:
                self.logs.set_aside(name, volume)
                continue
            partition = Partition(name, opened.topic_id, log=opened, host=self, high_watermark=high_watermark)
            self._add(partition, volume)

    async def close(self) -> None:
        """Stop following, make everything durable, mark the log directories clean."""
        self._missing.clear()
        self._isr_changes.close()
        await self.peers.close()
        high_watermarks = {name: each.high_watermark for name, each in self.partitions.items()}
        for partition in self.partitions.values():
            partition.go_offline(NotLeaderOrFollower)
        await self.logs.close(high_watermarks=high_watermarks, broker_epoch=self.broker_epoch())

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        return self.logs.directory_ids

    @property
    def failed_directory_ids(self) -> tuple[UUID, ...]:
        """For heartbeats: the controller takes the leaderships on them away."""
        return self.logs.failed_directory_ids

    # -- finding them -------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """Return the replica held here. UnknownTopicOrPartition, or NotLeaderOrFollower if others hold it."""
        partition = self.partitions.get((topic, index))  # type: ignore[call-overload]  # equal to its NamedTuple
        if partition is not None:
            return partition  # type: ignore[no-any-return]
        state = self._image().partition(topic, index)
        if state is None:
            raise UnknownTopicOrPartition()
        if self.broker_id in state.replicas and not self.logs.online:
            raise KafkaStorageError()
        raise NotLeaderOrFollower()

    def _add(self, partition: Partition, volume: Volume) -> None:
        self.partitions[partition.name] = partition
        self.by_id[partition.topic_id, partition.index] = partition
        self._volumes[partition] = volume

    # -- reconciling --------------------------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take the roles that the newest image gives.

        An image that does not hold this process's own registration yet is passed over: it may name this broker as the
        leader that its earlier life was. (So `old` is not what is compared with, but the last image that was not.)
        """
        own = new.brokers.get(self.broker_id)
        if own is None or own.broker_epoch != self.broker_epoch():
            return
        old, self._applied = self._applied, new
        moved: list[Partition] = []
        for name, topic, was, state in changed_partitions(old, new):
            if topic is None or state is None or self.broker_id not in state.replicas:
                if was is not None:
                    self._remove(name)
            elif self._holds(name, topic.topic_id):
                self._reconcile(self.partitions[name], state, moved)
            else:
                self._missing[name] = None
        self._say(moved)
        self._create_missing()
        if new.configs is not old.configs:
            self._reconfigure(old, new)
        if new.brokers is not old.brokers:
            self._brokers_changed(old, new)
        if not own.fenced and not self._strays_removed:
            self._strays_removed = True
            self._remove_strays(new)

    def _holds(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Whether the replica of this very topic is here; one of an older topic of that name is removed."""
        partition = self.partitions.get(name)
        if partition is not None and partition.topic_id != topic_id:
            self._remove(name)
            return False
        return partition is not None

    def _reconcile(self, partition: Partition, state: PartitionState, moved: list[Partition]) -> None:
        leader_epoch = partition.leader_epoch
        partition.reconcile(state)
        if partition.leader_epoch == leader_epoch:
            return
        moved.append(partition)
        role = partition.role
        self.peers.follow(partition, role.leader if isinstance(role, Following) else None)

    def _create_missing(self) -> None:
        """Make the replicas that the image places here, a turn at a time so that thousands do not hold up the loop."""
        if self._creating is not None:
            self._creating.cancel()
            self._creating = None
        image = self._applied
        until = self.now() + CREATE_TURN
        moved: list[Partition] = []
        for name in tuple(self._missing):
            if self.now() > until:
                self._creating = self._loop.call_soon(self._create_missing)
                break
            if name in self._removing:
                continue
            del self._missing[name]
            state = image.partition(name.topic, name.partition)
            if state is None or self.broker_id not in state.replicas or name in self.partitions:
                continue
            if self._create(name, image.topics[name.topic].topic_id):
                self._reconcile(self.partitions[name], state, moved)
        self._say(moved)

    def _create(self, name: TopicPartition, topic_id: UUID) -> bool:
        try:
            created, volume = self.logs.create(name, topic_id, self._config_of(name))
        except KafkaStorageError as error:
            log.error("replica_not_created", topic=name.topic, partition=name.partition, reason=error.message)
            if self.logs.online:
                self._missing[name] = None
                self._loop.call_later(CREATE_AGAIN_AFTER, self._create_missing)
            return False
        self._add(Partition(name, topic_id, log=created, host=self), volume)
        return True

    def _remove(self, name: TopicPartition) -> None:
        partition = self.partitions.pop(name, None)
        if partition is None:
            return
        del self.by_id[partition.topic_id, partition.index]
        volume = self._volumes.pop(partition)
        partition.retire()
        self.peers.follow(partition, None)
        self._removing.add(name)
        volume.flusher.release(partition, lambda: self._removed(name, volume))

    def _removed(self, name: TopicPartition, volume: Volume) -> None:
        self.logs.remove(name, volume)
        self._removing.discard(name)
        if name in self._missing and self._creating is None:
            self._creating = self._loop.call_soon(self._create_missing)

    def _remove_strays(self, image: MetadataImage) -> None:
        """We are unfenced in this image, so it is whole: what it does not place here is left over."""
        for name, partition in tuple(self.partitions.items()):
            topic = image.topics.get(name.topic)
            state = image.partition(name.topic, name.partition)
            known = topic is not None and topic.topic_id == partition.topic_id
            if not known or state is None or self.broker_id not in state.replicas:
                log.warning("stray_replica_removed", topic=name.topic, partition=name.partition)
                self._remove(name)

    def _say(self, moved: list[Partition]) -> None:
        if not moved:
            return
        leading = sum(each.is_leader for each in moved)
        log.info("roles_changed", leading=leading, following=len(moved) - leading)
        for each in moved if len(moved) <= ROLES_SAID_ONE_BY_ONE else ():
            event = "partition_became_leader" if each.is_leader else "partition_became_follower"
            self.happened(event, each, log_end_offset=each.log_end_offset)

    # -- configs and brokers ------------------------------------------------------------------------------------

    def _config_of(self, name: TopicPartition) -> TopicConfig:
        image = self._applied
        dynamic = {**image.config("broker", ""), **image.config("broker", str(self.broker_id))}
        return topic_config(self.config, dynamic, image.config("topic", name.topic))

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = {
            key for key in {*old.configs, *new.configs} if old.configs.get(key) != new.configs.get(key)
        }
        everywhere = any(kind == "broker" and who in ("", str(self.broker_id)) for kind, who in changed)
        topics = {who for kind, who in changed if kind == "topic"}
        for name, partition in self.partitions.items():
            if everywhere or name.topic in topics:
                partition.configure(self._config_of(name))

    def _brokers_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """A broker that is unfenced may join ISRs; one that registered anew is fetched from anew."""
        for partition in self.led():
            partition.reconsider()
        for broker_id, state in new.brokers.items():
            before = old.brokers.get(broker_id)
            if before is state:
                continue
            if broker_id == self.broker_id:
                if before is None or before.broker_epoch != state.broker_epoch:
                    self.peers.reconnect_all()
            else:
                self.peers.broker_changed(broker_id)

    def led(self) -> list[Partition]:
        """The partitions that this broker leads."""
        return [partition for partition in self.partitions.values() if type(partition.role) is Leading]

    # -- what partitions ask of their broker (`Host`) -----------------------------------------------------------

    def brokers(self) -> Mapping[int, BrokerState]:
        return self._applied.brokers

    def log_appended(self, partition: Partition) -> None:
        if self.flush_before_commit:
            volume = self._volumes.get(partition)
            if volume is not None:
                volume.flusher.mark(partition)

    def progressed(self, partition: Partition) -> None:
        if not self._told:
            self._loop.call_soon(self._wake_told)
        self._told.append(partition)

    def _wake_told(self) -> None:
        told, self._told = self._told, []
        for partition in told:
            partition.wake_parked()

    def isr_change_due(self, partition: Partition) -> None:
        self._isr_changes.add(partition)

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        volume = self._volumes.get(partition)
        if volume is not None:
            self._loop.call_soon(self.logs.report, volume, error)

    def happened(self, event: str, partition: Partition, **facts: object) -> None:
        say = getattr(log, EVENT_LEVELS.get(event, "info"))
        say(
            event,
            topic=partition.topic,
            partition=partition.index,
            leader_epoch=partition.leader_epoch,
            **facts,
        )

    # -- disks --------------------------------------------------------------------------------------------------

    def when_flushed(self, partition: Partition, then: Callable[[], None]) -> bool:
        """Sync this partition's log now, then call `then`; False: it is out of service."""
        volume = self._volumes.get(partition)
        return volume is not None and volume.flusher.when_flushed(partition, then)

    def mark_unflushed(self, partitions: Iterable[Partition]) -> None:
        """Under log.flush.policy=os: have what was written synced some time, so that recovery stays short."""
        for partition in partitions:
            if partition.log.flushed_end_offset < partition.log_end_offset:
                self._volumes[partition].flusher.mark(partition)

    def _volume_failed(self, volume: Volume) -> None:
        for partition, where in self._volumes.items():
            if where is volume:
                partition.go_offline()
                self.peers.follow(partition, None)
        self.on_directory_failed()


def _nothing() -> None:
    pass
