"""CreateTopics 2-7: each topic succeeds or fails on its own. The response has its configs (KIP-525)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from raftlog.base.config.describe import ConfigEntry, describe_topic
from raftlog.base.errors import InvalidConfig, InvalidReplicaAssignment, InvalidRequest, KafkaError
from raftlog.broker.api import NAMES, Api, Change
from raftlog.broker.audited_changes import named
from raftlog.broker.auto_create import creation_size
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import (
    ask_in_parts,
    change_in_parts,
    truncate_message,
    wait_for_leaders,
)
from raftlog.broker.handlers.shared.config_resources import check_config_names
from raftlog.broker.long_work.turns import Weighed, each_part
from raftlog.broker.mutation_quota import within_mutation_quota
from raftlog.broker.rights import CLUSTER, TOPIC, demand, may, refusal
from raftlog.metadata.controller_api import CreateTopics, CreateTopicsReply, NewTopic, TopicCreation
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CREATE_TOPICS

CONFIGS_SIZE: Final = 10
"""Reporting the configs of a topic takes as long as this many parts of a request."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Create topics and wait until this broker knows them and serves the partitions that it leads."""
    results, wanted = await _checked(broker, request, message)
    allowed, throttled = await within_mutation_quota(
        broker, API, request, wanted, partial(_partitions, broker)
    )
    results |= {each.name: _failed(each, error) for each, error in throttled}
    results |= {each.name: each for each in await _created(broker, message, allowed)}
    make = response_builders(API_KEY, request.api_version)
    configs = {topic.name: topic.configs for topic in wanted}
    configs_of = _TopicConfigs(broker, make)

    def topic(each: TopicCreation) -> Weighed:
        shown = configs_of if may(broker, request, Operation.DESCRIBE_CONFIGS, TOPIC, each.name) else None
        result = _result(make, each, configs.get(each.name, {}), shown)
        return Weighed(result, 1 if each.error_code else CONFIGS_SIZE)

    return make.CreateTopicsResponse(throttle_time=0, topics=(topic(each) for each in results.values()))


async def _checked(
    broker: BrokerContext, request: RequestContext, message: Any
) -> tuple[dict[str, TopicCreation], list[NewTopic]]:
    """Return the topics refused already, and those to ask the controller for."""
    times = Counter([topic.name for topic in message.topics])
    refused: dict[str, TopicCreation] = {}
    wanted: list[NewTopic] = []
    creates_any = may(broker, request, Operation.CREATE, CLUSTER)

    def check(topic: Any) -> None:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("the topic is named more than once in this request")
            if not creates_any:
                demand(broker, request, Operation.CREATE, TOPIC, topic.name)
            wanted.append(_new_topic(topic))
        except KafkaError as error:
            refused[topic.name] = TopicCreation(topic.name, error.code, error.message)

    await each_part(broker.env, message.topics, check)
    return refused, wanted


def _new_topic(topic: Any) -> NewTopic:
    """-1 means the broker's default in every version: KIP-464 names v4, but KafkaJS sends it in v3."""
    numbers = (topic.num_partitions, topic.replication_factor)
    if topic.assignments and numbers != (-1, -1):
        raise InvalidRequest("with replica assignments, num_partitions and replication_factor must be -1")
    assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise InvalidReplicaAssignment("a partition is assigned more than once")
    check_config_names(topic.configs)
    configs = {each.name: each.value for each in topic.configs}
    if None in configs.values():
        nameless = next(name for name, value in configs.items() if value is None)
        raise InvalidConfig(f"{nameless}: a config of a new topic needs a value")
    return NewTopic(topic.name, *numbers, assignments, configs)


def _failed(topic: NewTopic, error: KafkaError) -> TopicCreation:
    return TopicCreation(topic.name, error.code, error.message)


async def _created(broker: BrokerContext, message: Any, wanted: list[NewTopic]) -> list[TopicCreation]:
    asked = ask_in_parts(
        broker,
        wanted,
        lambda topics: CreateTopics(topics, message.validate_only),
        CreateTopicsReply,
        timeout_ms=message.timeout,
        size_of=partial(creation_size, broker),
    )
    shown_by = None if message.validate_only else lambda _, reply: partial(_shows, reply.results)
    results = await change_in_parts(broker, asked, failed=_failed, shown_by=shown_by)
    if not message.validate_only and not all(each.error_code for each in results):
        await wait_for_leaders(broker)
    return results


def _partitions(broker: BrokerContext, topic: NewTopic) -> int:
    """Return how many partitions are created; 0 for a topic that exists."""
    if topic.name in broker.image().topics:
        return 0
    if topic.assignments:
        return len(topic.assignments)
    return broker.config.num_partitions if topic.num_partitions == -1 else topic.num_partitions


def _shows(created: tuple[TopicCreation, ...], image: MetadataImage) -> bool:
    return all(each.error_code or each.topic_id in image.topic_names for each in created)


def _result(
    make: Any, result: TopicCreation, configs: dict[str, str | None], configs_of: _TopicConfigs | None
) -> Any:
    """Return the result of a topic; without `configs_of` the sender may not see its configs (KIP-525)."""
    if result.error_code:
        return make.CreatableTopicResult(
            name=result.name,
            error_code=result.error_code,
            error_message=truncate_message(result.error_message),
        )
    if configs_of is None:
        return make.CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id,
            error_message=None,
            topic_config_error_code=refusal(TOPIC).code,
        )
    return make.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=configs_of(configs),
        error_message=None,
    )


class _TopicConfigs:
    """Returns the configs of topics for the response.

    Equal configs share one object: the configs of five thousand topics took sixty megabytes.
    """

    def __init__(self, broker: BrokerContext, make: Any) -> None:
        image = broker.image()
        self._config = broker.config
        self._cluster_dynamic = image.config("broker", "")
        self._broker_dynamic = image.config("broker", str(broker.config.node_id))
        self._make = make
        self._entries: dict[ConfigEntry, Any] = {}
        self._described: dict[tuple[tuple[str, str | None], ...], tuple[Any, ...]] = {}
        """By the configs that a topic was given."""

    def __call__(self, given: dict[str, str | None]) -> tuple[Any, ...]:
        key = tuple(given.items())
        found = self._described.get(key)
        if found is None:
            found = self._described[key] = tuple(self._entry(each) for each in self._describe(given))
        return found

    def _describe(self, given: dict[str, str | None]) -> Iterable[ConfigEntry]:
        return describe_topic(
            self._config,
            {key: value for key, value in given.items() if value is not None},
            cluster_dynamic=self._cluster_dynamic,
            broker_dynamic=self._broker_dynamic,
        )

    def _entry(self, each: ConfigEntry) -> Any:
        found = self._entries.get(each)
        if found is None:
            found = self._entries[each] = self._make.CreatableTopicConfigs(
                name=each.name,
                value=each.value,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=each.sensitive,
            )
        return found


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.CREATE, ResourceType.CLUSTER), Right(Operation.CREATE, ResourceType.TOPIC))
    ),
    max_parts=NAMES,
    audit=Change(lambda _, response: named(response.topics, "name")),
    controllers=True,
    strict_quota_from=6,
    prepared=(7,),
)
