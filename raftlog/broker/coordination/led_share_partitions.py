"""The share partitions whose logs this broker leads: made by the first fetch, and dropped with the leadership.

Each belongs to one leadership. After a new leader epoch, or after it was fenced, there is another, which begins from
the written state. The share sessions of their members are here too, since the end of one gives up its locks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError, NotLeaderOrFollower, PolicyViolation
from raftlog.broker.coordination.dead_letters import DeadLetterWriter
from raftlog.broker.coordination.led_share_partition import LedSharePartition, StateStore
from raftlog.broker.coordination.share_group_configs import ShareConfig, find_first_offset
from raftlog.broker.coordination.share_record import ShareRecord
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.partition_lookup import find_replica, locate
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata.features import SHARE_VERSION, finalized_level
from raftlog.replication.partition import Partition
from raftlog.sharing.in_flight_summary import InFlightSummary
from raftlog.sharing.share_partition import SharePartition
from raftlog.sharing.share_sessions import ShareSessionKey, ShareSessions

RANGES_IN_A_PART: Final = 20
"""Ranges in flight that are summed up as fast as any other part of a request."""

LOOKED_AT: Final = 100
"""How many are looked at to find one that is idle, those first that were not used for longest."""


class LedInNumbers(NamedTuple):
    """A share partition for operators. `lag`: committed offsets that are not final."""

    key: SharePartitionKey
    topic: str
    leader_epoch: int
    lag: int
    oldest_lock_s: float
    in_flight: InFlightSummary
    is_full: bool
    letters_failed: str


class LedSharePartitions:
    """The share partitions and the share sessions of one broker."""

    def __init__(self, broker: LocalBroker, store: StateStore) -> None:
        config = broker.config
        self.sessions = ShareSessions(
            config.group_share_max_share_sessions, config.raftlog_share_max_session_partitions
        )
        self.most = config.raftlog_share_max_partitions
        self._broker = broker
        self._store = store
        self._letters = DeadLetterWriter(broker)
        self.record = ShareRecord(self.sessions.has_group, broker.env.wall_clock_ms)
        self._led: OrderedDict[SharePartitionKey, LedSharePartition] = OrderedDict()
        self._watchers: dict[SharePartitionKey, dict[Callable[[], None], None]] = {}

    def __len__(self) -> int:
        return len(self._led)

    def find(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition that is in memory."""
        return self._led.get(key)

    def all(self) -> list[tuple[SharePartitionKey, LedSharePartition]]:
        """Return all that are in memory, those first that were not used for longest."""
        return list(self._led.items())

    def describe(self, key: Hashable) -> LedInNumbers | None:
        """Return a share partition in numbers; None if it is not in memory, or not in use."""
        led = self._led.get(key) if isinstance(key, SharePartitionKey) else None
        found = None if led is None else led.summary()
        if led is None or found is None:
            return None
        replica = find_replica(self._broker, led.key.topic_id, led.key.partition)
        topic = self._broker.image().topic_names.get(led.key.topic_id)
        if replica is None or topic is None:
            return None
        lag = max(0, replica.high_watermark - found.start_offset - found.done)
        now = asyncio.get_running_loop().time()
        held_s = 0.0 if found.oldest_acquired_at is None else now - found.oldest_acquired_at
        return LedInNumbers(
            led.key, topic, led.leader_epoch, lag, held_s, found, led.machine.is_full, led.letters_failed
        )

    def parts_of(self, key: Hashable) -> int:
        """Return how many parts of a request it is to `describe` a share partition."""
        machine = self.machine_of(key) if isinstance(key, SharePartitionKey) else None
        return 1 if machine is None else 1 + machine.range_count // RANGES_IN_A_PART

    def machine_of(self, key: SharePartitionKey) -> SharePartition | None:
        """Return the machine of a share partition, only to look at; None if it is not in use."""
        led = self._led.get(key)
        return led.machine if led is not None and led.is_loaded else None

    def replica(self, key: SharePartitionKey) -> Partition:
        """Return the replica of a share partition's log. Raises like `get` where this broker does not lead it."""
        replica = locate(self._broker, key.topic_id, key.partition)
        if not replica.is_leader:
            raise NotLeaderOrFollower
        return replica

    def at_hand(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition that has its state; None if `get` has to read it back. Raises like `replica`."""
        replica, led = self.replica(key), self._led.get(key)
        if led is None or led.leader_epoch != replica.leader_epoch or not led.is_loaded or _is_done(led):
            return None
        return self._used(led, replica)

    def _used(self, led: LedSharePartition, replica: Partition) -> LedSharePartition:
        led.advance_log_start(replica.log_start_offset)
        if self._led.get(led.key) is led:
            self._led.move_to_end(led.key)  # the last to be looked at for room
        return led

    async def get(self, key: SharePartitionKey, *, checked: bool = False) -> LedSharePartition:
        """Return a share partition, with its state read back; if `checked`, with the state of now.

        Raises UnknownTopicId, UnknownTopicOrPartition, NotLeaderOrFollower, and what the share coordinator answers.
        Raises PolicyViolation if there are too many, all in use.
        """
        if not checked and (at_hand := self.at_hand(key)) is not None:
            return at_hand
        replica = self.replica(key)
        led = self._led.get(key)
        if led is None or led.leader_epoch != replica.leader_epoch or _is_done(led):
            self._drop(key)
            self._make_room()
            led = self._led[key] = LedSharePartition(
                key,
                replica.leader_epoch,
                self._store,
                config=ShareConfig(self._broker, key.group_id, key.topic_id),
                changed=partial(self.changed, key),
                record=self.record,
            )
            led.letters = self._letters
        known = led.is_loaded
        try:
            await led.load(partial(find_first_offset, self._broker, replica, key.group_id))
        except KafkaError:
            if led.over is not None and self._led.get(key) is led:
                del self._led[key]  # clients may name any group
            raise
        if checked and known:
            await led.check()
            if led.over is not None:
                return await self.get(key)
        return self._used(led, replica)

    def _make_room(self) -> None:
        """Drop a share partition that can make room, if there are as many as there may be. Raise PolicyViolation."""
        if len(self._led) < self.most:
            return
        for key, led in islice(self._led.items(), LOOKED_AT):
            if led.can_make_room and key not in self._watchers:
                self._drop(key)
                return
        raise PolicyViolation(f"raftlog.share.max.partitions is {self.most}, and all of them are in use")

    def on_metadata(self) -> None:
        """Drop what this broker no longer leads. Called after the replicas have applied an image.

        Once share groups are off, all sessions and locks end, as in Apache Kafka.
        """
        if finalized_level(self._broker.image(), SHARE_VERSION) < 1:
            self.sessions.end_all()
            self.close()
        for key, led in tuple(self._led.items()):
            replica = find_replica(self._broker, key.topic_id, key.partition)
            if led.over is not None or not _leads(replica, led.leader_epoch):
                self._drop(key)

    def release_members(self, ended: Iterable[ShareSessionKey]) -> None:
        """Give up all locks of members whose share sessions ended.

        After the last session of its group, a share partition is read again when a member comes.
        """
        member_ids: defaultdict[str, set[str | None]] = defaultdict(set)
        for each in ended:
            member_ids[each.group_id].add(each.member_id)
        empty = {each for each in member_ids if not self.sessions.has_group(each)}
        for key, led in tuple(self._led.items()):
            if key.group_id in member_ids:
                if led.is_loaded:
                    led.release_members(member_ids[key.group_id])
                led.is_retired |= key.group_id in empty
                if _is_done(led):
                    self._drop(key)

    def connection_closed(self, connection: object) -> None:
        """End the sessions of a connection, and give up what their members hold."""
        if ended := self.sessions.close_all(connection):
            self.release_members(each.key for each in ended)

    @property
    def watched(self) -> int:
        """The number of share partitions that are watched."""
        return len(self._watchers)

    def watch(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        """Call `wake` when records of a share partition may have become available, or it is finished."""
        self._watchers.setdefault(key, {})[wake] = None

    def unwatch(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        watchers = self._watchers.get(key, {})
        watchers.pop(wake, None)
        if not watchers:
            self._watchers.pop(key, None)

    def changed(self, key: SharePartitionKey) -> None:
        """Wake what watches a share partition."""
        for wake in tuple(self._watchers.get(key, ())):
            wake()

    def close(self) -> None:
        """Finish all share partitions; their requests are answered with NOT_LEADER_OR_FOLLOWER."""
        for key in tuple(self._led):
            self._drop(key)

    def _drop(self, key: SharePartitionKey) -> None:
        led = self._led.pop(key, None)
        if led is not None:
            led.end(NotLeaderOrFollower())


def _is_done(led: LedSharePartition) -> bool:
    return led.over is not None or (led.is_retired and led.is_idle)


def _leads(replica: Partition | None, leader_epoch: int) -> bool:
    return replica is not None and replica.is_leader and replica.leader_epoch == leader_epoch
