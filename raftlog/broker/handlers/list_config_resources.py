"""ListConfigResources 0-1: the resources with configs (KIP-1142). Version 0 is for client metrics only (KIP-714)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from raftlog.base.errors import UnsupportedVersion
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from raftlog.broker.long_work.turns import each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.LIST_CONFIG_RESOURCES

_LISTED: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """List resources of the requested types; no type means all."""
    make = response_builders(API_KEY, request.api_version)
    types = set(getattr(message, "resource_types", (CLIENT_METRICS,))) or _LISTED
    if types - _LISTED:
        return make.ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    image = broker.image()
    named: list[tuple[str, int]] = []
    if TOPIC in types:
        named += [(name, TOPIC) for name in sorted(image.topics)]
    if BROKER in types:
        named += [(str(each), BROKER) for each in sorted(image.brokers)]
    if BROKER_LOGGER in types:
        named += [(str(each), BROKER_LOGGER) for each in sorted(image.brokers)]
    for wanted, kind in ((CLIENT_METRICS, "client-metrics"), (GROUP, "group")):
        if wanted in types:  # as in Kafka, groups with configs, whether or not the group exists
            found = await each_part(broker.env, list(image.configs), partial(_name_of, kind))
            named += [(name, wanted) for name in sorted(each for each in found if each is not None)]
    return make.ListConfigResourcesResponse(
        error_code=0,
        config_resources=(
            make.ConfigResource(resource_name=name, resource_type=kind) for name, kind in named
        ),
    )


def _name_of(kind: str, resource: tuple[str, str]) -> str | None:
    """Return the name of a resource of this kind."""
    return resource[1] if resource[0] == kind else None


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded((Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
)
