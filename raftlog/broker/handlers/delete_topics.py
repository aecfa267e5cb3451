"""DeleteTopics 1-6: by name, from version 6 also by id (KIP-516)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from raftlog.broker.asking import ask, published, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import DeleteTopics, TopicRef, TopicResult, TopicResults
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DELETE_TOPICS

_DISABLED_CODE_FROM: Final = 3
"""Older clients do not know TOPIC_DELETION_DISABLED."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Delete topics and wait until this broker has forgotten them."""
    results, wanted = _checked(request.api_version, _asked(message))
    if wanted and not broker.config.delete_topic_enable:
        code = TopicDeletionDisabled.code
        if request.api_version < _DISABLED_CODE_FROM:
            code = InvalidRequest.code
        results += [
            TopicResult(each.name, each.topic_id, code, "delete.topic.enable is false") for each in wanted
        ]
    elif wanted:
        results += await _deleted(broker, message, wanted)
    make = response_shapes(API_KEY, request.api_version)
    return make.DeleteTopicsResponse(
        throttle_time=0,
        responses=tuple(
            make.DeletableTopicResult(
                name=each.name,
                topic_id=each.topic_id,
                error_code=each.error_code,
                error_message=shown(each.error_message),
            )
            for each in results
        ),
    )


def _asked(message: Any) -> list[TopicRef]:
    if hasattr(message, "topics"):
        return [TopicRef(each.name, each.topic_id) for each in message.topics]
    return [TopicRef(name) for name in message.topic_names]


def _checked(version: int, asked: list[TopicRef]) -> tuple[list[TopicResult], list[TopicRef]]:
    """Return the topics refused already, and those to ask the controller for."""
    refused: list[TopicResult] = []
    wanted: list[TopicRef] = []
    for each in dict.fromkeys(asked):
        if (each.name is None) == (each.topic_id is None):
            why = "a topic is named either by name or by id"
        elif asked.count(each) > 1:
            why = "the topic is named more than once in this request"
        else:
            wanted.append(each)
            continue
        refused.append(TopicResult(each.name, each.topic_id, InvalidRequest.code, why))
    return refused, wanted


async def _deleted(broker: BrokerContext, message: Any, wanted: list[TopicRef]) -> list[TopicResult]:
    try:
        reply = await ask(broker, DeleteTopics(tuple(wanted)), TopicResults, timeout_ms=message.timeout)
    except KafkaError as error:
        return [TopicResult(each.name, each.topic_id, error.code, error.message) for each in wanted]
    gone = [each for each in reply.results if not each.error_code]
    await published(broker, lambda image: not any(_has(image, each) for each in gone))
    return list(reply.results)


def _has(image: MetadataImage, deleted: TopicResult) -> bool:
    """By id where it is known, since a topic of the same name may exist again by now."""
    if deleted.topic_id is not None:
        return deleted.topic_id in image.topic_names
    return deleted.name in image.topics
