"""DescribeConfigs 1-4: all configs of topics, brokers, groups, client metrics and loggers, with source, synonyms,
type and documentation (KIP-226)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from raftlog.base.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from raftlog.base.log import LOGGERS
from raftlog.base.types import TOPIC_NAME_RULE, is_legal_topic_name
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import truncate_message
from raftlog.broker.handlers.shared.config_resources import (
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Resource,
    check_own_broker,
    check_right,
    on_each_resource,
    resource_type,
)
from raftlog.broker.long_work.turns import Weighed, each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import encode_entity
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Operation

API_KEY: Final = ApiKey.DESCRIBE_CONFIGS

MAX_RESPONSE_BYTES: Final = 16 << 20
"""The size limit of the resources in a response. The resource that reaches it is still included: a thousand topics
with all documentation."""

ALL: Final = None
"""Names of the requested configs: all of them."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Describe resources, each once with its own error.

    When the response is full, the remaining resources get an error.
    """
    make = response_builders(API_KEY, request.api_version)
    size = 0

    def result(wire_type: int, name: str, wanted: set[str] | None) -> Weighed:
        nonlocal size
        answer = {"resource_type": wire_type, "resource_name": name}
        try:
            if size >= MAX_RESPONSE_BYTES:
                raise PolicyViolation(
                    f"the response would be over {MAX_RESPONSE_BYTES} bytes: describe fewer resources"
                )
            check_right(broker, request, Operation.DESCRIBE_CONFIGS, Resource(wire_type, name))
            entries = _entries(broker, wire_type, name)
        except KafkaError as error:
            described = make.DescribeConfigsResult(
                error_code=error.code, error_message=truncate_message(error.message), **answer
            )
            entries = []
        else:
            configs = [
                _config(make, each, message) for each in entries if wanted is ALL or each.name in wanted
            ]
            described = make.DescribeConfigsResult(
                error_code=0, error_message=None, configs=tuple(configs), **answer
            )
        encoded = encode_entity(described)
        size += len(encoded)
        return Weighed(encoded, 1 + len(entries))

    asked = await _asked(broker, message)
    results = (result(*resource, wanted) for resource, wanted in asked.items())
    return make.DescribeConfigsResponse(throttle_time=0, results=results)


async def _asked(broker: BrokerContext, message: Any) -> dict[tuple[int, str], set[str] | None]:
    """Return the requested resources, each with its requested config names."""
    asked: dict[tuple[int, str], set[str] | None] = {}

    def add(each: Any) -> None:
        wanted = asked.setdefault((each.resource_type, each.resource_name), set())
        if not each.configuration_keys:
            asked[each.resource_type, each.resource_name] = ALL
        elif wanted is not ALL:
            wanted.update(each.configuration_keys)

    await each_part(
        broker.env, message.resources, add, size_of=lambda each: 1 + len(each.configuration_keys or ())
    )
    return asked


def _entries(broker: BrokerContext, wire_type: int, name: str) -> list[ConfigEntry]:
    if wire_type == BROKER_LOGGER:
        check_own_broker(broker, name)
        return describe_loggers(LOGGERS.levels())
    resource_type(wire_type)
    image, node = broker.image(), broker.config
    cluster_dynamic = image.config("broker", "")
    broker_dynamic = image.config("broker", str(node.node_id))
    if wire_type == TOPIC:
        if not is_legal_topic_name(name):
            raise InvalidTopic(TOPIC_NAME_RULE)
        if name not in image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        overrides = image.config("topic", name)
        return describe_topic(node, overrides, cluster_dynamic=cluster_dynamic, broker_dynamic=broker_dynamic)
    if wire_type == GROUP:
        if not name:
            raise InvalidRequest("the resource name must be a group id, not empty")
        return describe_group(node, image.config("group", name))
    if wire_type == CLIENT_METRICS:
        if not name:
            raise InvalidRequest("the resource name must be a client metrics subscription, not empty")
        return describe_client_metrics(image.config("client-metrics", name))
    if not name:
        return describe_cluster_default(cluster_dynamic)
    if name != str(node.node_id):
        raise InvalidRequest(
            f"broker {node.node_id} describes only itself, or the cluster's default with an empty name, not {name!r}"
        )
    return describe_broker(node, cluster_dynamic=cluster_dynamic, broker_dynamic=broker_dynamic)


def _config(make: Any, entry: ConfigEntry, message: Any) -> Any:
    synonyms = entry.synonyms if message.include_synonyms else ()
    with_documentation = getattr(message, "include_documentation", False)
    return make.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            make.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in synonyms
        ),
        config_type=entry.wire_type,
        documentation=entry.doc if with_documentation else None,
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=on_each_resource(Operation.DESCRIBE_CONFIGS),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=True,
)
