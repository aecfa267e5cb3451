"""This broker's replicas: opens, starts, stops and removes them as the cluster's metadata and the disks demand.

It compares the newest metadata image with the replicas that it has, and changes them to match. It is the `ReplicaHost`
of its partitions: it gathers what they report and acts on it once per loop iteration.

Ordering law of a removal: the partition is retired, then its fetcher and flusher drop it, then its files are deleted. A
new topic of the same name waits for that.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from raftlog.base.config import topic_config
from raftlog.base.config.cordon import cordoned_dirs
from raftlog.base.config.setting import LONG_MAX
from raftlog.base.env import Env, raise_failure
from raftlog.base.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from raftlog.base.log import get_logger
from raftlog.base.turns import run_steps
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.damaged_replicas import DamagedReplicas
from raftlog.broker.replicas.deleted_topics import DeletedTopics
from raftlog.broker.replicas.early_batches import EarlyBatches
from raftlog.broker.replicas.fetchers import LeaderFetchers
from raftlog.broker.replicas.isr_changes import IsrChanges
from raftlog.broker.replicas.log_directories import LogDirectories, LogVolume, NewLog
from raftlog.broker.replicas.missing_replicas import MissingReplicas, RefusedReplicas
from raftlog.broker.replicas.replication_quota import ReplicationQuota
from raftlog.broker.replicas.timeline import Timeline
from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog.metadata.effective_config import effective_broker_config
from raftlog.metadata.image import (
    EMPTY_IMAGE,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
    changed_partitions,
)
from raftlog.metadata.persistent_map import changed_keys
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.replication.traffic import Traffic
from raftlog.storage.log import Log

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig, TopicConfig
    from raftlog.metadata.controller_api import Submit

ROLES_SAID_ONE_BY_ONE = 20
"""Role changes of an image that are logged one by one; more are only counted."""

CREATED_ON_LOOP = 8
"""The number of missing replicas created immediately, so that a small topic exists when its creation is
acknowledged."""
CREATED_PER_BATCH = 32
"""Replicas of one batch where there are more."""
REMOVED_AT_ONCE = 200
"""Replicas that are removed in one turn of the loop, some 20 µs each; the others follow in later turns."""
MAX_FLUSH_MS = 30 * 86_400_000
"""A flush.ms beyond a month is as good as none: logs are synced whenever their recovery points are noted."""

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
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)
        """Keyed by topic. It outlives replicas that move away and back, but not the topic."""
        self.broker_epoch = broker_epoch
        self._image, self._applied = image, EMPTY_IMAGE
        self._loop = loop = asyncio.get_running_loop()
        self.now = loop.time
        self.latest_ms = env.ages.latest_ms
        self.deleted_topics = DeletedTopics(loop.time)
        self.was_deleted = self.deleted_topics.has
        self.early_batches = EarlyBatches(loop.time)
        # an event loop's own time may stand still within one callback; a simulation has no other
        self.stopwatch = time.perf_counter if env.threads else loop.time
        self.logs = LogDirectories(env, config, self._volume_failed)
        self._volumes: dict[Partition, LogVolume] = {}
        self._flush_timers: dict[Partition, asyncio.TimerHandle] = {}
        self.to_wake: list[Partition] = []
        """Partitions with new data for waiting consumers that are not woken yet."""
        self._removing: set[TopicPartition] = set()
        self.missing = MissingReplicas()
        self.refused = RefusedReplicas(loop, self._create_refused)
        """Replicas that no log directory accepted; they are retried after a while."""
        self._leaving: dict[TopicPartition, None] = {}
        """Replicas that the image no longer places here."""
        self._dismissing: asyncio.Task[None] | None = None
        self._creating: asyncio.Future[list[Log | Exception]] | None = None
        self._strays_removed = self._closed = False
        self.role_listeners: list[Callable[[], None]] = []
        """Called after replicas took new roles; a new replica may take its role long after the image that gave it."""
        self._timeline = Timeline(loop)
        self._damaged = DamagedReplicas(image, broker_id=self.broker_id)
        self.touched = TouchedPartitions()
        self.unsettled_isrs = self.touched.queue()
        """The partitions led here whose ISR may change without an append, and some others."""
        self.awaited: dict[Partition, None] = {}
        self._isr_changes = IsrChanges(submit, broker_id=self.broker_id, broker_epoch=broker_epoch, loop=loop)
        self.sent, self.fetched = ReplicationQuota(loop.time), ReplicationQuota(loop.time)
        """The rates of throttled replicas: from leaders here, and to replicas here."""
        self.peers = LeaderFetchers(
            env, config, image=image, broker_epoch=broker_epoch, flush=self.logs.flush, loop=loop
        )
        self.peers.quota = self.fetched
        self._apply_config(EMPTY_IMAGE)
        self.on_directory_failed: Callable[[], None] = _nothing
        """Called when a log directory failed, so that the next heartbeat leaves at once."""
        self.on_log_damaged: Callable[[], None] = _nothing
        """Called when a log was found damaged, likewise."""

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the log directories and recover every log in them. Raises ForeignLogDirectory; OSError."""
        self.logs.open_directories(self.config.cluster_id)
        for name, opened, high_watermark in await self.logs.recover(self._config_of):
            volume = self.logs.volume_of(opened)
            if opened.topic_id is None:
                # Its first flush would have made its topic id durable, or that file was lost in another way.
                directory = self.logs.set_aside(name, volume)
                # An empty replica lost power right after it was created, so no data is missing.
                say = log.error if opened.log_end_offset > opened.log_start_offset else log.warning
                say(
                    "log_without_topic_id_set_aside",
                    directory=directory,
                    log_end_offset=opened.log_end_offset,
                )
                continue
            partition = Partition(name, opened.topic_id, log=opened, host=self, high_watermark=high_watermark)
            self._add(partition, volume)

    async def close(self) -> None:
        """Stop following, make everything durable, and mark the log directories clean. Later metadata is ignored."""
        self._closed = True
        self.missing.clear()
        self.refused.close()
        if self._dismissing is not None:
            self._dismissing.cancel()
        if self._creating is not None:
            await asyncio.wait([self._creating])
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
        """For heartbeats: the controller moves the leaderships on them away."""
        return self.logs.failed_directory_ids

    @property
    def damaged(self) -> tuple[tuple[UUID, int], ...]:
        """For heartbeats: (topic id, partition) of damaged replicas that the metadata still counts on."""
        return self._damaged.counted()

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

    def volume_of(self, partition: Partition) -> LogVolume | None:
        """Return where a replica's log lies; None if the replica is no longer held here."""
        return self._volumes.get(partition)

    def _add(self, partition: Partition, volume: LogVolume) -> None:
        self.partitions[partition.name] = partition
        self.by_id[partition.topic_id, partition.index] = partition
        self._volumes[partition] = volume
        self.touch(partition)
        partition.traffic = self.traffic[partition.topic]
        if partition.log.damage is not None:
            self._note_damage(partition)

    # -- reconciling --------------------------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply the roles in the newest image.

        An image without this process's own registration is skipped, since it may name this broker as leader from its
        previous run. (So the image is compared with the last image applied, not with `old`.)
        """
        own = new.brokers.get(self.broker_id)
        if self._closed or own is None or own.broker_epoch != self.broker_epoch():
            return
        old, self._applied = self._applied, new
        moved: list[Partition] = []
        for name, topic, was, state in changed_partitions(old, new):
            if topic is None or state is None or self.broker_id not in state.replicas:
                if was is not None:
                    self._leaving[name] = None
                if topic is None:
                    self.traffic.pop(name.topic, None)
            elif self._holds(name, topic.topic_id):
                self._reconcile(self.partitions[name], state, moved)
            else:
                self.missing.add(name, leads=state.leader == self.broker_id)
        self._dismiss()
        self._note_roles(moved)
        self._create_missing()
        if new.configs is not old.configs:
            self._reconfigure(old, new)
        if new.brokers is not old.brokers:
            self._brokers_changed(old, new)
        if not own.fenced and not self._strays_removed:
            self._strays_removed = True
            self._remove_strays(new)

    def _dismiss(self) -> None:
        """Remove replicas that the image no longer places here, in turns. Skip replicas that it places here again."""
        for name in tuple(islice(self._leaving, REMOVED_AT_ONCE)):
            del self._leaving[name]
            partition, topic = self.partitions.get(name), self._applied.topics.get(name.topic)
            state = self._applied.partition(name.topic, name.partition)
            if partition is None or topic is None or topic.topic_id != partition.topic_id or state is None:
                self._remove(name)
            elif self.broker_id not in state.replicas:
                self._remove(name, elsewhere=True)
        if self._leaving and self._dismissing is None:
            self._dismissing = self._loop.create_task(self._dismiss_the_others())
            self._dismissing.add_done_callback(raise_failure)

    async def _dismiss_the_others(self) -> None:
        def dismiss() -> Iterator[None]:
            while self._leaving:
                yield
                self._dismiss()

        await run_steps(self.env, dismiss())
        self._dismissing = None

    def _holds(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Return whether this topic's replica is here. A replica of an older topic of that name is being removed."""
        partition = self.partitions.get(name)
        if partition is not None and partition.topic_id != topic_id:
            self._remove(name)
            return False
        return partition is not None

    def _reconcile(self, partition: Partition, state: PartitionState, moved: list[Partition]) -> None:
        leader_epoch = partition.leader_epoch
        self.touch(partition)
        partition.reconcile(state)
        if partition.leader_epoch == leader_epoch:
            return
        moved.append(partition)
        role = partition.role
        self.peers.follow(partition, role.leader if isinstance(role, FollowerRole) else None)

    def _create_missing(self) -> None:
        """Create the replicas that the image places here.

        A few are created on the loop, many away from it, a batch at a time. Each needs a folder and files, which wait
        while the file system's journal does.
        """
        if self._creating is not None or not self.missing:
            return
        if len(self.missing) <= CREATED_ON_LOOP:
            news = self._next_missing(CREATED_ON_LOOP)
            self._take_created(news, self.logs.create(news))
        elif news := self._next_missing(CREATED_PER_BATCH):
            self._creating = self.env.offload(partial(self.logs.create, news))
            self._creating.add_done_callback(partial(self._created, news))

    def _next_missing(self, most: int) -> list[NewLog]:
        """Return the next logs to create. A log whose predecessor is still being removed waits."""
        image = self._applied
        news: list[NewLog] = []
        for name in self.missing:
            if len(news) == most:
                break
            if name in self._removing:
                continue
            self.missing.remove(name)
            state = image.partition(name.topic, name.partition)
            if state is None or self.broker_id not in state.replicas or name in self.partitions:
                self.refused.discard(name)
                self.missing.discard(name)
                continue
            try:
                volume = self.logs.roomiest(news)
            except KafkaStorageError as error:
                self.refused.add({name: error.message or ""})
                self.missing.discard(name)
                continue
            news.append(NewLog(name, image.topics[name.topic].topic_id, self._config_of(name), volume))
        return news

    def _created(self, news: list[NewLog], future: asyncio.Future[list[Log | Exception]]) -> None:
        self._creating = None
        made = future.result()
        if self._closed:
            for each in made:
                if isinstance(each, Log):
                    each.close(clean=False)
            return
        self._take_created(news, made)
        self._create_missing()

    def _take_created(self, news: list[NewLog], made: list[Log | Exception]) -> None:
        """Give each replica the role in the newest image, which may have changed meanwhile."""
        image = self._applied
        moved: list[Partition] = []
        refused: dict[TopicPartition, str] = {}
        for new, each in zip(news, made, strict=True):
            try:
                created = self.logs.add_created(new, each)
            except KafkaStorageError as error:
                refused[new.name] = error.message or ""
                continue
            self.refused.discard(new.name)
            partition = Partition(new.name, new.topic_id, log=created, host=self)
            self._add(partition, new.volume)
            self.early_batches.hand_over(partition)
            state = image.partition(new.name.topic, new.name.partition)
            if state is None or self.broker_id not in state.replicas:
                self._remove(new.name, elsewhere=state is not None)
            elif self._holds(new.name, image.topics[new.name.topic].topic_id):
                partition.configure(self._config_of(new.name))
                self._reconcile(partition, state, moved)
        if refused and len(refused) == len(news):  # the next logs would fail as well
            refused |= dict.fromkeys(self.missing, next(iter(refused.values())))
            self.missing.clear()
        for new in news:
            self.missing.discard(new.name)
        self.refused.add(refused)
        self._note_roles(moved)

    def _note_roles(self, moved: list[Partition]) -> None:
        self._timeline.log_roles(moved)
        if moved:
            for listener in self.role_listeners:
                listener()

    def _create_refused(self, refused: Iterable[TopicPartition]) -> None:
        for name in refused:
            if name not in self.missing:  # it may have been deleted and recreated since
                self.missing.add(name, leads=False)
        self._create_missing()

    def _remove(self, name: TopicPartition, *, set_aside: bool = False, elsewhere: bool = False) -> None:
        partition = self.partitions.pop(name, None)
        if partition is None:
            return
        del self.by_id[partition.topic_id, partition.index]
        volume = self._volumes.pop(partition)
        self._damaged.discard(partition)
        if name.topic not in self._applied.topics:
            self.traffic.pop(name.topic, None)
        if (timer := self._flush_timers.pop(partition, None)) is not None:
            timer.cancel()
        partition.stop_replica(elsewhere=elsewhere)
        self.peers.follow(partition, None)
        self._removing.add(name)
        volume.flusher.release(partition, lambda: self._removed(partition, volume, set_aside=set_aside))

    def _removed(self, partition: Partition, volume: LogVolume, *, set_aside: bool) -> None:
        name = partition.name
        if set_aside:
            directory = self.logs.set_aside(name, volume)
            log.warning("stray_replica_renamed", directory=directory)
        else:
            self.logs.remove(name, volume)
        self._removing.discard(name)
        self.touched.discard(partition)
        if name in self.missing:
            self._loop.call_soon(self._create_missing)

    def _remove_strays(self, image: MetadataImage) -> None:
        """Set aside replicas that a complete image does not place here.

        This image is complete, since this broker is unfenced in it.

        Most likely their topics were deleted meanwhile. But the metadata may also have been lost, or the folder may
        belong to another cluster, such as Apache Kafka's. So no data is deleted.
        """
        for name, partition in tuple(self.partitions.items()):
            topic = image.topics.get(name.topic)
            state = image.partition(name.topic, name.partition)
            known = topic is not None and topic.topic_id == partition.topic_id
            if not known or state is None or self.broker_id not in state.replicas:
                self._remove(name, set_aside=True)

    # -- configs and brokers ------------------------------------------------------------------------------------

    @property
    def config_in_force(self) -> NodeConfig:
        """This broker's settings in force: settings that may change at runtime are read here each time."""
        return effective_broker_config(self.config, self._applied)

    def _config_of(self, name: TopicPartition) -> TopicConfig:
        image = self._applied
        return topic_config(
            self.config, image.broker_configs(self.broker_id), image.config("topic", name.topic)
        )

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = tuple(changed_keys(old.configs, new.configs))
        self._apply_config(new)
        everywhere = any(kind == "broker" and who in ("", str(self.broker_id)) for kind, who in changed)
        topics = [new.topics[who] for kind, who in changed if kind == "topic" and who in new.topics]
        for name in tuple(self.partitions) if everywhere else _partitions_of(topics):
            partition = self.partitions.get(name)
            if partition is not None:
                partition.configure(self._config_of(name))
                self.touch(partition)

    def _apply_config(self, image: MetadataImage) -> None:
        """Apply the rates of KIP-73 that are in force, and note the cordoned log directories."""
        config = effective_broker_config(self.config, image)
        self.logs.cordoned = cordoned_dirs(config.cordoned_log_dirs, self.config.log_dirs)
        for quota, rate in (
            (self.sent, config.leader_replication_throttled_rate),
            (self.fetched, config.follower_replication_throttled_rate),
        ):
            quota.limit(None if rate == LONG_MAX else rate)

    def _brokers_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Let unfenced brokers join ISRs, and restart fetching from brokers that registered again."""
        for partition in self.unsettled_isrs:
            partition.reevaluate_isr()
        for broker_id, state in new.brokers.items():
            before = old.brokers.get(broker_id)
            if before is state:
                continue
            if broker_id == self.broker_id:
                if before is None or before.broker_epoch != state.broker_epoch:
                    self.peers.reconnect_all()
            else:
                self.peers.broker_changed(broker_id)

    def is_whole(self, partition: Partition) -> bool:
        """Return whether all replicas are in sync by the metadata: then each of them has all committed records."""
        state = self._applied.partition(partition.topic, partition.index)
        return state is not None and set(state.replicas) <= set(state.isr)

    def led(self) -> list[Partition]:
        """Return the partitions that this broker leads."""
        return [partition for partition in self.partitions.values() if type(partition.role) is LeaderRole]

    def isr_members(self) -> frozenset[int]:
        """Return the other brokers that may take over a partition that this one leads."""
        roles = [each.role for each in self.partitions.values()]
        members = {each for role in roles if type(role) is LeaderRole for each in role.may_lead_next}
        return frozenset(members - {self.broker_id})

    # -- what partitions ask of their broker (`Host`) -----------------------------------------------------------

    def brokers(self) -> Mapping[int, BrokerState]:
        return self._applied.brokers

    def touch(self, partition: Partition) -> None:
        if partition in self._volumes:
            self.touched.fresh[partition] = None

    def request_flush(self, partition: Partition) -> None:
        self.touched.fresh[partition] = None
        if self.flush_before_commit:
            volume = self._volumes.get(partition)
            if volume is not None:
                volume.flusher.mark(partition)
        else:
            self._flush_in_time(partition)

    def _flush_in_time(self, partition: Partition) -> None:
        """Under log.flush.policy=os: sync after flush.messages records, and flush.ms after the first of them."""
        log, config = partition.log, partition.log.config
        if log.log_end_offset - log.flushed_end_offset >= config.flush_messages:
            self.mark_unflushed([partition])
        elif config.flush_ms <= MAX_FLUSH_MS and partition not in self._flush_timers:
            timer = self._loop.call_later(config.flush_ms / 1000, self._flush_due, partition)
            self._flush_timers[partition] = timer

    def _flush_due(self, partition: Partition) -> None:
        del self._flush_timers[partition]
        if not self._closed:
            self.mark_unflushed([partition])

    def wake_waiters(self, partition: Partition) -> None:
        if not self.to_wake:
            self._loop.call_soon(self.wake_now)
        self.to_wake.append(partition)

    def wake_now(self) -> None:
        """Wake the waiters of all partitions in `to_wake`; fine if there is none."""
        partitions, self.to_wake = self.to_wake, []
        for partition in partitions:
            partition.wake_parked()

    def heard_of_leader_at(self, partition: Partition) -> float:
        return self.peers.heard_of_leader_at(partition)

    def fetch_soon(self, partition: Partition) -> None:
        self.peers.fetch_soon(partition)

    def submit_isr_change(self, partition: Partition) -> None:
        self.touch(partition)
        self._isr_changes.add(partition)

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        volume = self._volumes.get(partition)
        if volume is not None:
            self._loop.call_soon(self.logs.report, volume, error)

    def log_damaged(self, partition: Partition) -> None:
        self._loop.call_soon_threadsafe(self._note_damage, partition)

    def _note_damage(self, partition: Partition) -> None:
        damage, failure = partition.log.damage, partition.failure
        if partition not in self._volumes:
            return
        if partition.cut_damage() and type(role := partition.role) is FollowerRole:
            self.peers.follow(partition, role.leader)  # from its new end
        if not self._damaged.add(partition):
            return
        if failure is not None:
            self.peers.follow(partition, None)
            self.on_log_damaged()
        elif damage is not None:
            self.log_event("log_damaged", partition, offset=damage.offset, until_offset=damage.until_offset)
            self.on_log_damaged()

    def failed_replicas(self) -> dict[TopicPartition, str]:
        """Return the replicas that failed rather than truncate committed records, with the reason of each."""
        return self._damaged.failures()

    def log_event(self, event: str, partition: Partition, **facts: object) -> None:
        self.touch(partition)
        self._timeline.log_event(event, partition, facts)

    # -- disks --------------------------------------------------------------------------------------------------

    def mark_unflushed(self, partitions: Iterable[Partition]) -> None:
        """Schedule a sync of written records under log.flush.policy=os, so that recovery stays short."""
        for partition in partitions:
            if partition in self._volumes and partition.log.flushed_end_offset < partition.log_end_offset:
                self._volumes[partition].flusher.mark(partition)

    def _volume_failed(self, volume: LogVolume) -> None:
        for partition, where in self._volumes.items():
            if where is volume:
                partition.go_offline()
                self.peers.follow(partition, None)
        self.on_directory_failed()


def _partitions_of(topics: Iterable[TopicState]) -> Iterator[TopicPartition]:
    for topic in topics:
        for index in range(len(topic.partitions)):
            yield TopicPartition(topic.name, index)


def _nothing() -> None:
    pass
