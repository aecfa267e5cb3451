"""IncrementalAlterConfigs 0-1: set, delete, append, subtract, each resource wholly or not at all (KIP-339)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.broker_loggers import alter_loggers
from raftlog.broker.handlers.config_resources import (
    BROKER_LOGGER,
    AlterationResult,
    alter,
    check_config_names,
    outcomes,
    resource_type,
    response,
)
from raftlog.metadata.controller_api import DELETE, SUBTRACT, ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Alter configs and wait until this broker's image shows them."""

    def alteration(resource: Any, twice: bool) -> ConfigAlteration | AlterationResult:
        if twice:
            raise InvalidRequest("the resource is named more than once in this request")
        check_config_names(resource.configs)
        name, configs = resource.resource_name, resource.configs
        if resource.resource_type == BROKER_LOGGER:
            return alter_loggers(broker, name, configs, validate_only=message.validate_only)
        return ConfigAlteration(resource_type(resource.resource_type), name, tuple(map(_op, configs)))

    outcomes = await alter(broker, request, message, alteration, replace=False)
    return response(request, outcomes, name="IncrementalAlterConfigsResponse")


def _op(config: Any) -> ConfigOp:
    if not 0 <= config.config_operation <= SUBTRACT:
        raise InvalidRequest(f"{config.name}: there is no operation {config.config_operation}")
    if config.config_operation != DELETE and config.value is None:
        raise InvalidRequest(f"{config.name}: the operation needs a value")
    return ConfigOp(config.name, config.value, config.config_operation)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (
            Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC),
            Right(Operation.ALTER_CONFIGS, ResourceType.GROUP),
            Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),
        )
    ),
    max_parts=IN_TURNS,
    audit=Change(outcomes),
    controllers=True,
)
