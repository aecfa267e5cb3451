"""IncrementalAlterConfigs 0-1: set, delete, append, subtract, each resource wholly or not at all (KIP-339)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.config_resources import (
    BROKER_LOGGER,
    Resource,
    alter,
    named_twice,
    resource_type,
    response,
)
from raftlog.broker.loggers import alter_loggers
from raftlog.metadata.requests import DELETE, SUBTRACT, ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Alter configs and wait until this broker knows."""
    named = [(Resource(each.resource_type, each.resource_name), each) for each in message.resources]
    twice = named_twice(resource for resource, _ in named)
    levels = {
        resource: alter_loggers(broker, resource.name, each.configs, validate_only=message.validate_only)
        for resource, each in named
        if resource.wire_type == BROKER_LOGGER and resource not in twice
    }
    alterations = [
        (resource, _alteration(resource, each.configs, resource in twice))
        for resource, each in named
        if resource not in levels
    ]
    outcomes = levels | await alter(broker, message, alterations, replace=False)
    return response(API_KEY, request, outcomes, name="IncrementalAlterConfigsResponse")


def _alteration(resource: Resource, configs: Any, twice: bool) -> ConfigAlteration | KafkaError:
    try:
        if twice:
            raise InvalidRequest("the resource is named more than once in this request")
        if len({each.name for each in configs}) < len(configs):
            raise InvalidRequest("a config is named more than once")
        return ConfigAlteration(resource_type(resource.wire_type), resource.name, tuple(map(_op, configs)))
    except KafkaError as error:
        return error


def _op(config: Any) -> ConfigOp:
    if not 0 <= config.config_operation <= SUBTRACT:
        raise InvalidRequest(f"{config.name}: there is no operation {config.config_operation}")
    if config.config_operation != DELETE and config.value is None:
        raise InvalidRequest(f"{config.name}: the operation needs a value")
    return ConfigOp(config.name, config.value, config.config_operation)
