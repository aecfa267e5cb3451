"""Configs of topics, brokers and groups: values in force, their sources, and changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec

from raftlog.admin.errors import INVALID, ApiError, check, not_found
from raftlog.admin.kafka_rest.brokers import broker_of
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    image_of,
    item,
    page_of,
    topic_of,
)
from raftlog.admin.route import FILTERED, Call, Route, of_group, of_topic
from raftlog.base.config import GroupConfig, NodeConfig, TopicConfig, settings_of
from raftlog.base.config.kafka import is_kafkas
from raftlog.base.errors import UnknownTopicOrPartition
from raftlog.base.turns import in_slices
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
TABLES: Final = {TOPIC: TopicConfig, BROKER: NodeConfig, GROUP: GroupConfig}
SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_CONFIG: Final = 5
OPERATIONS: Final = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}
MAX_CHANGES: Final = 1000
TOPICS_PER_REQUEST: Final = 100
"""Topics in one request: a broker answers it in one go, while others wait."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class Synonym(msgspec.Struct):
    """A place where the value is, or could have been, set; the first is in force."""

    name: str
    value: str | None
    source: str


class Config(msgspec.Struct, kw_only=True):
    """One setting in force. `value` is null for secrets; `topic_name`, `broker_id` or `consumer_group_id` is its
    resource.
    """

    kind: str
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str | None = None
    broker_id: int | None = None
    consumer_group_id: str | None = None
    name: str
    value: str | None
    is_read_only: bool
    is_sensitive: bool
    is_default: bool
    source: str
    synonyms: list[Synonym]


class ConfigList(msgspec.Struct, kw_only=True):
    kind: str
    metadata: ListMetadata
    data: list[Config]


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """One change: SET to `value`, DELETE to go back to the default; APPEND and SUBTRACT work on lists."""

    name: Name
    value: str | None = None
    operation: Literal["SET", "DELETE", "APPEND", "SUBTRACT"] = "SET"


class Changes(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of one resource, all or none."""

    data: Annotated[list[Change], msgspec.Meta(min_length=1, max_length=MAX_CHANGES)]
    validate_only: bool = False


class NewValue(msgspec.Struct, forbid_unknown_fields=True):
    """The new value of one setting."""

    value: str


class _Resource:
    """The owner of configs: a topic, a broker, a group, or all brokers by default."""

    def __init__(self, call: Call, kind: int, name: str, *path: object) -> None:
        self.call = call
        self.image: MetadataImage = image_of(call)
        self.kind = kind
        self.name = name
        self.path = (*path, "configs") if path else ("broker-configs",)

    async def describe(self, names: Sequence[str] | None = None) -> list[Config]:
        """Return its settings by name. Raises ApiError."""
        (result,) = await _describe(self.call, {self.name: names}, self.kind, broker_id=self._broker_id)
        check(result.error_code, result.error_message)
        return self.configs(result)

    def configs(self, result: Any) -> list[Config]:
        """Return a broker's response for this resource, by name."""
        return [self._config(each) for each in sorted(result.configs, key=lambda each: each.name)]

    @property
    def _broker_id(self) -> int | None:
        return int(self.name) if self.kind == BROKER and self.name else None

    @property
    def _kind(self) -> str:
        if self.kind == TOPIC:
            return "KafkaTopicConfig"
        if self.kind == GROUP:
            return "KafkaConsumerGroupConfig"
        return "KafkaBrokerConfig" if self.name else "KafkaClusterConfig"

    def _config(self, found: Any) -> Config:
        return Config(
            kind=self._kind,
            metadata=item(self.call, self.image, *self.path, found.name, config=found.name),
            cluster_id=self.image.cluster_id,
            topic_name=self.name if self.kind == TOPIC else None,
            broker_id=self._broker_id,
            consumer_group_id=self.name if self.kind == GROUP else None,
            name=found.name,
            value=found.value,
            is_read_only=found.read_only,
            is_sensitive=found.is_sensitive,
            is_default=found.config_source == DEFAULT_CONFIG,
            source=SOURCES.get(found.config_source, "UNKNOWN"),
            synonyms=[
                Synonym(each.name, each.value, SOURCES.get(each.source, "UNKNOWN")) for each in found.synonyms
            ],
        )

    async def page(self) -> ConfigList:
        configs = await self.describe()
        parts = ("clusters", self.image.cluster_id, *self.path)
        shown, metadata = page_of(self.call, configs, *parts, key=attrgetter("name"))
        return ConfigList(kind=f"{self._kind}List", metadata=metadata, data=list(shown))

    async def one(self) -> Config:
        name = self.call.path["name"]
        found = [each for each in await self.describe([name]) if each.name == name]
        if not found:
            raise not_found(f"config {name[:249]}")
        return found[0]

    async def put(self) -> None:
        """Set the config that the path names. Raises ApiError."""
        await self.alter([Change(self._named(), self.call.body.value)])

    async def reset(self) -> None:
        """Reset the path's config to its default. Raise ApiError."""
        await self.alter([Change(self._named(), operation="DELETE")])

    def _named(self) -> str:
        name: str = self.call.path["name"]
        if name not in settings_of(TABLES[self.kind]) and not (self.kind == BROKER and is_kafkas(name)):
            raise not_found(f"config {name[:249]}")
        return name

    async def alter(self, changes: Sequence[Change], *, validate_only: bool = False) -> None:
        """Make changes, all or none. Raises ApiError."""
        changed = [f"{each.operation} {each.name}" for each in changes]
        self.call.audit.update(changes=changed, validate_only=validate_only)
        for each in changes:
            if each.value is None and each.operation != "DELETE":
                raise ApiError(400, f"config {each.name}: {each.operation} needs a value", code=INVALID)
        make = builders_for(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        resource = make.AlterConfigsResource(
            resource_type=self.kind,
            resource_name=self.name,
            configs=tuple(
                make.AlterableConfig(
                    name=each.name, config_operation=OPERATIONS[each.operation], value=each.value
                )
                for each in changes
            ),
        )
        request = make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        response = await self.call.asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        (result,) = response.responses
        check(result.error_code, result.error_message)


async def _describe(
    call: Call, wanted: Mapping[str, Sequence[str] | None], kind: int, *, broker_id: int | None = None
) -> Sequence[Any]:
    """Return a broker's result for each resource; `wanted`: which of its settings, None for all."""
    make = builders_for(ApiKey.DESCRIBE_CONFIGS)
    resources = tuple(
        make.DescribeConfigsResource(
            resource_type=kind,
            resource_name=name,
            configuration_keys=None if names is None else tuple(names),
        )
        for name, names in wanted.items()
    )
    request = make.DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=False
    )
    response = await call.asker.ask(ApiKey.DESCRIBE_CONFIGS, request, broker_id=broker_id)
    results: Sequence[Any] = response.results
    return results


def _of_topic(call: Call) -> _Resource:
    name = topic_of(call, image_of(call)).name
    return _Resource(call, TOPIC, name, "topics", name)


def _of_broker(call: Call) -> _Resource:
    broker_id = broker_of(call, image_of(call)).broker_id
    return _Resource(call, BROKER, str(broker_id), "brokers", broker_id)


def _of_group(call: Call) -> _Resource:
    """They may be set before the group exists, and outlive it."""
    group_id = call.path["consumer_group_id"]
    return _Resource(call, GROUP, group_id, "consumer-groups", group_id)


def _of_all_brokers(call: Call) -> _Resource:
    return _Resource(call, BROKER, "")


async def list_all_topic_configs(call: Call) -> ConfigList:
    """Return the configs of all topics that differ from the defaults of their brokers. Brokers are asked only for
    these.
    """
    image = image_of(call)
    configured = [
        name
        async for kind, name in in_slices(call, image.configs)
        if kind == "topic" and name in image.topics
    ]
    topics = sorted(await call.among(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, configured))
    found = [(topic, name) for topic in topics for name in sorted(image.config("topic", topic))]
    shown, metadata = page_of(call, found, "clusters", image.cluster_id, "topics", "-", "configs")
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for topic, name in shown:
        wanted[topic].append(name)
    data: list[Config] = []
    for some in _pieces(wanted):
        for result in await _describe(call, some, TOPIC):
            if result.error_code != UnknownTopicOrPartition.code:  # deleted since it was listed
                check(result.error_code, result.error_message)
                topic = result.resource_name
                data += _Resource(call, TOPIC, topic, "topics", topic).configs(result)
    return ConfigList(kind="KafkaTopicConfigList", metadata=metadata, data=data)


def _pieces(wanted: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Sequence[str]]]:
    rest = iter(wanted.items())
    while some := dict(islice(rest, TOPICS_PER_REQUEST)):
        yield some


def _of_cluster(operation: Operation) -> Demanded:
    return Demanded((Right(operation, ResourceType.CLUSTER),))


def _routes(
    kind: str,
    path: str,
    resource_of: Callable[[Call], _Resource],
    *summaries: str,
    right: Callable[[Operation], Demanded] = _of_cluster,
) -> tuple[Route, ...]:
    """Return the routes that list, describe, set, reset and alter the configs of one kind of resource."""

    async def list_configs(call: Call) -> ConfigList:
        return await resource_of(call).page()

    async def get_config(call: Call) -> Config:
        return await resource_of(call).one()

    async def put_config(call: Call) -> None:
        await resource_of(call).put()

    async def reset_config(call: Call) -> None:
        await resource_of(call).reset()

    async def alter_configs(call: Call) -> None:
        await resource_of(call).alter(call.body.data, validate_only=call.body.validate_only)

    for each in (list_configs, get_config, put_config, reset_config, alter_configs):
        each.__name__ = each.__name__.replace("_", f"_{kind}_")  # the operation's id in the OpenAPI document
    listed, described, put, reset, altered = summaries
    reads, alters = right(Operation.DESCRIBE_CONFIGS), right(Operation.ALTER_CONFIGS)
    return (
        Route("GET", path, list_configs, listed, query=Page, rights=reads),
        Route("GET", f"{path}/{{name}}", get_config, described, rights=reads),
        Route("PUT", f"{path}/{{name}}", put_config, put, body=NewValue, status=204, rights=alters),
        Route("DELETE", f"{path}/{{name}}", reset_config, reset, status=204, rights=alters),
        Route("POST", f"{path}:alter", alter_configs, altered, body=Changes, status=204, rights=alters),
    )


CLUSTER: Final = "/v3/clusters/{cluster_id}"
ROUTES: Final = (
    Route(
        "GET",
        f"{CLUSTER}/topics/-/configs",
        list_all_topic_configs,
        "List what topics set",
        query=Page,
        rights=FILTERED,
    ),
    *_routes(
        "topic",
        f"{CLUSTER}/topics/{{topic_name}}/configs",
        _of_topic,
        "List a topic's configs",
        "Describe one of a topic's configs",
        "Set a topic's config",
        "Reset a topic's config",
        "Alter several configs of a topic",
        right=of_topic,
    ),
    *_routes(
        "broker",
        f"{CLUSTER}/brokers/{{broker_id:int}}/configs",
        _of_broker,
        "List a broker's configs",
        "Describe one of a broker's configs",
        "Set a broker's config",
        "Reset a broker's config",
        "Alter configs of a broker",
    ),
    *_routes(
        "group",
        f"{CLUSTER}/consumer-groups/{{consumer_group_id}}/configs",
        _of_group,
        "List a group's configs",
        "Describe one of a group's configs",
        "Set a group's config",
        "Reset a group's config",
        "Alter several configs of a group",
        right=of_group,
    ),
    *_routes(
        "cluster",
        f"{CLUSTER}/broker-configs",
        _of_all_brokers,
        "List the dynamic defaults of all brokers",
        "Describe one default of all brokers",
        "Set a default of all brokers",
        "Reset a default of all brokers",
        "Alter defaults of all brokers",
    ),
)
