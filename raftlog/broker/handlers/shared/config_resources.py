"""Shared parts of the config APIs: resource types of the wire, and the response to an alteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from raftlog.base.config.cordon import unknown_dirs
from raftlog.base.errors import InvalidConfig, InvalidRequest, KafkaError
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import (
    CONFIG_SIZE,
    ask_in_parts,
    truncate_message,
    wait_for_image,
)
from raftlog.broker.long_work.turns import count_parts, each_part
from raftlog.broker.rights import demand
from raftlog.metadata.controller_api import (
    APPEND,
    DELETE,
    SET,
    AlterConfigs,
    ConfigAlteration,
    ConfigResults,
)
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

RESOURCE_TYPES: Final = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client-metrics"}
"""The resources with configs in the metadata. The levels of a process's loggers (BROKER_LOGGER) are not."""


_AUDITED_TYPES: Final = {**RESOURCE_TYPES, BROKER_LOGGER: "broker-logger"}


def on_each_resource(operation: Operation) -> DemandedPerPart:
    """Return the right to an operation on each of the resources with configs that a request names."""
    kinds = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
    return DemandedPerPart(tuple(Right(operation, each) for each in kinds))


class Resource(NamedTuple):
    """A resource as the wire names it."""

    wire_type: int
    name: str


class AlterationResult(NamedTuple):
    """The outcome of altering one resource."""

    error_code: int = 0
    error_message: str | None = None


CORDONED: Final = "cordoned.log.dirs"

AlterationOf = Callable[[Any, bool], ConfigAlteration | AlterationResult]


def resource_type(wire_type: int) -> str:
    """Return the metadata's name for a resource type. Raises InvalidRequest for a type without configs there."""
    found = RESOURCE_TYPES.get(wire_type)
    if found is None and wire_type == BROKER_LOGGER:
        raise InvalidRequest("log levels can only be changed by IncrementalAlterConfigs")
    if found is None:
        known = "TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS and GROUP"
        raise InvalidRequest(f"resources of type {wire_type} have no configs; {known} have")
    return found


CONFIGS_MAX: Final = 100
"""Configs of one resource in one request: the controller checks them in one turn."""


def check_config_names(configs: Sequence[Any]) -> None:
    """Raise InvalidRequest for too many configs, or for a config that is named twice."""
    if len(configs) > CONFIGS_MAX:
        raise InvalidRequest(
            f"a request sets at most {CONFIGS_MAX} configs of a resource, not {len(configs)}"
        )
    if len({each.name for each in configs}) < len(configs):
        raise InvalidRequest("a config is named more than once")


def check_own_broker(broker: BrokerContext, name: str) -> None:
    """Raise InvalidRequest for a broker's resource that is not this broker's own."""
    if name != str(broker.config.node_id):
        raise InvalidRequest(f"this is broker {broker.config.node_id}; send the request to broker {name!r}")


def check_right(
    broker: BrokerContext, request: RequestContext, operation: Operation, resource: Resource
) -> None:
    """Raise the error of the resource if the sender may not read or alter its configs."""
    if resource.wire_type == TOPIC:
        demand(broker, request, operation, ResourceType.TOPIC, resource.name)
    elif resource.wire_type == GROUP:
        demand(broker, request, operation, ResourceType.GROUP, resource.name)
    else:
        demand(broker, request, operation, ResourceType.CLUSTER)


async def alter(
    broker: BrokerContext,
    request: RequestContext,
    message: Any,
    alteration_of: AlterationOf,
    *,
    replace: bool,
) -> dict[Resource, AlterationResult]:
    """Have the controller alter resources, and wait until this broker's image shows it.

    Refused resources have an error.

    `alteration_of` gets a resource of the message, and whether the message names it more than once. It returns the
    alteration for the controller, or the outcome where no controller is needed, or raises KafkaError.
    """
    outcomes, wanted = await _checked(broker, request, message, alteration_of)
    asked = ask_in_parts(
        broker,
        list(wanted.values()),
        lambda some: AlterConfigs(some, replace, message.validate_only),
        ConfigResults,
        size_of=lambda each: 1 + CONFIG_SIZE * len(each.ops),
    )
    by_name = {(each.resource_type, each.resource_name): resource for resource, each in wanted.items()}
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            names = [by_name[each.resource_type, each.resource_name] for each in some]
            outcomes |= dict.fromkeys(names, AlterationResult(reply.code, reply.message))
            continue
        failed = {(each.resource_type, each.resource_name) for each in reply.results if each.error_code}
        for each in reply.results:
            resource = by_name[each.resource_type, each.resource_name]
            outcomes[resource] = AlterationResult(each.error_code, each.error_message)
        if not message.validate_only:
            done = [each for each in some if (each.resource_type, each.resource_name) not in failed]
            await wait_for_image(broker, partial(_all_shown, done, replace))
    return outcomes


async def _checked(
    broker: BrokerContext, request: RequestContext, message: Any, alteration_of: AlterationOf
) -> tuple[dict[Resource, AlterationResult], dict[Resource, ConfigAlteration]]:
    """Return the outcomes that are known already, and the request for the controller."""
    known: dict[Resource, AlterationResult] = {}
    wanted: dict[Resource, ConfigAlteration] = {}
    named = (Resource(each.resource_type, each.resource_name) for each in message.resources)
    times = await count_parts(broker.env, named)

    def check(each: Any) -> None:
        resource = Resource(each.resource_type, each.resource_name)
        try:
            check_right(broker, request, Operation.ALTER_CONFIGS, resource)
            made = alteration_of(each, times[resource] > 1)
            _check_cordoned(broker, made)
            if isinstance(made, AlterationResult):
                known[resource] = made
            else:
                wanted[resource] = made
        except KafkaError as error:
            known[resource] = AlterationResult(error.code, error.message)

    await each_part(broker.env, message.resources, check, size_of=lambda each: 1 + len(each.configs))
    return known, wanted


def _check_cordoned(broker: BrokerContext, made: ConfigAlteration | AlterationResult) -> None:
    """Raise InvalidConfig if this broker's cordoned.log.dirs would name another folder than its log directories."""
    if isinstance(made, AlterationResult) or made.resource_type != RESOURCE_TYPES[BROKER]:
        return
    if made.resource_name != str(broker.config.node_id):
        return
    for op in made.ops:
        if op.key == CORDONED and op.op in (SET, APPEND):
            named = [each.strip() for each in (op.value or "").split(",") if each.strip()]
            if unknown := unknown_dirs(named, broker.config.log_dirs):
                known = ", ".join(broker.config.log_dirs)
                raise InvalidConfig(
                    f"{CORDONED} names {unknown[0]!r}; the log directories are {known}, and * is all"
                )


def _all_shown(done: list[ConfigAlteration], replace: bool, image: MetadataImage) -> bool:
    return all(_shows(image, each, replace) for each in done)


def _shows(image: MetadataImage, change: ConfigAlteration, replace: bool) -> bool:
    """Only set and deleted values are visible in the image; appended values cannot be checked."""
    configs = image.configs.get((change.resource_type, change.resource_name), {})
    if replace and configs.keys() != {op.key for op in change.ops}:
        return False
    return all(
        configs.get(op.key) == op.value if op.op == SET else op.key not in configs
        for op in change.ops
        if op.op in (SET, DELETE)
    )


def response(request: RequestContext, outcomes: dict[Resource, AlterationResult], *, name: str) -> Any:
    """Return the response of either altering API; `name` is its message."""
    make = response_builders(request.api_key, request.api_version)
    responses = (
        make.AlterConfigsResourceResponse(
            error_code=outcome.error_code,
            error_message=truncate_message(outcome.error_message),
            resource_type=resource.wire_type,
            resource_name=resource.name,
        )
        for resource, outcome in outcomes.items()
    )
    return getattr(make, name)(throttle_time=0, responses=responses)


def outcomes(_message: Any, response: Any) -> Iterator[Outcome]:
    """Yield the outcome of each resource, for the audit log."""
    for each in response.responses:
        kind = _AUDITED_TYPES.get(each.resource_type, each.resource_type)
        yield f"{kind} {each.resource_name}", each.error_code
