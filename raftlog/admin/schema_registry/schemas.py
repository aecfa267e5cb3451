"""Schemas by their ids, and facts about the registry."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec
from aiohttp import web

from raftlog import __version__
from raftlog.admin.errors import ApiError
from raftlog.admin.route import FILTERED, NO_RIGHTS, TOPIC, Call
from raftlog.admin.schema_registry.answers import (
    MEDIA_TYPE,
    SchemaAnswer,
    answer_of,
    by_leader,
    page,
    resource_of,
)
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.subjects import row
from raftlog.base.turns import each_part, in_slices
from raftlog.schemas.errors import SCHEMA_NOT_FOUND, SchemaError, schema_not_found
from raftlog.schemas.registry_state import Identified, RegistryState, Version
from raftlog.schemas.schema import KINDS
from raftlog.security.acls import Operation

CHARS_PER_PART: Final = 10_000
"""Of a schema, to encode which counts as one part of a request."""


class Place(msgspec.Struct):
    """A subject and a version."""

    subject: str
    version: int


class ServerVersion(msgspec.Struct):
    """The release, under Confluent's names."""

    version: str
    commitId: str = ""


class Scope(msgspec.Struct):
    """The cluster and the topic of the registry."""

    path: list[str]
    clusters: dict[str, str]


class ServerId(msgspec.Struct):
    """The id of the registry: of its cluster and its topic."""

    scope: Scope
    id: str = ""


async def _identified(call: Call, registry: Registry) -> tuple[RegistryState, Identified]:
    """Return what an id stands for; this node's copy is enough if it has it. Raises SchemaError, NotLeading."""
    schema_id, state = call.path["id"], registry.store.state
    if schema_id not in state.ids:
        state = await registry.store.current()
    if schema_id not in state.ids:
        raise SchemaError(SCHEMA_NOT_FOUND, f"schema {schema_id} not found")
    _check_readable(call, state, schema_id)
    return state, state.ids[schema_id]


def _check_readable(call: Call, state: RegistryState, schema_id: int) -> None:
    """Raise ApiError 403 unless the caller may read a subject that has the schema."""
    places = sorted(state.places[schema_id])
    if not any(call.may(Operation.DESCRIBE, TOPIC, resource_of(subject)) for subject, _ in places):
        call.demand(Operation.DESCRIBE, TOPIC, resource_of(places[0][0]))


async def get_schema(call: Call, registry: Registry) -> SchemaAnswer:
    """Return the schema of an id."""
    state, found = await _identified(call, registry)
    return answer_of(await registry.formatted(state, found, call.query.format))


async def get_schema_text(call: Call, registry: Registry) -> web.Response:
    """Return the text of the schema of an id."""
    found = await registry.formatted(*await _identified(call, registry), call.query.format)
    return web.Response(text=found.schema.text, content_type=MEDIA_TYPE)


async def list_places(call: Call, registry: Registry) -> list[Place]:
    """List the versions that are the schema of an id."""
    return [Place(each.subject, each.version) for each in await _places(call, registry)]


async def list_subjects_of_schema(call: Call, registry: Registry) -> list[str]:
    """List the subjects that have the schema of an id."""
    return list(dict.fromkeys(each.subject for each in await _places(call, registry)))


async def _places(call: Call, registry: Registry) -> list[Version]:
    state, schema_id = await registry.store.current(), call.path["id"]
    if schema_id not in state.ids:
        raise schema_not_found()
    versions = [state.subjects[subject][version] for subject, version in sorted(state.places[schema_id])]
    wanted = [
        each
        for each in versions
        if (call.query.deleted or not each.deleted) and call.query.subject in ("", each.subject)
    ]
    allowed = await call.among(Operation.DESCRIBE, TOPIC, {resource_of(each.subject) for each in wanted})
    return page([each for each in wanted if resource_of(each.subject) in allowed], call.query)


async def list_schemas(call: Call, registry: Registry) -> web.Response:
    """List versions with their schemas, by subject. They may be many megabytes, and are encoded in slices."""
    state, query = await registry.store.current(), call.query
    allowed = await call.among(Operation.DESCRIBE, TOPIC, map(resource_of, list(state.subjects)))
    found: list[tuple[Identified, Version]] = []
    async for subject in in_slices(call, sorted(state.subjects)):
        if subject.startswith(query.subjectPrefix) and resource_of(subject) in allowed:
            versions = state.versions(subject, deleted=query.deleted)
            shown = versions[-1:] if query.latestOnly else versions
            found += [(state.ids[each.id], each) for each in shown]
    encoded = await each_part(
        call,
        page(found, query),
        lambda each: msgspec.json.encode(answer_of(*each)),
        size_of=lambda each: 1 + len(each[0].schema.text) // CHARS_PER_PART,
    )
    return web.Response(body=b"[%b]" % b",".join(encoded), content_type=MEDIA_TYPE)


async def get_by_guid(call: Call, registry: Registry) -> SchemaAnswer:
    """Return the schema of a guid."""
    state, schema_id = await _of_guid(call, registry)
    return answer_of(await registry.formatted(state, state.ids[schema_id], call.query.format))


async def list_ids_of_guid(call: Call, registry: Registry) -> list[dict[str, Any]]:
    """List the ids of a guid, by context."""
    _, schema_id = await _of_guid(call, registry)
    return [{"context": ".", "id": schema_id}]


async def _of_guid(call: Call, registry: Registry) -> tuple[RegistryState, int]:
    try:
        identity = UUID(call.path["guid"]).bytes
    except ValueError:
        raise ApiError(422, "guid must be a UUID") from None
    state = registry.store.state
    if identity not in state.by_identity:
        state = await registry.store.current()
    schema_id = state.by_identity.get(identity)
    if schema_id is None:
        raise schema_not_found()
    _check_readable(call, state, schema_id)
    return state, schema_id


async def list_types(call: Call) -> list[str]:
    """List the types of schemas."""
    return list(KINDS)


async def list_contexts(call: Call) -> list[str]:
    """List the contexts: there is one."""
    return ["."]


async def get_root(call: Call) -> dict[str, str]:
    """Return an empty object, by which clients see that this is a registry."""
    return {}


async def get_server_version(call: Call) -> ServerVersion:
    """Return the release."""
    return ServerVersion(__version__)


async def get_server_id(call: Call) -> ServerId:
    """Return the ids of the cluster and the registry."""
    cluster_id = call.node.image().cluster_id or ""
    return ServerId(Scope([], {"kafka-cluster": cluster_id, "schema-registry-cluster": "_schemas"}))


ID: Final = "/schemas/ids/{id:int}"
GUID: Final = "/schemas/guids/{guid}"
ROUTES: Final = (
    row("GET", "/", get_root, "Answer that this is a registry", rights=NO_RIGHTS),
    row("GET", "/schemas/types", list_types, "List the types of schemas", rights=NO_RIGHTS),
    row("GET", "/contexts", list_contexts, "List the contexts", rights=NO_RIGHTS),
    row("GET", "/v1/metadata/version", get_server_version, "Show the release", rights=NO_RIGHTS),
    row("GET", "/v1/metadata/id", get_server_id, "Show which registry this is", rights=NO_RIGHTS),
    row(
        "GET",
        "/schemas",
        by_leader(list_schemas),
        "List the schemas",
        rights=FILTERED,
        answer=list[SchemaAnswer],
    ),
    row("GET", ID, by_leader(get_schema), "Show the schema of an id"),
    row(
        "GET",
        f"{ID}/schema",
        by_leader(get_schema_text),
        "Show the text of the schema of an id",
        answer=msgspec.Raw,
    ),
    row("GET", f"{ID}/subjects", by_leader(list_subjects_of_schema), "List the subjects that have a schema"),
    row("GET", f"{ID}/versions", by_leader(list_places), "List the versions that are a schema"),
    row("GET", GUID, by_leader(get_by_guid), "Show the schema of a guid"),
    row("GET", f"{GUID}/ids", by_leader(list_ids_of_guid), "List the ids of a guid"),
)
