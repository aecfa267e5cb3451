"""CreatePartitions 0-3: more partitions for existing topics (KIP-195)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audited_changes import named
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import (
    ask_in_parts,
    change_in_parts,
    truncate_message,
    wait_for_leaders,
)
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.mutation_quota import within_mutation_quota
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.metadata.controller_api import CreatePartitions, NewPartitions, TopicResult, TopicResults
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CREATE_PARTITIONS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Add partitions and wait until this broker's image shows them."""
    times = Counter([topic.name for topic in message.topics])
    twice = "the topic is named more than once in this request"
    results = [
        TopicResult(name, None, InvalidRequest.code, twice) for name, count in times.items() if count > 1
    ]
    single = [name for name, count in times.items() if count == 1]
    allowed = await among(broker, request, Operation.ALTER, TOPIC, single, log_if_denied=True)
    denied = refusal(TOPIC)
    results += [
        TopicResult(name, None, denied.code, denied.message) for name in single if name not in allowed
    ]
    named = [topic for topic in message.topics if topic.name in allowed]
    wanted = await each_part(broker.env, named, _new_partitions)
    may_grow, throttled = await within_mutation_quota(broker, API, request, wanted, partial(_size, broker))
    results += [_failed(*each) for each in throttled]
    results += await _grown(broker, message, may_grow)
    make = response_builders(API_KEY, request.api_version)
    responses = (
        make.CreatePartitionsTopicResult(
            name=each.name, error_code=each.error_code, error_message=truncate_message(each.error_message)
        )
        for each in results
    )
    return make.CreatePartitionsResponse(throttle_time=0, results=responses)


def _new_partitions(topic: Any) -> NewPartitions:
    if topic.assignments is None:
        return NewPartitions(topic.name, topic.count)
    return NewPartitions(topic.name, topic.count, tuple(each.broker_ids for each in topic.assignments))


async def _grown(broker: BrokerContext, message: Any, wanted: list[NewPartitions]) -> list[TopicResult]:
    def shown_by(some: list[NewPartitions], reply: TopicResults) -> Callable[[MetadataImage], bool]:
        failed = {each.name for each in reply.results if each.error_code}
        return partial(_shows, [each for each in some if each.name not in failed])

    asked = ask_in_parts(
        broker,
        wanted,
        lambda topics: CreatePartitions(topics, message.validate_only),
        TopicResults,
        timeout_ms=message.timeout,
        size_of=partial(_size, broker),
    )
    shown = None if message.validate_only else shown_by
    results = await change_in_parts(broker, asked, failed=_failed, shown_by=shown)
    if not message.validate_only and not all(each.error_code for each in results):
        await wait_for_leaders(broker)
    return results


def _failed(topic: NewPartitions, error: KafkaError) -> TopicResult:
    return TopicResult(topic.name, None, error.code, error.message)


def _size(broker: BrokerContext, wanted: NewPartitions) -> int:
    """Return how many partitions are added."""
    topic = broker.image().topics.get(wanted.name)
    return 0 if topic is None else wanted.total - len(topic.partitions)


def _shows(grown: list[NewPartitions], image: MetadataImage) -> bool:
    topics = ((each, image.topics.get(each.name)) for each in grown)
    return all(topic is None or len(topic.partitions) >= each.total for each, topic in topics)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.ALTER, ResourceType.TOPIC),)),
    max_parts=IN_TURNS,
    audit=Change(lambda _, response: named(response.results, "name")),
    controllers=True,
    strict_quota_from=3,
)
