"""InitializeShareGroupState 0: a group's coordinator has states of share partitions begun here (KIP-932).

Only other brokers send it. Each partition has its own error code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import together
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import InitializeState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import BrokersOnly

API_KEY: Final = ApiKey.INITIALIZE_SHARE_GROUP_STATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all states are committed."""
    make = response_builders(API_KEY, request.api_version)

    def begin(wanted: InitializeState) -> asyncio.Future[Any]:
        try:
            return broker.share_states.initialize(wanted)
        except KafkaError as error:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused

    ended = await together(broker.env, _wanted(message), begin)
    results = iter(ended)

    def partitions(topic: Any) -> Iterator[Any]:
        for _ in topic.partitions:
            wanted, error = next(results)
            failed = isinstance(error, KafkaError)
            yield make.PartitionResult(
                partition=wanted.key.partition,
                error_code=error.code if failed else 0,
                error_message=error.message if failed else None,
            )

    return make.InitializeShareGroupStateResponse(
        results=(
            make.InitializeStateResult(topic_id=topic.topic_id, partitions=partitions(topic))
            for topic in message.topics
        )
    )


def _wanted(message: Any) -> Iterator[InitializeState]:
    for topic in message.topics:
        for each in topic.partitions:
            key = SharePartitionKey(message.group_id, topic.topic_id, each.partition)
            yield InitializeState(key, each.state_epoch, each.start_offset)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error for each partition."""
    make = response_builders(API_KEY, request.api_version)
    return make.InitializeShareGroupStateResponse(
        results=tuple(
            make.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    make.PartitionResult(partition=each.partition, error_code=error.code)
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=BrokersOnly(),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
