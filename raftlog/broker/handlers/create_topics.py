"""CreateTopics 2-7: each topic succeeds or fails on its own; the answer tells what it got (KIP-525)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raftlog.base.config_describe import describe_topic
from raftlog.base.errors import InvalidReplicaAssignment, InvalidRequest, KafkaError
from raftlog.broker.asking import ask, published, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.requests import CreateTopics, CreateTopicsReply, NewTopic, TopicCreation
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.CREATE_TOPICS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Create topics and wait until this broker knows them."""
    results, wanted = _checked(message)
    if wanted:
        results |= await _created(broker, message, wanted)
    make = response_shapes(API_KEY, request.api_version)
    configs = {topic.name: topic.configs for topic in wanted}
    return make.CreateTopicsResponse(
        throttle_time=0,
        topics=tuple(_result(broker, make, each, configs.get(each.name, {})) for each in results.values()),
    )


def _checked(message: Any) -> tuple[dict[str, TopicCreation], list[NewTopic]]:
    """Return the topics refused already, and those to ask the controller for."""
    times = Counter(topic.name for topic in message.topics)
    refused: dict[str, TopicCreation] = {}
    wanted: list[NewTopic] = []
    for topic in message.topics:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("the topic is named more than once in this request")
            wanted.append(_new_topic(topic))
        except KafkaError as error:
            refused[topic.name] = TopicCreation(topic.name, error.code, error.message)
    return refused, wanted


def _new_topic(topic: Any) -> NewTopic:
    """Numbers of -1 are the broker's to choose in every version: KIP-464 names v4, but KafkaJS sends them in v3."""
    numbers = (topic.num_partitions, topic.replication_factor)
    if topic.assignments and numbers != (-1, -1):
        raise InvalidRequest("both numbers and replica assignments are given; numbers must then be -1")
    assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise InvalidReplicaAssignment("a partition is assigned more than once")
    configs = {each.name: each.value for each in topic.configs}
    if len(configs) < len(topic.configs):
        raise InvalidRequest("a config is given more than once")
    if None in configs.values():
        raise InvalidRequest("a config has no value")
    return NewTopic(topic.name, *numbers, assignments, configs)


async def _created(broker: BrokerContext, message: Any, wanted: list[NewTopic]) -> dict[str, TopicCreation]:
    request = CreateTopics(tuple(wanted), message.validate_only)
    try:
        reply = await ask(broker, request, CreateTopicsReply, timeout_ms=message.timeout)
    except KafkaError as error:
        return {each.name: TopicCreation(each.name, error.code, error.message) for each in wanted}
    if not message.validate_only:
        ids = [each.topic_id for each in reply.results if each.topic_id is not None and not each.error_code]
        await published(broker, lambda image: all(each in image.topic_names for each in ids))
    return {each.name: each for each in reply.results}


def _result(broker: BrokerContext, make: Any, result: TopicCreation, configs: dict[str, str | None]) -> Any:
    if result.error_code:
        return make.CreatableTopicResult(
            name=result.name, error_code=result.error_code, error_message=shown(result.error_message)
        )
    return make.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=_configs(broker, make, configs),
        error_message=None,
    )


def _configs(broker: BrokerContext, make: Any, configs: dict[str, str | None]) -> tuple[Any, ...]:
    image = broker.image()
    entries = describe_topic(
        broker.config,
        {key: value for key, value in configs.items() if value is not None},
        cluster_dynamic=image.config("broker", ""),
        broker_dynamic=image.config("broker", str(broker.config.node_id)),
    )
    return tuple(
        make.CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=each.source,
            is_sensitive=each.sensitive,
        )
        for each in entries
    )
