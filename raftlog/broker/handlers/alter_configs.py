"""AlterConfigs 0-2: what is given becomes the whole set of a resource; all else goes back to its default (KIP-133)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.config_resources import Resource, alter, named_twice, resource_type, response
from raftlog.metadata.requests import ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.ALTER_CONFIGS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Replace configs and wait until this broker knows."""
    named = [(Resource(each.resource_type, each.resource_name), each) for each in message.resources]
    twice = named_twice(resource for resource, _ in named)
    alterations = [
        (resource, _alteration(resource, each.configs, resource in twice)) for resource, each in named
    ]
    outcomes = await alter(broker, message, alterations, replace=True)
    return response(API_KEY, request, outcomes, name="AlterConfigsResponse")


def _alteration(resource: Resource, configs: Any, twice: bool) -> ConfigAlteration | KafkaError:
    try:
        if twice:
            raise InvalidRequest("the resource is named more than once in this request")
        if len({each.name for each in configs}) < len(configs):
            raise InvalidRequest("a config is named more than once")
        if any(each.value is None for each in configs):
            raise InvalidRequest("a config has no value; leave it out to have its default")
        ops = tuple(ConfigOp(each.name, each.value) for each in configs)
        return ConfigAlteration(resource_type(resource.wire_type), resource.name, ops)
    except KafkaError as error:
        return error
