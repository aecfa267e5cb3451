"""AlterClientQuotas 0-1: quotas of users, client ids and addresses, each entity wholly or not at all (KIP-546)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, truncate_message, wait_for_image
from raftlog.metadata.controller_api import AlterClientQuotas, PartResult, PartResults, QuotaAlteration
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right
from raftlog.security.quotas import IP, Entity

API_KEY: Final = ApiKey.ALTER_CLIENT_QUOTAS

MAX_ENTITIES: Final = 250
"""Entities in one request, some 20 µs each."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller change quotas, and wait until this broker applies them."""
    if len(message.entries) > MAX_ENTITIES:
        raise InvalidRequest(f"entries: at most {MAX_ENTITIES} entities, not {len(message.entries)}")
    alterations = tuple(
        QuotaAlteration(
            entity_of(entry.entity), tuple((op.key, None if op.remove else op.value) for op in entry.ops)
        )
        for entry in message.entries
    )
    reply = await ask(broker, AlterClientQuotas(alterations, message.validate_only), PartResults)
    if not message.validate_only:
        done = [
            each for each, result in zip(alterations, reply.results, strict=True) if not result.error_code
        ]
        await wait_for_image(broker, lambda image: all(_shows(each, image) for each in done))
    return _response(request, message, reply.results)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each entity."""
    return _response(request, message, (PartResult(error.code, error.message),) * len(message.entries))


def entity_of(parts: Any) -> Entity:
    """Return an entity in the order in which quotas are looked up, with addresses as connections have them."""
    return tuple(
        sorted((_named(each.entity_type, each.entity_name) for each in parts), key=lambda each: each[0])
    )


def _named(kind: str, name: str | None) -> tuple[str, str | None]:
    if kind == IP and name is not None:
        with suppress(ValueError):  # which the controller says of it
            return kind, str(ipaddress.ip_address(name))
    return kind, name


def _shows(asked: QuotaAlteration, image: MetadataImage) -> bool:
    present = image.quotas.get(asked.entity, {})
    return all(present.get(key) == value for key, value in asked.values)


def _response(request: RequestContext, message: Any, results: tuple[PartResult, ...]) -> Any:
    make = response_builders(API_KEY, request.api_version)
    return make.AlterClientQuotasResponse(
        throttle_time=0,
        entries=tuple(
            make.EntryData(
                error_code=result.error_code,
                error_message=truncate_message(result.error_message),
                entity=tuple(
                    make.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ),
            )
            for entry, result in zip(message.entries, results, strict=True)
        ),
    )


def _outcomes(_message: Any, response: Any) -> Iterator[Outcome]:
    for entry in response.entries:
        parts = (f"{each.entity_type}={each.entity_name or '<default>'}" for each in entry.entity)
        yield ",".join(parts), entry.error_code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=Demanded((Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),)),
    max_parts=AT_ONCE,
    audit=Change(_outcomes),
    controllers=True,
)
