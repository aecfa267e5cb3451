"""Parts that all routes of the registry share: errors, rights, the JSON of schemas, and the way to the leader.

The leader of `_schemas` answers. Another node forwards to it, and retries while the leadership moves. Only what an id
stands for never changes, so each node answers that by itself if it knows it.

Rights are ACLs of topics: `_schemas/SUBJECT` is the name of a subject, and `_schemas` of the whole registry. No topic
can be called `_schemas/SUBJECT`, so such a right does not extend to the records of `_schemas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.admin.route import TOPIC, Call
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.store import NotLeading
from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_BROKER, SCHEMAS_TOPIC
from raftlog.schemas.errors import (
    FORWARDING_FAILED,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    INVALID_VERSION,
    NO_LEADER,
    STORE_FAILED,
    SchemaError,
    subject_not_found,
)
from raftlog.schemas.formats import guid_of
from raftlog.schemas.registry_state import LATEST, Identified, RegistryState, Version
from raftlog.schemas.schema import KINDS, MAX_REFERENCES, Reference, Schema
from raftlog.security.acls import Operation

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
PATIENCE_S: Final = 10.0
"""How long a request is retried while no leader is known, or it does not answer."""
RETRY_S: Final = 0.1
SUBJECT_MAX_CHARS: Final = 512
DEFAULT_CONTEXT: Final = ":.:"
INT32: Final = 2**31

Version32 = Annotated[int, msgspec.Meta(ge=-1, lt=INT32)]


class AnyQuery(msgspec.Struct):
    """The parameters that routes share. Clients of newer registries send others, which are ignored."""

    deleted: bool = False
    permanent: bool = False
    normalize: bool = False
    verbose: bool = False
    force: bool = False
    defaultToGlobal: bool = False
    latestOnly: bool = False
    deletedOnly: bool = False
    subject: str = ""
    subjectPrefix: str = ""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: int = -1
    format: str = ""


class ReferenceBody(msgspec.Struct):
    """A reference, as clients send and get it."""

    name: str
    subject: str
    version: Version32


class MetadataBody(msgspec.Struct, omit_defaults=True):
    """Metadata of a schema. Its lists are sets, and an empty part is as good as none."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None
    """Names of properties."""


class SchemaBody(msgspec.Struct):
    """A schema, as clients send it. `id` and `version` are for mode IMPORT."""

    schema: str
    schemaType: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: MetadataBody | None = None
    ruleSet: dict[str, Any] | None = None
    """Kept as it is: clients carry its rules out."""
    id: Annotated[int, msgspec.Meta(ge=-1, lt=INT32)] | None = None
    version: Version32 | None = None


class SchemaAnswer(msgspec.Struct, omit_defaults=True):
    """A schema, with its place if it has been asked for by its place."""

    subject: str | None = None
    version: int | None = None
    id: int | None = None
    guid: str | None = None
    schemaType: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None
    schema: str | None = None
    deleted: bool | None = None


def answer_of(found: Identified, place: Version | None = None) -> SchemaAnswer:
    """Return a schema as JSON, with its place."""
    schema = found.schema
    answer = SchemaAnswer(
        guid=guid_of(found.identity),
        schemaType=None if schema.kind == "AVRO" else schema.kind,
        references=[ReferenceBody(*each) for each in schema.references] or None,
        metadata=None if schema.metadata is None else dict(schema.metadata),
        ruleSet=None if schema.rule_set is None else dict(schema.rule_set),
        schema=schema.text,
    )
    if place is not None:
        answer.subject, answer.version, answer.id = place.subject, place.version, place.id
        answer.deleted = place.deleted or None
    return answer


def schema_of(call: Call) -> Schema:
    """Return the schema of the body, once the caller may read what it refers to. Raises ApiError 403, SchemaError."""
    body: SchemaBody = call.body
    kind = next((each for each in KINDS if each == (body.schemaType or "AVRO")), None)
    if kind is None:
        raise SchemaError(INVALID_SCHEMA, f"schemaType must be one of {', '.join(KINDS)}")
    references = tuple(Reference(each.name, each.subject, each.version) for each in body.references or ())
    if len(references) > MAX_REFERENCES:
        raise SchemaError(INVALID_SCHEMA, f"a schema refers to {MAX_REFERENCES} others at most")
    for each in references:
        call.demand(Operation.READ, TOPIC, resource_of(each.subject))
    return Schema(kind, body.schema, references, _metadata_of(body.metadata), body.ruleSet)


def _metadata_of(body: MetadataBody | None) -> dict[str, Any] | None:
    """Return metadata that is the same for the same sets, without empty parts. None stays None."""
    if body is None:
        return None
    tags = {name: sorted(set(each)) for name, each in sorted((body.tags or {}).items())}
    properties = dict(sorted((body.properties or {}).items()))
    found = {"tags": tags, "properties": properties, "sensitive": sorted(set(body.sensitive or ()))}
    return {name: each for name, each in found.items() if each}


def subject_of(call: Call, operation: Operation) -> str:
    """Return the subject of the path, once the caller has the right. Raises ApiError 403, SchemaError 42208."""
    subject: str = call.path["subject"].removeprefix(DEFAULT_CONTEXT)
    call.demand(operation, TOPIC, resource_of(subject))
    if len(subject) > SUBJECT_MAX_CHARS or not subject.isprintable() or not subject:
        raise SchemaError(INVALID_SUBJECT, f"a subject has 1 to {SUBJECT_MAX_CHARS} printable characters")
    if subject.startswith(":."):
        raise SchemaError(INVALID_SUBJECT, "this registry has no contexts besides the default")
    return subject


def resource_of(subject: str) -> str:
    """Return the name that rules about a subject have."""
    return f"{SCHEMAS_TOPIC}/{subject}"


def version_number(call: Call) -> int:
    """Return the version of the path: a number, or LATEST. Raises SchemaError 42202."""
    text: str = call.path["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) < INT32):
        raise SchemaError(
            INVALID_VERSION, "the version must be a number from 1 to 2^31-1, or the string 'latest' or -1"
        )
    return int(text)


def existing(state: RegistryState, subject: str, *, deleted: bool = False) -> list[Version]:
    """Return the versions of a subject. Raise SchemaError 40401 if there is none."""
    found = state.versions(subject, deleted=deleted)
    if not found:
        raise subject_not_found(subject)
    return found


def page(names: list[Any], query: AnyQuery) -> list[Any]:
    """Return the part of a list that `offset` and `limit` ask for."""
    end = len(names) if query.limit < 0 else query.offset + query.limit
    return names[query.offset : end]


Handler = Callable[[Call, Registry], Awaitable[Any]]


def by_leader(handler: Handler, *, repeatable: bool = True) -> Callable[[Call], Awaitable[Any]]:
    """Have the leader of `_schemas` answer: this node, or another by HTTP. Retry while the leadership moves.

    `repeatable`: the same request again does no harm if it was carried out before.
    """

    @wraps(handler)
    async def answer(call: Call) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                return await _answer_once(handler, call, repeatable=repeatable)
            except SchemaError as error:
                if loop.time() > deadline or not _is_retried(call, error, repeatable=repeatable):
                    raise ApiError(error.status, str(error), code=error.code) from None
            await asyncio.sleep(RETRY_S)

    return answer


def _is_retried(call: Call, error: SchemaError, *, repeatable: bool) -> bool:
    """Return whether another attempt at this node may help.

    A forwarded request goes back to the node that the client asked, which forwards it to the next leader. Here it
    would wait until this node leads again.
    """
    is_temporary = error.code == NO_LEADER or (error.code == FORWARDING_FAILED and repeatable)
    return is_temporary and not call.is_forwarded


async def _answer_once(handler: Handler, call: Call, *, repeatable: bool) -> Any:
    if not isinstance(call.body, SchemaBody):
        return await _answer_or_forward(handler, call, repeatable=repeatable)
    # a place of its own: requests that two nodes forward to each other would wait for each other
    client = (call.raw.remote or "", call.caller.principal, call.is_forwarded)
    async with call.node.registry.turn_of(client):
        return await _answer_or_forward(handler, call, repeatable=repeatable)


async def _answer_or_forward(handler: Handler, call: Call, *, repeatable: bool) -> Any:
    registry: Registry = call.node.registry
    try:
        await registry.store.begin()
        return await handler(call, registry)
    except NotLeading as error:
        if error.is_uncertain and not repeatable:
            raise SchemaError(
                STORE_FAILED, "this node lost the lead meanwhile: the change may have been made, or not"
            ) from None
    except KafkaError as error:
        raise SchemaError(NO_LEADER, f"the topic {SCHEMAS_TOPIC} could not be created yet: {error}") from None
    answer = await registry.forwarder.forward(call, _leader(call))
    if answer.status >= 500 and _error_code(answer.body) == NO_LEADER:
        raise SchemaError(NO_LEADER, "no node leads the schema registry at the moment; retry")
    if answer.status >= HTTPStatus.BAD_REQUEST:
        call.outcome = f"refused by the leader with status {answer.status}"
    return answer


def _leader(call: Call) -> int:
    """Return the broker that leads `_schemas` by this node's metadata; never this node, which has found it does not."""
    state = call.node.image().partition(SCHEMAS_TOPIC, 0)
    if state is None or state.leader == call.node.config.node_id:
        return NO_BROKER
    return state.leader


def _error_code(body: Any) -> int:
    try:
        return int(msgspec.json.decode(body)["error_code"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return 0
