"""AlterConfigs 0-2: replace all configs of a resource; configs not given return to their defaults (KIP-133)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.config_resources import (
    alter,
    check_config_names,
    on_each_resource,
    outcomes,
    resource_type,
    response,
)
from raftlog.metadata.controller_api import ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import Operation

API_KEY: Final = ApiKey.ALTER_CONFIGS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Replace configs and wait until this broker's image shows them."""
    outcomes = await alter(broker, request, message, _alteration, replace=True)
    return response(request, outcomes, name="AlterConfigsResponse")


def _alteration(resource: Any, twice: bool) -> ConfigAlteration:
    configs = resource.configs
    if twice:
        raise InvalidRequest("the resource is named more than once in this request")
    check_config_names(configs)
    if any(each.value is None for each in configs):
        raise InvalidRequest("a config has no value; omit it to use the default")
    ops = tuple(ConfigOp(each.name, each.value) for each in configs)
    return ConfigAlteration(resource_type(resource.resource_type), resource.resource_name, ops)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=on_each_resource(Operation.ALTER_CONFIGS),
    max_parts=IN_TURNS,
    audit=Change(outcomes),
    controllers=True,
)
