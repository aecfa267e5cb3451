"""Subjects and their versions: register, look up, list, delete."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from aiohttp import web

from raftlog.admin.errors import ApiError
from raftlog.admin.route import ASKED_BY_HANDLER, FILTERED, TOPIC, Call, Route
from raftlog.admin.schema_registry.answers import (
    MEDIA_TYPE,
    AnyQuery,
    SchemaAnswer,
    SchemaBody,
    answer_of,
    by_leader,
    existing,
    page,
    resource_of,
    schema_of,
    subject_of,
    version_number,
)
from raftlog.admin.schema_registry.registry import Registry
from raftlog.base.turns import in_slices
from raftlog.schemas.decisions import (
    Registration,
    decide_subject_deletion,
    decide_version_deletion,
    version_of,
)
from raftlog.schemas.errors import schema_not_found
from raftlog.schemas.metadata import latest_with
from raftlog.schemas.registry_state import Identified
from raftlog.security.acls import Operation


async def register_schema(call: Call, registry: Registry) -> SchemaAnswer:
    """Register a schema, and answer its id; a schema that the subject has keeps it."""
    subject, body = subject_of(call, Operation.WRITE), call.body
    given = schema_of(call)
    schema, identity = await registry.prepare(given, normalize=call.query.normalize)
    wanted = Registration(subject, schema, identity, max(body.id or 0, 0), max(body.version or 0, 0))
    found = await registry.register(wanted)
    call.audit.update(subject=subject, version=found.version, schema_id=found.id)
    # a permanent deletion may have come since
    known = registry.store.state.ids.get(found.id, Identified(schema, identity))
    return answer_of(known, found)


async def look_up_schema(call: Call, registry: Registry) -> SchemaAnswer:
    """Return the version of a subject that is the schema of the body."""
    subject = subject_of(call, Operation.DESCRIBE)
    _, identity = await registry.prepare(schema_of(call), normalize=call.query.normalize)
    state = await registry.store.current()
    existing(state, subject, deleted=call.query.deleted)
    found = state.find(subject, identity, deleted=call.query.deleted)
    if found is None:
        raise schema_not_found()
    return answer_of(await registry.formatted(state, state.ids[found.id], call.query.format), found)


async def list_subjects(call: Call, registry: Registry) -> list[str]:
    """List the subjects that the caller may read."""
    state, query = await registry.store.current(), call.query
    prefix = query.subjectPrefix.removeprefix(":.:").replace(":*:", "")
    shown = [
        subject
        async for subject in in_slices(call, list(state.subjects))
        if subject.startswith(prefix) and _is_listed(state.versions(subject, deleted=True), query)
    ]
    allowed = await call.among(Operation.DESCRIBE, TOPIC, map(resource_of, shown))
    return page(sorted(each for each in shown if resource_of(each) in allowed), query)


def _is_listed(versions: list[Any], query: AnyQuery) -> bool:
    """Return whether a subject with these versions is asked for."""
    is_deleted = all(each.deleted for each in versions)
    return is_deleted if query.deletedOnly else query.deleted or not is_deleted


async def list_versions(call: Call, registry: Registry) -> list[int]:
    """List the versions of a subject."""
    subject, query = subject_of(call, Operation.DESCRIBE), call.query
    state = await registry.store.current()
    found = existing(state, subject, deleted=query.deleted or query.deletedOnly)
    return page([each.version for each in found if each.deleted or not query.deletedOnly], query)


async def get_version(call: Call, registry: Registry) -> SchemaAnswer:
    """Return a version of a subject."""
    subject, number = subject_of(call, Operation.DESCRIBE), version_number(call)
    state = await registry.store.current()
    found = version_of(state, subject, number, deleted=call.query.deleted)
    return answer_of(await registry.formatted(state, state.ids[found.id], call.query.format), found)


async def get_version_text(call: Call, registry: Registry) -> web.Response:
    """Return the text of a version of a subject."""
    subject, number = subject_of(call, Operation.DESCRIBE), version_number(call)
    state = await registry.store.current()
    found = version_of(state, subject, number, deleted=call.query.deleted)
    shown = await registry.formatted(state, state.ids[found.id], call.query.format)
    return web.Response(text=shown.schema.text, content_type=MEDIA_TYPE)


class MetadataQuery(AnyQuery):
    """Properties as pairs: the first `key` with the first `value`, and so on."""

    key: list[str] = []
    value: list[str] = []


async def get_latest_with_metadata(call: Call, registry: Registry) -> SchemaAnswer:
    """Return the newest version of a subject whose metadata has these properties."""
    subject, query = subject_of(call, Operation.DESCRIBE), call.query
    if len(query.key) != len(query.value):
        raise ApiError(400, f"{len(query.key)} times key, and {len(query.value)} times value: they are pairs")
    properties = dict(zip(query.key, query.value, strict=True))
    state = await registry.store.current()
    # confluent-kafka for Python encodes keys and values twice
    decoded = {unquote(name): unquote(value) for name, value in properties.items()}
    found = latest_with(state, subject, (properties, decoded), deleted=query.deleted)
    return answer_of(await registry.formatted(state, state.ids[found.id], query.format), found)


async def list_referrers(call: Call, registry: Registry) -> list[int]:
    """List the ids of schemas that refer to a version."""
    subject, number = subject_of(call, Operation.DESCRIBE), version_number(call)
    state = await registry.store.current()
    found = version_of(state, subject, number, deleted=call.query.deleted)
    return page(state.referrers_of((subject, found.version)), call.query)


async def delete_subject(call: Call, registry: Registry) -> list[int]:
    """Delete a subject softly, or for good; answer its versions."""
    subject = subject_of(call, Operation.DELETE)
    found: list[int] = await registry.change(decide_subject_deletion, subject, permanent=call.query.permanent)
    call.audit.update(subject=subject, versions=len(found))
    return found


async def delete_version(call: Call, registry: Registry) -> int:
    """Delete a version softly, or for good; answer its number."""
    subject, number = subject_of(call, Operation.DELETE), version_number(call)
    found: int = await registry.change(
        decide_version_deletion, subject, number, permanent=call.query.permanent
    )
    call.audit.update(subject=subject, version=found)
    return found


SUBJECT: Final = "/subjects/{subject}"
VERSION: Final = f"{SUBJECT}/versions/{{version}}"
REFUSALS: Final = {
    422: "the schema, a name, a version or a setting is invalid, or the mode does not allow it",
    500: "the store was not reached, or made no progress; a change may have been made, or not",
    502: "the leader's response is too long to be forwarded",
}
row = partial(Route, query=AnyQuery, rights=ASKED_BY_HANDLER, media_type=MEDIA_TYPE, refusals=REFUSALS)
ROUTES: Final = (
    row("GET", "/subjects", by_leader(list_subjects), "List the subjects", rights=FILTERED),
    row(
        "POST",
        SUBJECT,
        by_leader(look_up_schema),
        "Find the version that is this schema",
        body=SchemaBody,
        role="reader",
    ),
    row("DELETE", SUBJECT, by_leader(delete_subject, repeatable=False), "Delete a subject"),
    row(
        "GET",
        f"{SUBJECT}/metadata",
        by_leader(get_latest_with_metadata),
        "Show the newest version with metadata",
        query=MetadataQuery,
    ),
    row("GET", f"{SUBJECT}/versions", by_leader(list_versions), "List the versions of a subject"),
    row(
        "POST",
        f"{SUBJECT}/versions",
        by_leader(register_schema),
        "Register a schema",
        body=SchemaBody,
    ),
    row("GET", VERSION, by_leader(get_version), "Show a version"),
    row("DELETE", VERSION, by_leader(delete_version, repeatable=False), "Delete a version"),
    row(
        "GET",
        f"{VERSION}/schema",
        by_leader(get_version_text),
        "Show the text of a version",
        answer=msgspec.Raw,
    ),
    row("GET", f"{VERSION}/referencedby", by_leader(list_referrers), "List the ids that refer to a version"),
)
