"""The changes of partitions and brokers, with time and causes: a bounded memory of applied batches.

Every node derives its own from the batches that it applies, so all agree. It reaches back to the last snapshot that
this node loaded, since a snapshot has only the present state. And it keeps the last few changes of each thing. It is
for display; a new controller also learns from it which brokers hung.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from raftlog.base.types import NO_BROKER
from raftlog.metadata.causes import Cause
from raftlog.metadata.image import BrokerState, MetadataImage, PartitionState
from raftlog.metadata.metadata_records import (
    Batch,
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    DecommissionChanged,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
)

KEPT_OF_PARTITION: Final = 16
KEPT_OF_BROKER: Final = 64
MAX_PARTITION_CHANGES: Final = 100_000
"""Changes of partitions that are kept in all; the partitions without a change for longest are evicted."""

_OF_BROKERS: Final = (BrokerChanged, BrokerRegistered, BrokerUnregistered, DecommissionChanged)

State = TypeVar("State")


class AppliedBatch(NamedTuple):
    """One batch: its time (wall ms of the controller's clock, 0: unknown), its controller and its causes.

    `partitions`: how many partitions it changed.
    """

    offset: int
    at_ms: int
    controller_id: int
    controller_epoch: int
    causes: tuple[Cause, ...]
    partitions: int


class Change(NamedTuple, Generic[State]):
    """One thing before and after one batch; None if it did not exist."""

    batch: AppliedBatch
    old: State | None
    new: State | None


class LeadershipCounts:
    """The changes of the partitions that one broker leads, as far back as the history goes."""

    __slots__ = ("isr_expands", "isr_shrinks", "leaderships_gained", "unclean_elections")

    def __init__(self) -> None:
        self.leaderships_gained = 0
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0


class History:
    """`note` every applied batch, `reset_to` at a snapshot."""

    def __init__(self, most_kept: int = MAX_PARTITION_CHANGES) -> None:
        self.since_offset = 0
        """Metadata records before this offset are not covered."""
        self._most_kept = most_kept
        self._kept = 0
        self._partitions: dict[tuple[UUID, int], list[Change[PartitionState]]] = {}
        """In the order of their last change."""
        self._brokers: dict[int, list[Change[BrokerState]]] = {}
        self._counts: defaultdict[int, LeadershipCounts] = defaultdict(LeadershipCounts)

    def partition(self, topic_id: UUID, index: int) -> list[Change[PartitionState]]:
        """Return the last changes of a partition, oldest first."""
        return list(self._partitions.get((topic_id, index), ()))

    def broker(self, broker_id: int) -> list[Change[BrokerState]]:
        """Return the last changes of a broker, oldest first."""
        return list(self._brokers.get(broker_id, ()))

    def broker_changes_at(self, offset: int) -> dict[int, Change[BrokerState]]:
        """Return the brokers' changes of the batch at a metadata offset."""
        return {
            broker_id: change
            for broker_id, changes in self._brokers.items()
            for change in changes
            if change.batch.offset == offset
        }

    def fencing(self, broker_id: int, offset: int) -> Change[BrokerState] | None:
        """Return the change that took a broker out of service, if it was fenced before a metadata offset."""
        changes = [each for each in self._brokers.get(broker_id, ()) if each.batch.offset < offset]
        if not changes or _is_in_service(changes[-1].new):
            return None
        return next((each for each in reversed(changes) if _is_in_service(each.old)), changes[-1])

    def fenced_at_ms(self, broker_id: int, reason: str) -> int | None:
        """Return when a broker was last considered dead for a reason, by the controller's wall clock; None: never."""
        cause = Cause("taken_for_dead", broker_id, reason)
        changes = reversed(self._brokers.get(broker_id, ()))
        return next((each.batch.at_ms for each in changes if cause in each.batch.causes), None)

    def counts(self, broker_id: int) -> LeadershipCounts:
        """Return the counts of changes for the partitions that a broker leads."""
        return self._counts[broker_id]

    def reset_to(self, image: MetadataImage) -> None:
        """Forget all changes: a snapshot replaced the state, without its history."""
        self.since_offset = image.offset
        self._partitions.clear()
        self._brokers.clear()
        self._kept = 0

    def add_batch(self, old: MetadataImage, new: MetadataImage, batch: Batch) -> None:
        """Record an applied batch; O(its records)."""
        partitions: dict[tuple[UUID, int], None] = {}
        brokers: dict[int, None] = {}
        for record in batch.records:
            kind = type(record)
            if kind is PartitionChanged or kind is PartitionCreated:
                partitions[record.topic_id, record.partition] = None  # type: ignore[union-attr]
            elif kind in _OF_BROKERS:
                brokers[record.broker_id] = None  # type: ignore[union-attr]
            elif kind is TopicDeleted:
                self._forget(old, record.topic_id)  # type: ignore[union-attr]
        moment = AppliedBatch(
            old.offset,
            batch.at_ms,
            new.controller_id,
            batch.controller_epoch,
            batch.causes,
            len(partitions),
        )
        for broker_id in brokers:
            changes = self._brokers.setdefault(broker_id, [])
            changes.append(Change(moment, old.brokers.get(broker_id), new.brokers.get(broker_id)))
            del changes[:-KEPT_OF_BROKER]
        for key in partitions:
            before, after = _state(old, *key), _state(new, *key)
            if after is not None:
                self._add_change(key, Change(moment, before, after))
                self._count(before, after)

    def _add_change(self, key: tuple[UUID, int], change: Change[PartitionState]) -> None:
        changes = self._partitions.pop(key, [])
        self._kept -= len(changes)
        changes.append(change)
        del changes[:-KEPT_OF_PARTITION]
        self._partitions[key] = changes
        self._kept += len(changes)
        while self._kept > self._most_kept:
            self._kept -= len(self._partitions.pop(next(iter(self._partitions))))

    def _forget(self, old: MetadataImage, topic_id: UUID) -> None:
        topic = old.topic_by_id(topic_id)
        for index in range(len(topic.partitions) if topic else 0):
            self._kept -= len(self._partitions.pop((topic_id, index), ()))

    def _count(self, old: PartitionState | None, new: PartitionState) -> None:
        if old is None or new.leader == NO_BROKER:
            return
        counts = self._counts[new.leader]
        if new.leader_epoch > old.leader_epoch:
            counts.leaderships_gained += 1
            counts.unclean_elections += new.unclean_epoch > old.unclean_epoch
        counts.isr_shrinks += any(each not in new.isr for each in old.isr)
        counts.isr_expands += any(each not in old.isr for each in new.isr)


def _is_in_service(broker: BrokerState | None) -> bool:
    return broker is not None and not broker.fenced


def _state(image: MetadataImage, topic_id: UUID, index: int) -> PartitionState | None:
    topic = image.topic_by_id(topic_id)
    return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None


AnyChange = Change[Any]
