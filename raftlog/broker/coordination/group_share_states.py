"""Has the share coordinators initialize, delete and summarize the states of a share group's partitions (KIP-932).

Requests are sent to all coordinators at once, and a response names each partition. A request that comes again has no
effect, so whatever fails is left to the next attempt.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import NONE, CoordinatorNotAvailable, KafkaError, from_code
from raftlog.broker.coordination.share_state_client import answer_timeout_s
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders

PARTITIONS_PER_REQUEST: Final = 1_000

Outcomes = dict[SharePartitionKey, Any]
"""The part of a response for each partition, or the KafkaError of it."""


class StateQuestion(NamedTuple):
    """A request about states: its API, and the fields beside the indexes of partitions."""

    api_key: ApiKey
    version: int
    request: str
    topic: str
    fields_of: Callable[[SharePartitionKey], Mapping[str, int]]
    own_fields: Mapping[str, int] = {}
    """Fields of the whole request."""


def initialize_question(state_epoch: int, starts: Mapping[UUID, Mapping[int, int]]) -> StateQuestion:
    """Begin states, or set their start offsets anew. `starts` has these by topic id and partition."""
    return StateQuestion(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        0,
        "InitializeShareGroupStateRequest",
        "InitializeStateData",
        lambda key: {"state_epoch": state_epoch, "start_offset": starts[key.topic_id][key.partition]},
    )


def delete_question(state_epoch: int) -> StateQuestion:
    """Delete states that were begun before an epoch."""
    return StateQuestion(
        ApiKey.DELETE_SHARE_GROUP_STATE,
        0,
        "DeleteShareGroupStateRequest",
        "DeleteStateData",
        lambda _: {},
        {"state_epoch": state_epoch},
    )


SUMMARY_QUESTION: Final = StateQuestion(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    1,
    "ReadShareGroupStateSummaryRequest",
    "ReadStateSummaryData",
    lambda _: {"leader_epoch": -1},
)
"""Read where states are. No leader is fenced."""


async def ask_coordinators(
    broker: LocalBroker,
    question: StateQuestion,
    keys: Iterable[SharePartitionKey],
    leader_of: Callable[[SharePartitionKey], int],
) -> Outcomes:
    """Return the outcome for each of a group's partitions; `keys` come by topic."""
    by_broker: defaultdict[int, list[SharePartitionKey]] = defaultdict(list)
    outcomes: Outcomes = {}

    def route(key: SharePartitionKey) -> None:
        try:
            by_broker[leader_of(key)].append(key)
        except KafkaError as error:
            outcomes[key] = error

    await each_part(broker.env, keys, route)
    requests = [
        _ask(broker, question, broker_id, some)
        for broker_id, all_keys in by_broker.items()
        for some in _slices(all_keys)
    ]
    for answered in await asyncio.gather(*requests):
        outcomes |= answered
    return outcomes


def _slices(keys: Iterable[SharePartitionKey]) -> Iterator[list[SharePartitionKey]]:
    rest = iter(keys)
    while some := list(islice(rest, PARTITIONS_PER_REQUEST)):
        yield some


async def _ask(
    broker: LocalBroker, question: StateQuestion, broker_id: int, keys: list[SharePartitionKey]
) -> Outcomes:
    """Return the outcome for each partition that a broker coordinates."""
    assert broker.links is not None, "the broker server provides it"
    timeout_s = answer_timeout_s(broker.config)
    outcomes: Outcomes = dict.fromkeys(keys, CoordinatorNotAvailable("the share coordinator did not answer"))
    try:
        answer = await broker.links.ask(
            broker_id, question.api_key, question.version, _request(question, keys), timeout_s=timeout_s
        )
    except KafkaError as error:
        return dict.fromkeys(keys, error)
    for topic in answer.results:
        for each in topic.partitions:
            key = SharePartitionKey(keys[0].group_id, topic.topic_id, int(each.partition))
            failed = each.error_code != NONE
            outcomes[key] = from_code(int(each.error_code), each.error_message) if failed else each
    return outcomes


def _request(question: StateQuestion, keys: list[SharePartitionKey]) -> Any:
    make = request_builders(question.api_key, question.version)
    topics = tuple(
        getattr(make, question.topic)(
            topic_id=topic_id,
            partitions=tuple(
                make.PartitionData(partition=each.partition, **question.fields_of(each)) for each in of_topic
            ),
        )
        for topic_id, of_topic in groupby(keys, key=lambda each: each.topic_id)
    )
    return getattr(make, question.request)(group_id=keys[0].group_id, topics=topics, **question.own_fields)
