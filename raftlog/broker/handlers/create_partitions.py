"""CreatePartitions 0-3: more partitions for existing topics (KIP-195)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.asking import ask, published, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import CreatePartitions, NewPartitions, TopicResult, TopicResults
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.CREATE_PARTITIONS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Grow topics and wait until this broker knows the new partitions."""
    times = Counter(topic.name for topic in message.topics)
    twice = "the topic is named more than once in this request"
    results = [
        TopicResult(name, None, InvalidRequest.code, twice) for name, count in times.items() if count > 1
    ]
    wanted = [_new_partitions(topic) for topic in message.topics if times[topic.name] == 1]
    if wanted:
        results += await _grown(broker, message, wanted)
    make = response_shapes(API_KEY, request.api_version)
    return make.CreatePartitionsResponse(
        throttle_time=0,
        results=tuple(
            make.CreatePartitionsTopicResult(
                name=each.name, error_code=each.error_code, error_message=shown(each.error_message)
            )
            for each in results
        ),
    )


def _new_partitions(topic: Any) -> NewPartitions:
    if topic.assignments is None:
        return NewPartitions(topic.name, topic.count)
    return NewPartitions(topic.name, topic.count, tuple(each.broker_ids for each in topic.assignments))


async def _grown(broker: BrokerContext, message: Any, wanted: list[NewPartitions]) -> list[TopicResult]:
    request = CreatePartitions(tuple(wanted), message.validate_only)
    try:
        reply = await ask(broker, request, TopicResults, timeout_ms=message.timeout)
    except KafkaError as error:
        return [TopicResult(each.name, None, error.code, error.message) for each in wanted]
    if not message.validate_only:
        failed = {each.name for each in reply.results if each.error_code}
        grown = [each for each in wanted if each.name not in failed]
        await published(broker, lambda image: all(_has(image, each) for each in grown))
    return list(reply.results)


def _has(image: MetadataImage, grown: NewPartitions) -> bool:
    topic = image.topics.get(grown.name)
    return topic is None or len(topic.partitions) >= grown.total
