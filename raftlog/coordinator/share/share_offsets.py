"""Decisions of administrators about share groups without members: alter and delete offsets, delete the group (KIP-932).

Each change begins a group epoch. States are initialized and deleted in it, so the share coordinators fence leaders that
have read the former states, and recognise requests that come late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

import msgspec

from raftlog.base.errors import GroupMaxSizeReached, NonEmptyGroup
from raftlog.coordinator.consumer.consumer_membership import Partitions
from raftlog.coordinator.consumer.decision_builder import MAX_SUBSCRIBED_TOPICS
from raftlog.coordinator.share.share_heartbeat import ShareDecisionBuilder
from raftlog.coordinator.share.share_membership import (
    ShareStates,
    ShareTopic,
    minus,
    union,
    without,
)


class AlterShareOffsets(msgspec.Struct, frozen=True):
    """AlterShareGroupOffsets: by topic id the start offset of each partition. All of them exist."""

    group_id: str
    topics: Mapping[UUID, Mapping[int, int]]


class DeleteShareOffsets(msgspec.Struct, frozen=True):
    """DeleteShareGroupOffsets. `topic_ids` None: of all topics, since the group is to be deleted."""

    group_id: str
    topic_ids: frozenset[UUID] | None


class ShareStateChange(msgspec.Struct, frozen=True):
    """Work for share coordinators: initialize states with these start offsets, or delete states."""

    group_id: str
    state_epoch: int
    started: Mapping[UUID, Mapping[int, int]] = {}
    deleted: Partitions = {}

    def __bool__(self) -> bool:
        return bool(self.started or self.deleted)


class ShareChangeEnded(msgspec.Struct, frozen=True):
    """The result of a `ShareStateChange`: the states that were initialized, and the topics with states deleted."""

    group_id: str
    started: Partitions = {}
    deleted: frozenset[UUID] = frozenset()


def decide_alter_offsets(builder: ShareDecisionBuilder, request: AlterShareOffsets) -> ShareStateChange:
    """Begin to set start offsets. Raise NonEmptyGroup, or GroupMaxSizeReached for more topics than a group reads.

    States that are initialized already stay so, whether or not the change succeeds.
    """
    _check_empty(builder)
    if len(request.topics) > MAX_SUBSCRIBED_TOPICS:
        raise GroupMaxSizeReached(f"a group has offsets of at most {MAX_SUBSCRIBED_TOPICS} topics")
    states, topics = builder.states, builder.context.image.topic_names
    begun = {
        topic_id: ShareTopic(name, frozenset(offsets))
        for topic_id, offsets in request.topics.items()
        if (name := topics.get(topic_id)) is not None
    }
    builder.states = ShareStates(
        union(states.initializing, minus(begun, states.initialized)),
        states.initialized,
        without(states.deleting, begun),
    )
    builder.bump_group_epoch()
    return ShareStateChange(builder.group_id, builder.state.epoch, started=request.topics)


def decide_delete_states(builder: ShareDecisionBuilder, request: DeleteShareOffsets) -> ShareStateChange:
    """Begin to delete the states of topics; topics without offsets are left out. Raise NonEmptyGroup.

    A topic whose deletion has failed before is deleted again.
    """
    _check_empty(builder)
    states, topics = builder.states, builder.context.image.topic_names
    wanted, is_all = request.topic_ids, request.topic_ids is None
    known = {**states.deleting, **{topic_id: it.name for topic_id, it in _held(states, initializing=is_all)}}
    gone = {topic_id: name for topic_id, name in known.items() if wanted is None or topic_id in wanted}
    if not gone:
        return ShareStateChange(builder.group_id, builder.state.epoch)
    deleted = {topic_id: _partitions(builder, topic_id) for topic_id in gone if topic_id in topics}
    builder.states = ShareStates(
        without(states.initializing, gone),
        without(states.initialized, gone),
        {**without(states.deleting, gone), **{topic_id: gone[topic_id] for topic_id in deleted}},
    )
    builder.bump_group_epoch()
    return ShareStateChange(builder.group_id, builder.state.epoch, deleted=deleted)


def decide_change_ended(builder: ShareDecisionBuilder, ended: ShareChangeEnded) -> None:
    """Record what a change has done."""
    builder.note_made(ended.started)
    states = builder.states
    if states.deleting.keys() & ended.deleted:
        builder.states = ShareStates(
            states.initializing, states.initialized, without(states.deleting, ended.deleted)
        )


def _check_empty(builder: ShareDecisionBuilder) -> None:
    if builder.state.members:
        raise NonEmptyGroup(f"group {builder.group_id} has members")


def _held(states: ShareStates, *, initializing: bool) -> Iterator[tuple[UUID, ShareTopic]]:
    yield from states.initialized.items()
    if initializing:
        yield from states.initializing.items()


def _partitions(builder: ShareDecisionBuilder, topic_id: UUID) -> frozenset[int]:
    """Return the partitions of a topic that may have a state; of a deletion that failed, all of them."""
    states, image = builder.states, builder.context.image
    if topic_id in states.deleting:
        return frozenset(range(len(image.topics[image.topic_names[topic_id]].partitions)))
    held = (topics[topic_id] for topics in (states.initialized, states.initializing) if topic_id in topics)
    return frozenset().union(*(each.partitions for each in held))
