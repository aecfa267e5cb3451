"""What the config APIs share: resource types of the wire, and the answer to an alteration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.asking import ask, published, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import (
    DELETE,
    SET,
    AlterConfigs,
    ConfigAlteration,
    ConfigResults,
)
from raftlog.protocol.shapes import response_shapes

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

RESOURCE_TYPES: Final = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client-metrics"}
"""The resources whose configs are metadata. The levels of a process's loggers (BROKER_LOGGER) are not."""


class Resource(NamedTuple):
    """A resource as the wire names it."""

    wire_type: int
    name: str


class Outcome(NamedTuple):
    """What came of altering one resource."""

    error_code: int = 0
    error_message: str | None = None


def resource_type(wire_type: int) -> str:
    """Return the metadata's word for a resource type. Raises InvalidRequest for one without configs there."""
    found = RESOURCE_TYPES.get(wire_type)
    if found is None and wire_type == BROKER_LOGGER:
        raise InvalidRequest("the levels of loggers are changed by IncrementalAlterConfigs only")
    if found is None:
        known = "TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS and GROUP"
        raise InvalidRequest(f"resources of type {wire_type} have no configs; {known} have")
    return found


def check_own_broker(broker: BrokerContext, name: str) -> None:
    """Raise InvalidRequest for a broker's resource that is not this broker's own."""
    if name != str(broker.config.node_id):
        raise InvalidRequest(f"this is broker {broker.config.node_id}; ask broker {name!r} itself")


async def alter(
    broker: BrokerContext,
    message: Any,
    alterations: Iterable[tuple[Resource, ConfigAlteration | KafkaError]],
    *,
    replace: bool,
) -> dict[Resource, Outcome]:
    """Have the controller alter resources, and wait until this broker knows; refused ones come with their error."""
    outcomes: dict[Resource, Outcome] = {}
    wanted: dict[tuple[str, str], Resource] = {}
    changes: list[ConfigAlteration] = []
    for resource, change in alterations:
        if isinstance(change, KafkaError):
            outcomes[resource] = Outcome(change.code, change.message)
        else:
            wanted[change.resource_type, change.resource_name] = resource
            changes.append(change)
    if not changes:
        return outcomes
    try:
        reply = await ask(broker, AlterConfigs(tuple(changes), replace, message.validate_only), ConfigResults)
    except KafkaError as error:
        return outcomes | dict.fromkeys(wanted.values(), Outcome(error.code, error.message))
    for each in reply.results:
        resource = wanted[each.resource_type, each.resource_name]
        outcomes[resource] = Outcome(each.error_code, each.error_message)
    if not message.validate_only:
        succeeded = [
            change
            for change in changes
            if not outcomes[wanted[change.resource_type, change.resource_name]].error_code
        ]
        await published(broker, lambda image: all(_shows(image, each, replace) for each in succeeded))
    return outcomes


def _shows(image: MetadataImage, change: ConfigAlteration, replace: bool) -> bool:
    """Only what was set or deleted can be told from outside; what was appended was appended before that."""
    configs = image.configs.get((change.resource_type, change.resource_name), {})
    if replace and configs.keys() != {op.key for op in change.ops}:
        return False
    return all(
        configs.get(op.key) == op.value if op.op == SET else op.key not in configs
        for op in change.ops
        if op.op in (SET, DELETE)
    )


def response(api_key: int, request: RequestContext, outcomes: dict[Resource, Outcome], *, name: str) -> Any:
    """Return the answer of either altering API; `name` is its message."""
    make = response_shapes(api_key, request.api_version)
    return getattr(make, name)(
        throttle_time=0,
        responses=tuple(
            make.AlterConfigsResourceResponse(
                error_code=outcome.error_code,
                error_message=shown(outcome.error_message),
                resource_type=resource.wire_type,
                resource_name=resource.name,
            )
            for resource, outcome in outcomes.items()
        ),
    )


def named_twice(resources: Iterable[Resource]) -> set[Resource]:
    """Return the resources that a request names more than once."""
    seen: set[Resource] = set()
    twice: set[Resource] = set()
    for each in resources:
        (twice if each in seen else seen).add(each)
    return twice
