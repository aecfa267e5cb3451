"""DeleteTopics 1-6: by name, from version 6 also by id (KIP-516)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audited_changes import named
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask_in_parts, change_in_parts, truncate_message
from raftlog.broker.long_work.turns import count_parts, each_part
from raftlog.broker.mutation_quota import within_mutation_quota
from raftlog.broker.rights import CLUSTER, TOPIC, may, refusal
from raftlog.metadata.controller_api import DeleteTopics, TopicRef, TopicResult, TopicResults
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DELETE_TOPICS

_DISABLED_CODE_FROM: Final = 3
"""Older clients do not know TOPIC_DELETION_DISABLED."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Delete topics and wait until this broker's image no longer shows them."""
    results, wanted = await _checked(broker, request, message)
    if wanted and not broker.config.delete_topic_enable:
        code = TopicDeletionDisabled.code
        if request.api_version < _DISABLED_CODE_FROM:
            code = InvalidRequest.code
        results += [
            TopicResult(each.name, each.topic_id, code, "delete.topic.enable is false") for each in wanted
        ]
    else:
        allowed, throttled = await within_mutation_quota(broker, API, request, wanted, partial(_size, broker))
        results += [_failed(*each) for each in throttled]
        results += await _deleted(broker, message, allowed)
    make = response_builders(API_KEY, request.api_version)
    responses = (
        make.DeletableTopicResult(
            name=each.name,
            topic_id=each.topic_id,
            error_code=each.error_code,
            error_message=truncate_message(each.error_message),
        )
        for each in results
    )
    return make.DeleteTopicsResponse(throttle_time=0, responses=responses)


def _asked(message: Any) -> Iterator[TopicRef]:
    if hasattr(message, "topics"):
        return (TopicRef(each.name, each.topic_id) for each in message.topics)
    return map(TopicRef, message.topic_names)


async def _checked(
    broker: BrokerContext, request: RequestContext, message: Any
) -> tuple[list[TopicResult], list[TopicRef]]:
    """Return the topics refused already, and those to ask the controller for."""
    refused: list[TopicResult] = []
    wanted: list[TopicRef] = []
    times = await count_parts(broker.env, _asked(message))

    def check(each: TopicRef) -> None:
        if (each.name is None) == (each.topic_id is None):
            why = "a topic is named either by name or by id"
        elif times[each] > 1:
            why = "the topic is named more than once in this request"
        elif (denied := _denied(broker, request, each)) is not None:
            refused.append(denied)
            return
        else:
            wanted.append(each)
            return
        refused.append(TopicResult(each.name, each.topic_id, InvalidRequest.code, why))

    await each_part(broker.env, times, check)
    return refused, wanted


def _denied(broker: BrokerContext, request: RequestContext, asked: TopicRef) -> TopicResult | None:
    """Return the error of a topic that the sender may not delete.

    A topic given by id is not named to senders that may not describe it.

    The right to delete the cluster includes every topic.
    """
    if may(broker, request, Operation.DELETE, CLUSTER):
        return None
    name = asked.name if asked.topic_id is None else broker.image().topic_names.get(asked.topic_id)
    if name is None or may(broker, request, Operation.DELETE, TOPIC, name, log_if_denied=True):
        return None
    shown = (
        asked.name
        if asked.topic_id is None or not may(broker, request, Operation.DESCRIBE, TOPIC, name)
        else name
    )
    return TopicResult(shown, asked.topic_id, refusal(TOPIC).code, None)


async def _deleted(broker: BrokerContext, message: Any, wanted: list[TopicRef]) -> list[TopicResult]:
    def shown_by(_: list[TopicRef], reply: TopicResults) -> Callable[[MetadataImage], bool]:
        return partial(_shows, [each for each in reply.results if not each.error_code])

    size_of = partial(_size, broker)
    asked = ask_in_parts(
        broker, wanted, DeleteTopics, TopicResults, timeout_ms=message.timeout, size_of=size_of
    )
    return await change_in_parts(broker, asked, failed=_failed, shown_by=shown_by)


def _failed(topic: TopicRef, error: KafkaError) -> TopicResult:
    return TopicResult(topic.name, topic.topic_id, error.code, error.message)


def _size(broker: BrokerContext, wanted: TopicRef) -> int:
    """Return how many partitions go."""
    image = broker.image()
    topic = None if wanted.topic_id is None else image.topic_by_id(wanted.topic_id)
    topic = topic or image.topics.get(wanted.name or "")
    return 0 if topic is None else len(topic.partitions)


def _shows(deleted: list[TopicResult], image: MetadataImage) -> bool:
    return not any(_has(image, each) for each in deleted)


def _has(image: MetadataImage, deleted: TopicResult) -> bool:
    """By id where it is known, since a topic of the same name may exist again by now."""
    if deleted.topic_id is not None:
        return deleted.topic_id in image.topic_names
    return deleted.name in image.topics


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.DELETE, ResourceType.CLUSTER), Right(Operation.DELETE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=Change(lambda _, response: named(response.responses, "name")),
    controllers=True,
    strict_quota_from=5,
)
