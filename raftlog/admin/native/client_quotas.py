"""Client quotas: list, set and remove, by user, client id or address."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from raftlog.admin.errors import check
from raftlog.admin.route import Call, Route
from raftlog.base.turns import each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

Kind = Literal["user", "client-id", "ip"]
MAX_PARTS: Final = 2
MAX_VALUES: Final = 20


class EntityPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of what a quota is for. `name` null: the default of the kind."""

    kind: Kind
    name: Annotated[str, msgspec.Meta(max_length=249)] | None = None


class Quota(msgspec.Struct):
    """The quotas of one entity, by key: producer_byte_rate and so on."""

    entity: list[EntityPart]
    values: dict[str, float]


class Quotas(msgspec.Struct):
    """All quotas."""

    data: list[Quota]


class QuotaChange(msgspec.Struct, forbid_unknown_fields=True):
    """New values of an entity's quotas by key; null removes a quota."""

    entity: Annotated[list[EntityPart], msgspec.Meta(min_length=1, max_length=MAX_PARTS)]
    values: Annotated[
        dict[Annotated[str, msgspec.Meta(max_length=100)], float | None],
        msgspec.Meta(min_length=1, max_length=MAX_VALUES),
    ]


async def list_client_quotas(call: Call) -> Quotas:
    """Return the quotas of every entity."""
    make = builders_for(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    request = make.DescribeClientQuotasRequest(components=(), strict=False)
    answer = await call.asker.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    check(answer.error_code, answer.error_message)

    def quota(each: Any) -> Quota:
        entity = [EntityPart(part.entity_type, part.entity_name) for part in each.entity]
        return Quota(entity, {value.key: value.value for value in each.values})

    return Quotas(await each_part(call, answer.entries or (), quota))


async def alter_client_quota(call: Call) -> None:
    """Set and remove quotas of one entity, all or none."""
    wanted: QuotaChange = call.body
    call.audit.update(entity=msgspec.to_builtins(wanted.entity), values=wanted.values)
    make = builders_for(ApiKey.ALTER_CLIENT_QUOTAS)
    names = tuple(make.EntityData(entity_type=each.kind, entity_name=each.name) for each in wanted.entity)
    changes = tuple(
        make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in wanted.values.items()
    )
    entry = make.EntryData(entity=names, ops=changes)
    request = make.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    answer = await call.asker.ask(ApiKey.ALTER_CLIENT_QUOTAS, request)
    (result,) = answer.entries
    check(result.error_code, result.error_message)


def _of_cluster(operation: Operation) -> Demanded:
    return Demanded((Right(operation, ResourceType.CLUSTER),))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/client-quotas",
        list_client_quotas,
        "List the quotas of clients",
        rights=_of_cluster(Operation.DESCRIBE_CONFIGS),
    ),
    Route(
        "POST",
        "/v1/client-quotas",
        alter_client_quota,
        "Set or remove quotas of a user, a client id or an address",
        body=QuotaChange,
        status=204,
        rights=_of_cluster(Operation.ALTER_CONFIGS),
    ),
)
