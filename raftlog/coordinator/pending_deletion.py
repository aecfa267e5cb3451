"""Deletions from a group that are made bit by bit, because no batch holds their tombstones: deleted topics, or all
there is.

Each slice is a decision of its own, appended whole or not at all. The rest is soft state: a new coordinator finds a
group with fewer offsets, which the client deletes again. Those of deleted topics it knows by the topics' ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from raftlog.base.errors import KafkaError
from raftlog.base.machine import Answer, Decision
from raftlog.coordinator.consumer.consumer_membership import consumer_group_tombstones
from raftlog.coordinator.group import (
    CommittedOffset,
    DeletedTopics,
    Group,
    GroupChanged,
    GroupRecord,
    OffsetCommitted,
)
from raftlog.coordinator.partition_map import PartitionKey

TOMBSTONES_PER_BATCH: Final = 1_000
"""Tombstones of one batch; a few milliseconds of work."""

TOMBSTONE_BATCH_BYTES: Final = 256 * 1024
"""About what the keys of one batch may take at most."""

SLICE_SHARE: Final = 4
"""They take so small a part of message.max.bytes at most: a tombstone has more than its key."""

KEY_BYTES: Final = 40
"""The size of a tombstone beside its names."""

PAUSE_S: Final = 0.01
"""Between two slices others have the loop."""

RETRY_S: Final = 0.5
"""A slice that the journal did not take is tried again after this."""


class TombstoneBatch(NamedTuple):
    """Partitions whose tombstones go in one batch. `is_all`: there were no others."""

    topic_partitions: list[PartitionKey]
    is_all: bool


def max_tombstone_batch_bytes(message_max_bytes: int) -> int:
    """Return what the keys of one batch may take."""
    return min(TOMBSTONE_BATCH_BYTES, message_max_bytes // SLICE_SHARE)


def next_tombstone_batch(
    group_id: str, topic_partitions: Iterable[PartitionKey], *, most_bytes: int = TOMBSTONE_BATCH_BYTES
) -> TombstoneBatch:
    """Return as many partitions as the tombstones of one batch may be about, at least one; no others are looked at."""
    taken: list[PartitionKey] = []
    left = most_bytes
    base = len(group_id.encode()) + KEY_BYTES
    for tp in topic_partitions:
        left -= base + len(tp[0].encode())
        if taken and (left < 0 or len(taken) == TOMBSTONES_PER_BATCH):
            return TombstoneBatch(taken, is_all=False)
        taken.append(tp)
    return TombstoneBatch(taken, is_all=True)


def group_tombstones(group: Group) -> tuple[GroupRecord, ...]:
    """Return the tombstones of all that the journal holds of a group beside its offsets."""
    described = (GroupChanged(group.group_id, None),) if group.has_metadata else ()
    consumer = () if group.consumer is None else consumer_group_tombstones(group.group_id, group.consumer)
    return (*described, *consumer)


@dataclass(slots=True)
class PendingDeletion:
    """One group's. `topics`: whose offsets go. `deletes_group`: all goes, and the group with it; then `answers` hear
    of it.
    """

    topics: dict[str, frozenset[UUID | None]] = field(default_factory=dict)
    deletes_group: bool = False
    answers: list[Answer] = field(default_factory=list)
    last_error: KafkaError | None = None
    """Why the journal took no slice, when it last took none."""
    most_bytes: int = TOMBSTONE_BATCH_BYTES
    """The size of the keys of one slice."""

    def add_topics(self, topics: DeletedTopics) -> None:
        """The offsets of these topics go too."""
        for name, ids in topics.items():
            self.topics[name] = self.topics.get(name, frozenset()).union(ids)

    def remaining(self, group: Group) -> Iterator[PartitionKey]:
        """Yield the partitions that still have to go."""
        return group.partitions() if self.deletes_group else group.partitions_of(self.topics)

    def without_deleted(self, group: Group) -> Group:
        """Return the group without the offsets of deleted topics, as if those were gone already."""
        if next(group.partitions_of(self.topics), None) is None:
            return group
        pending = {
            producer_id: offsets.without(self.topics, lambda topic, each: self._goes(topic, each.committed))
            for producer_id, offsets in group.pending.items()
        }
        return msgspec.structs.replace(
            group,
            offsets=group.offsets.without(self.topics, self._goes),
            pending={producer_id: offsets for producer_id, offsets in pending.items() if offsets},
        )

    def _goes(self, topic: str, committed: CommittedOffset) -> bool:
        return committed.topic_id in self.topics[topic]

    def decide_next_batch(self, group: Group) -> Decision:
        """Remove the next slice; with the last one of a group that ends, the group."""
        batch = next_tombstone_batch(group.group_id, self.remaining(group), most_bytes=self.most_bytes)
        gone = tuple(OffsetCommitted(group.group_id, *tp, None) for tp in batch.topic_partitions)
        return Decision((*gone, *group_tombstones(group)) if self.deletes_group and batch.is_all else gone)

    def is_done(self, group: Group) -> bool:
        return not group.exists if self.deletes_group else next(self.remaining(group), None) is None

    def cancel_group_deletion(self) -> PendingDeletion:
        """The group stays after all; return who has to be told. Other deletions stay to be done."""
        wanted = PendingDeletion(deletes_group=self.deletes_group, answers=self.answers)
        self.deletes_group, self.answers = False, []
        return wanted

    def answer(self, reply: object) -> None:
        """Tell everybody who wanted the group gone."""
        answers, self.answers = self.answers, []
        for each in answers:
            each(reply)
