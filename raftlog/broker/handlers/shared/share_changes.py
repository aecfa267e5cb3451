"""Carries out what a share group needs of the share coordinators, and reports it to its own coordinator (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from uuid import UUID

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
)
from raftlog.base.turns import in_slices
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.group_share_states import (
    Outcomes,
    StateQuestion,
    delete_question,
    initialize_question,
)
from raftlog.coordinator.consumer.consumer_membership import Partitions
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.share.share_offsets import ShareChangeEnded, ShareStateChange
from raftlog.coordinator.share_state.share_state import SharePartitionKey

RETRY_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Before share coordinators are asked again that are being elected or read their states, seconds."""
NO_RETRY: Final = ()
_COMING: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


def share_keys(group_id: str, partitions: Mapping[UUID, Collection[int]]) -> Iterator[SharePartitionKey]:
    """Yield the share partitions of a group, by topic."""
    for topic_id, indexes in partitions.items():
        for index in sorted(indexes):
            yield SharePartitionKey(group_id, topic_id, index)


async def _listed(broker: BrokerContext, keys: Iterator[SharePartitionKey]) -> tuple[SharePartitionKey, ...]:
    return tuple([each async for each in in_slices(broker.env, keys)])


async def ask_share_coordinators(
    broker: BrokerContext,
    question: StateQuestion,
    keys: tuple[SharePartitionKey, ...],
    *,
    pauses_s: tuple[float, ...] = RETRY_PAUSES_S,
) -> Outcomes:
    """Return the outcome for each partition; whatever fails as a whole fails for each."""
    outcomes = await _ask(broker, question, keys)
    for pause_s in pauses_s:
        coming = tuple(key for key, outcome in outcomes.items() if isinstance(outcome, _COMING))
        if not coming:
            break
        await asyncio.sleep(pause_s)
        outcomes |= await _ask(broker, question, coming)
    return outcomes


async def _ask(
    broker: BrokerContext, question: StateQuestion, keys: tuple[SharePartitionKey, ...]
) -> Outcomes:
    if not keys:
        return {}
    try:
        return await broker.share_states.ask(question, keys)
    except KafkaError as error:
        return dict.fromkeys(keys, error)


async def initialize_states(
    broker: BrokerContext,
    group_id: str,
    state_epoch: int,
    starts: Mapping[UUID, Mapping[int, int]],
    *,
    pauses_s: tuple[float, ...] = RETRY_PAUSES_S,
) -> Outcomes:
    """Begin states with these start offsets."""
    keys = await _listed(broker, share_keys(group_id, starts))
    question = initialize_question(state_epoch, starts)
    return await ask_share_coordinators(broker, question, keys, pauses_s=pauses_s)


async def carry_out(broker: BrokerContext, change: ShareStateChange) -> Outcomes:
    """Carry out a change, and return the outcome for each partition. Raises what the group's coordinator answers."""
    outcomes = await initialize_states(broker, change.group_id, change.state_epoch, change.started)
    keys = await _listed(broker, share_keys(change.group_id, change.deleted))
    outcomes |= await ask_share_coordinators(broker, delete_question(change.state_epoch), keys)
    failed = {
        key.topic_id
        async for key, outcome in in_slices(broker.env, outcomes.items())
        if isinstance(outcome, KafkaError)
    }
    started = await succeeded(broker, outcomes, change.started)
    ended = ShareChangeEnded(change.group_id, started, frozenset(change.deleted) - failed)
    await broker.groups.ask(GroupCoordinator.share_change_ended, ended)
    return outcomes


async def succeeded(broker: BrokerContext, outcomes: Outcomes, wanted: Mapping[UUID, object]) -> Partitions:
    """Return the partitions of some topics with an outcome that is no error."""
    found: dict[UUID, set[int]] = {}
    async for key, outcome in in_slices(broker.env, outcomes.items()):
        if key.topic_id in wanted and not isinstance(outcome, KafkaError):
            found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(indexes) async for topic_id, indexes in in_slices(broker.env, found.items())}
