"""IncrementalAlterConfigs 0-1: set, delete, append, subtract, each resource wholly or not at all (KIP-339)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftlog.base.errors import InvalidConfig, InvalidRequest, KafkaError
from raftlog.base.log import KAFKA_LEVELS, LOGGERS, ROOT, get_logger
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.config_resources import (
    BROKER_LOGGER,
    AlterationResult,
    alter,
    check_config_names,
    check_own_broker,
    on_each_resource,
    outcomes,
    resource_type,
    response,
)
from raftlog.metadata.controller_api import DELETE, SET, SUBTRACT, ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import Operation

API_KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS

log = get_logger(__name__)


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


def alter_loggers(
    broker: BrokerContext, name: str, configs: Sequence[Any], *, validate_only: bool
) -> AlterationResult:
    """Change the levels of this process's loggers, all or none (KIP-412), and return the outcome.

    Levels are not metadata: only the broker that gets the request changes, until it restarts.
    """
    try:
        check_own_broker(broker, name)
        changes = _changes(configs)
    except KafkaError as error:
        return AlterationResult(error.code, error.message)
    if not validate_only:
        for logger, level in changes.items():
            LOGGERS.change(logger, level)
            log.warning("log_level_changed", logger=logger, level=LOGGERS.levels()[logger])
    return AlterationResult()


def _changes(configs: Sequence[Any]) -> dict[str, str | None]:
    known = LOGGERS.levels()
    changes: dict[str, str | None] = {}
    for each in configs:
        if each.name in changes:
            raise InvalidRequest(f"{each.name[:100]} is named more than once")
        if each.config_operation not in (SET, DELETE):
            raise InvalidRequest("a logger's level can only be set or deleted")
        if each.name not in known:
            some = ", ".join(logger for logger in known if logger.count(".") < 2)
            raise InvalidConfig(
                f"there is no logger {each.name[:100]!r}; the loggers are {some} and their children"
            )
        if each.config_operation == SET and each.value not in KAFKA_LEVELS:
            raise InvalidConfig(f"{each.name}: the level must be one of {', '.join(KAFKA_LEVELS)}")
        if each.config_operation == DELETE and each.name == ROOT:
            raise InvalidRequest(f"{ROOT} is the root logger, whose level cannot be deleted")
        changes[each.name] = each.value if each.config_operation == SET else None
    return changes


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=on_each_resource(Operation.ALTER_CONFIGS),
    max_parts=IN_TURNS,
    audit=Change(outcomes),
    controllers=True,
)
