"""A share group as a value, and the effect of its records.

Members, epochs and assignments are a consumer group's (`consumer.consumer_membership`), in records with other keys. A
share group also knows which partitions have a state in the share coordinator: only those are assigned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

import msgspec

from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    ConsumerMembershipBuilder,
    ConsumerRecord,
    consumer_group_tombstones,
)

Topic = TypeVar("Topic")


class ShareTopic(msgspec.Struct, frozen=True):
    """Partitions of a topic. The name is for readers of the record: the id is what counts."""

    name: str
    partitions: frozenset[int]


class ShareStates(msgspec.Struct, frozen=True):
    """The partitions with a state in the share coordinator, and with a state that is being initialized, by topic id.

    `deleting` has topics whose states are being deleted, or whose deletion failed.
    """

    initializing: Mapping[UUID, ShareTopic] = {}
    initialized: Mapping[UUID, ShareTopic] = {}
    deleting: Mapping[UUID, str] = {}


NO_STATES = ShareStates()


def without(topics: Mapping[UUID, Topic], gone: Collection[UUID]) -> Mapping[UUID, Topic]:
    """Return the topics without some of them."""
    return {topic_id: it for topic_id, it in topics.items() if topic_id not in gone}


def union(topics: Mapping[UUID, ShareTopic], more: Mapping[UUID, ShareTopic]) -> Mapping[UUID, ShareTopic]:
    """Return the partitions of both."""
    found = dict(topics)
    for topic_id, it in more.items():
        had = topics[topic_id].partitions if topic_id in topics else frozenset()
        found[topic_id] = ShareTopic(it.name, had | it.partitions)
    return found


def minus(topics: Mapping[UUID, ShareTopic], less: Mapping[UUID, ShareTopic]) -> Mapping[UUID, ShareTopic]:
    """Return the partitions of the first that the second lacks."""
    found = {}
    for topic_id, it in topics.items():
        left = it.partitions - (less[topic_id].partitions if topic_id in less else frozenset())
        if left:
            found[topic_id] = ShareTopic(it.name, left)
    return found


class ShareStatesChanged(msgspec.Struct, frozen=True):
    """All states of a group; None: it has ended."""

    group_id: str
    states: ShareStates | None


class ShareRecord(msgspec.Struct, frozen=True):
    """A record of a share group. Most are a consumer group's, under another key."""

    record: ConsumerRecord | ShareStatesChanged

    @property
    def group_id(self) -> str:
        return self.record.group_id


class ShareMembership(msgspec.Struct, frozen=True):
    """A share group. `consumer` has its epochs, members and assignments."""

    consumer: ConsumerMembership
    states: ShareStates = NO_STATES

    @property
    def has_states(self) -> bool:
        """Whether share coordinators may have states of this group."""
        return self.states != NO_STATES

    @property
    def state(self) -> str:
        return "Stable" if self.consumer.members else "Empty"


class ShareMembershipBuilder:
    """A ShareMembership during changes."""

    __slots__ = ("_consumer", "_states")

    def __init__(self, membership: ShareMembership | None = None) -> None:
        self._consumer = ConsumerMembershipBuilder(membership.consumer if membership else None)
        self._states = membership.states if membership else NO_STATES

    def apply(self, record: ShareRecord) -> None:
        if isinstance(record.record, ShareStatesChanged):
            self._states = record.record.states or NO_STATES
        else:
            self._consumer.apply(record.record)

    def build(self) -> ShareMembership | None:
        """Return the value; None for a group without an epoch."""
        consumer = self._consumer.build()
        return None if consumer is None else ShareMembership(consumer, self._states)


def apply_share(membership: ShareMembership | None, records: Iterable[ShareRecord]) -> ShareMembership | None:
    """Return the share group after the records; None if it does not exist."""
    builder = ShareMembershipBuilder(membership)
    for record in records:
        builder.apply(record)
    return builder.build()


def share_group_tombstones(group_id: str, membership: ShareMembership) -> tuple[ShareRecord, ...]:
    """End all that the journal holds of a share group, its epoch last."""
    records = (
        ShareStatesChanged(group_id, None),
        *consumer_group_tombstones(group_id, membership.consumer),
    )
    return tuple(map(ShareRecord, records))
