"""AlterClientQuotas (KIP-546): quotas of clients are set and removed, each entity wholly or not at all."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.base.machine import Decision
from raftlog.controller.decisions import LogEvent
from raftlog.controller.metadata_limits import MetadataLimits
from raftlog.metadata.controller_api import AlterClientQuotas, PartResult, PartResults, QuotaAlteration
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import ClientQuotaChanged
from raftlog.security.quotas import (
    CLIENT_ID,
    IP,
    KEYS_OF_ADDRESSES,
    KEYS_OF_CLIENTS,
    USER,
    WHOLE_NUMBERS,
    Entity,
)

MAX_NAME_CHARS: Final = 249
MAX_WHOLE_NUMBER: Final = 2**63
"""Kafka's limit, the nearest double to its largest long."""


def decide_alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotas, config: NodeConfig
) -> Decision:
    """Set and remove quotas; with `validate_only`, return what would happen."""
    limits = MetadataLimits(image, config)
    records: list[ClientQuotaChanged] = []
    results = []
    times = Counter(each.entity for each in request.alterations)
    for alteration in request.alterations:
        try:
            if times[alteration.entity] > 1:
                raise InvalidRequest("entity: is named more than once in this request")
            changes = _changes(image, alteration)
            limits.add_quotas(alteration.entity, _further(image, alteration.entity, changes))
        except KafkaError as error:
            results.append(PartResult(error.code, error.message))
            continue
        results.append(PartResult())
        records += (ClientQuotaChanged(alteration.entity, *each) for each in changes.items())
    reply = PartResults(tuple(results))
    if request.validate_only:
        return Decision(reply=reply)
    events = tuple(
        LogEvent(
            "info",
            "client_quota_changed",
            {"entity": describe(each.entity), "key": each.key, "value": each.value},
        )
        for each in records
    )
    return Decision(tuple(records), reply, events)


def describe(entity: Entity) -> str:
    """Return an entity as people write it: `user=alice,client-id=<default>`."""
    return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in reversed(entity))


def _further(image: MetadataImage, entity: Entity, changes: dict[str, float | None]) -> dict[str, float]:
    before = image.quotas.get(entity, {})
    return {key: value for key, value in changes.items() if value is not None and key not in before}


def _changes(image: MetadataImage, asked: QuotaAlteration) -> dict[str, float | None]:
    """Return the changed keys with their new values."""
    kinds = tuple(kind for kind, _ in asked.entity)
    if kinds not in ((USER,), (CLIENT_ID,), (CLIENT_ID, USER), (IP,)):
        raise InvalidRequest(
            f"entity: must be user, client-id, both of them, or ip, not {','.join(kinds) or 'nothing'}"
        )
    for kind, name in asked.entity:
        if name is not None and not 0 < len(name) <= MAX_NAME_CHARS:
            raise InvalidRequest(f"entity: a name of {kind} has 1 to {MAX_NAME_CHARS} characters")
        if kind == IP and name is not None and not _is_address(name):
            raise InvalidRequest(f"entity: {name!r} is not an IP address; host names are not resolved")
    known = KEYS_OF_ADDRESSES if kinds == (IP,) else KEYS_OF_CLIENTS
    before = image.quotas.get(asked.entity, {})
    changes: dict[str, float | None] = {}
    for key, value in asked.values:
        if key not in known:
            raise InvalidRequest(f"key: must be one of {', '.join(sorted(known))}, not {key!r}")
        if key in changes:
            raise InvalidRequest(f"key: {key} is named more than once")
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidRequest(f"value: {key} must be more than 0, not {value}")
        if value is not None and key in WHOLE_NUMBERS and not (value == int(value) <= MAX_WHOLE_NUMBER):
            raise InvalidRequest(f"value: {key} must be a whole number up to 2**63, not {value}")
        changes[key] = value
    return {key: value for key, value in changes.items() if value != before.get(key)}


def _is_address(name: str) -> bool:
    try:
        return str(ipaddress.ip_address(name)) == name
    except ValueError:
        return False
