"""Deletions from a group in slices, because no batch holds their tombstones: offsets of deleted topics, or the whole
group.

Each slice is a decision of its own, appended whole or not at all. The rest is soft state: a new coordinator finds a
group with fewer offsets, which the client deletes again. It recognises offsets of deleted topics by the topics' ids.
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
"""They take at most this part of message.max.bytes: a tombstone is larger than its key."""

KEY_BYTES: Final = 40
"""The size of a tombstone beside its names."""

PAUSE_S: Final = 0.01
"""Pause between two slices for other work of the loop."""

RETRY_S: Final = 0.5
"""A slice that the journal refused is retried after this."""


class TombstoneBatch(NamedTuple):
    """Partitions with tombstones in one batch. `is_all`: there are no others."""

    topic_partitions: list[PartitionKey]
    is_all: bool


def max_tombstone_batch_bytes(message_max_bytes: int) -> int:
    """Return how many bytes the keys of one batch may take."""
    return min(TOMBSTONE_BATCH_BYTES, message_max_bytes // SLICE_SHARE)


def next_tombstone_batch(
    group_id: str, topic_partitions: Iterable[PartitionKey], *, most_bytes: int = TOMBSTONE_BATCH_BYTES
) -> TombstoneBatch:
    """Return as many partitions as fit into one batch of tombstones, at least one; it stops there."""
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
    """Return the tombstones of a group's other keys than offsets."""
    described = (GroupChanged(group.group_id, None),) if group.has_metadata else ()
    consumer = () if group.consumer is None else consumer_group_tombstones(group.group_id, group.consumer)
    if group.share is None:
        return (*described, *consumer)
    from raftlog.coordinator.share.share_membership import share_group_tombstones

    return share_group_tombstones(group.group_id, group.share)


@dataclass(slots=True)
class PendingDeletion:
    """The pending deletion of one group. `topics`: delete their offsets. `deletes_group`: delete the whole group; then
    call `answers`.
    """

    topics: dict[str, frozenset[UUID | None]] = field(default_factory=dict)
    deletes_group: bool = False
    answers: list[Answer] = field(default_factory=list)
    last_error: KafkaError | None = None
    """The error of the last slice that the journal refused."""
    most_bytes: int = TOMBSTONE_BATCH_BYTES
    """The size of the keys of one slice."""

    def add_topics(self, topics: DeletedTopics) -> None:
        """Add topics with offsets to delete."""
        for name, ids in topics.items():
            self.topics[name] = self.topics.get(name, frozenset()).union(ids)

    def remaining(self, group: Group) -> Iterator[PartitionKey]:
        """Yield the partitions that are still to be deleted."""
        return group.partitions() if self.deletes_group else group.partitions_of(self.topics)

    def without_deleted(self, group: Group) -> Group:
        """Return the group as if the offsets of deleted topics were gone already."""
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
        """Remove the next slice; the last slice of a deleted group removes the group."""
        batch = next_tombstone_batch(group.group_id, self.remaining(group), most_bytes=self.most_bytes)
        gone = tuple(OffsetCommitted(group.group_id, *tp, None) for tp in batch.topic_partitions)
        return Decision((*gone, *group_tombstones(group)) if self.deletes_group and batch.is_all else gone)

    def is_done(self, group: Group) -> bool:
        return not group.exists if self.deletes_group else next(self.remaining(group), None) is None

    def cancel_group_deletion(self) -> PendingDeletion:
        """Keep the group after all; return the callbacks of its deletion. Other deletions continue."""
        wanted = PendingDeletion(deletes_group=self.deletes_group, answers=self.answers)
        self.deletes_group, self.answers = False, []
        return wanted

    def answer(self, reply: object) -> None:
        """Answer all requests to delete the group."""
        answers, self.answers = self.answers, []
        for each in answers:
            each(reply)
