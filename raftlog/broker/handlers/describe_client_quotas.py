"""DescribeClientQuotas 0-1: the quotas with entities that match the request's filter (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog.base.errors import NONE, InvalidRequest, KafkaError, UnsupportedVersion
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right
from raftlog.security.quotas import CLIENT_ID, IP, USER, Entity

API_KEY: Final = ApiKey.DESCRIBE_CLIENT_QUOTAS

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Every name, and the default one."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image."""
    _check(message.components)
    make = response_builders(API_KEY, request.api_version)

    def entry(entity: Entity, values: Mapping[str, float]) -> Any:
        if not _matches(entity, message.components, strict=message.strict):
            return None
        return make.EntryData(
            entity=tuple(make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(make.ValueData(key=key, value=value) for key, value in sorted(values.items())),
        )

    entries = (entry(*each) for each in tuple(broker.image().quotas.items()))
    return make.DescribeClientQuotasResponse(
        throttle_time=0, error_code=NONE, error_message=None, entries=entries
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error without a list, as Kafka does."""
    return build_response(
        API_KEY, request.api_version, error_code=error.code, error_message=error.message, entries=None
    )


def _check(components: Sequence[Any]) -> None:
    kinds = [each.entity_type for each in components]
    for each in components:
        if not each.entity_type:
            raise InvalidRequest("entity_type: is empty")
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(
                f"entity_type: must be user, client-id or ip, not {each.entity_type[:100]!r}"
            )
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequest(f"match_type: must be 0, 1 or 2, not {each.match_type}")
        if (each.match is not None) != (each.match_type == EXACT):
            raise InvalidRequest("match: must be a name for match_type 0, and null for 1 and 2")
    if len(set(kinds)) != len(kinds):
        raise InvalidRequest("entity_type: each type may be named only once")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest("entity_type: ip cannot be combined with another type")


def _matches(entity: Entity, components: Sequence[Any], *, strict: bool) -> bool:
    """Return whether an entity matches all components, and has no others if `strict`."""
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    for each in components:
        if each.entity_type not in names:
            return False
        name = names[each.entity_type]
        if each.match_type == EXACT and name != each.match:
            return False
        if each.match_type == DEFAULT and name is not None:
            return False
    return True


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=Demanded((Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
)
