"""The shape that requests about states of share partitions have in common: a group, and partitions by topic id.

Only other brokers send them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, Handler, RequestContext
from raftlog.broker.long_work.turns import together
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import BrokersOnly

_NAMES: Final[dict[int, tuple[str, str]]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ("InitializeShareGroupStateResponse", "InitializeStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE: ("ReadShareGroupStateResponse", "ReadStateResult"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ("WriteShareGroupStateResponse", "WriteStateResult"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ("DeleteShareGroupStateResponse", "DeleteStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
        "ReadShareGroupStateSummaryResponse",
        "ReadStateSummaryResult",
    ),
}
"""The names of a response, and of its part for a topic."""

Begin = Callable[[SharePartitionKey, Any], asyncio.Future[Any]]
"""(key, the request's partition) → the future outcome. May raise KafkaError at once."""


async def answer_partitions(
    broker: BrokerContext,
    request: RequestContext,
    message: Any,
    begin: Begin,
    fields: Callable[[Any, Any], dict[str, Any]] = lambda make, outcome: {},
    *,
    note: Callable[[Any], None] = lambda outcome: None,
) -> Any:
    """Return the response once all partitions have their outcome, each with its own error.

    `fields` returns the fields of a successful partition, beside its index. `note` is called with its outcome before.
    """
    make = response_builders(request.api_key, request.api_version)
    ended = await together(broker.env, _partitions(message), partial(_begin, begin))
    for _, outcome in ended:
        if not isinstance(outcome, KafkaError):
            note(outcome)
    outcomes = iter(ended)

    def results(topic: Any) -> Iterator[Any]:
        for each in topic.partitions:
            outcome = next(outcomes)[1]
            if isinstance(outcome, KafkaError):
                yield make.PartitionResult(
                    partition=each.partition, error_code=outcome.code, error_message=outcome.message
                )
            else:
                yield make.PartitionResult(partition=each.partition, **fields(make, outcome))

    return _response(make, request.api_key, message.topics, results)


def _partitions(message: Any) -> Iterator[tuple[SharePartitionKey, Any]]:
    for topic in message.topics:
        for each in topic.partitions:
            yield SharePartitionKey(message.group_id, topic.topic_id, each.partition), each


def _begin(begin: Begin, part: tuple[SharePartitionKey, Any]) -> asyncio.Future[Any]:
    try:
        return begin(*part)
    except KafkaError as error:
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(error)
        return refused


def _response(make: Any, api_key: int, topics: Iterable[Any], results: Callable[[Any], Iterator[Any]]) -> Any:
    response, topic_result = _NAMES[api_key]
    of_topic = getattr(make, topic_result)
    return getattr(make, response)(
        results=(of_topic(topic_id=each.topic_id, partitions=results(each)) for each in topics)
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error for each partition."""
    make = response_builders(request.api_key, request.api_version)

    def results(topic: Any) -> Iterator[Any]:
        for each in topic.partitions:
            yield make.PartitionResult(
                partition=each.partition, error_code=error.code, error_message=error.message
            )

    return _response(make, request.api_key, message.topics, results)


def share_state_api(api_key: ApiKey, handle: Handler) -> Api:
    """Return the row of an API."""
    return Api(
        key=api_key,
        handle=handle,
        error_response=error_response,
        needs=BrokersOnly(),
        max_parts=IN_TURNS,
        audit=NoChange(),
        controllers=False,
        overlaps=True,
    )
