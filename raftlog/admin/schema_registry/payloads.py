"""Reads payloads in Confluent's wire format by the schemas that this node has, for one request.

A payload begins with a zero byte and the id of its schema, or with a 1 and its guid. A caller sees it decoded if it
may describe a subject that has the schema, as with the registry's own routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec

from raftlog.admin.route import TOPIC, Call
from raftlog.admin.schema_registry.answers import resource_of
from raftlog.admin.schema_registry.registry import Registry
from raftlog.base.turns import run_steps
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.json_payloads import StepsLeft, check
from raftlog.schemas.payloads import BY_GUID, FRAMES, Undecodable, UsedSchema, check_json
from raftlog.schemas.registry_state import Identified, RegistryState
from raftlog.security.acls import Operation

NEWS_S: Final = 0.5
"""How long a request waits, once, for a schema that was registered a moment ago."""
LOADING_S: Final = 3.0
"""How long it waits while this node's replica is being read."""


class _Reader(NamedTuple):
    schema: UsedSchema
    parsed: Any


class PayloadReader:
    """Decodes the payloads of one request. Each schema is looked up once."""

    def __init__(self, call: Call, registry: Registry, subjects: Sequence[str]) -> None:
        """`subjects`: preferred where several have the schema."""
        self._call = call
        self._registry = registry
        self._subjects = subjects
        self._found: dict[bytes, _Reader | str] = {}
        self._json_schemas: dict[int, Any] = {}
        """Parsed JSON Schemas by id, or why one cannot be parsed."""
        self._steps_left = StepsLeft()
        self._may_wait = True
        self._failure = ""
        """Why the schemas could not be read from another node."""

    async def read(self, content: bytes) -> tuple[Any, UsedSchema]:
        """Return the value of a framed payload, and its schema. Raises Undecodable."""
        size = FRAMES[content[0]]
        prefix = content[:size]
        if prefix not in self._found:
            try:
                self._found[prefix] = await self._look_up(prefix)
            except Undecodable as error:
                self._found[prefix] = str(error)
        found = self._found[prefix]
        if isinstance(found, str):
            raise Undecodable(found)
        schema = found.schema
        try:
            return await self._value(found, content[size:])
        except Undecodable as error:
            name = f"{schema.subject[:249]} version {schema.version}"
            raise Undecodable(f"it is not of its schema {schema.id} ({name}): {error}") from None

    async def _value(self, reader: _Reader, payload: bytes) -> tuple[Any, UsedSchema]:
        schema = reader.schema
        if schema.type == "JSON":
            check_json(payload)
            return msgspec.Raw(payload), schema
        name = "avro_payloads" if schema.type == "AVRO" else "protobuf_payloads"
        value = await run_steps(
            self._call, import_module(f"raftlog.schemas.{name}").read(payload, reader.parsed)
        )
        if schema.type == "PROTOBUF":
            message, value = value
            return value, msgspec.structs.replace(schema, message=message)
        return value, schema

    async def checked(self, schema: UsedSchema, payload: bytes) -> UsedSchema:
        """Return the JSON Schema of a payload that was read, with what the payload breaks of it."""
        if schema.id not in self._json_schemas:
            self._json_schemas[schema.id] = await self._json_schema(schema.id)
        parsed = self._json_schemas[schema.id]
        if isinstance(parsed, str):
            return msgspec.structs.replace(schema, unchecked=parsed)
        fit = await run_steps(self._call, check(payload, parsed, self._steps_left))
        return msgspec.structs.replace(schema, mismatch=fit.mismatch, unchecked=fit.unchecked)

    async def _json_schema(self, schema_id: int) -> Any:
        """Return a parsed schema, or why there is none."""
        state = self._state
        identified = state.ids.get(schema_id)
        if identified is None:
            return "it was deleted a moment ago"
        try:
            return await self._registry.parse(state, identified)
        except SchemaError as error:
            return str(error)

    async def _look_up(self, prefix: bytes) -> _Reader:
        schema_id = await self._known_id(prefix)
        state = self._state
        identified = state.ids[schema_id]
        may = partial(self._call.may, Operation.DESCRIBE, TOPIC)
        places = [each for each in sorted(state.places[schema_id]) if may(resource_of(each[0]))]
        if not places:
            raise Undecodable(f"you may not read schema {schema_id} of the registry")
        subject, version = next((each for each in reversed(places) if each[0] in self._subjects), places[-1])
        schema = UsedSchema(schema_id, identified.schema.kind, subject, version)
        try:
            return _Reader(schema, await self._parsed(identified))
        except SchemaError as error:
            raise Undecodable(f"schema {schema_id} cannot be used: {error}") from None

    async def _known_id(self, prefix: bytes) -> int:
        """Return the id of a schema that this node has. Raises Undecodable."""
        if not self._registry.store.has_replica:
            self._registry.copy.keep_up(self._call)
        found = self._id_of(prefix)
        if found is None and self._may_wait:
            self._may_wait = False
            if self._registry.store.has_replica:
                await self._await_news(prefix)
            else:
                self._failure = await self._registry.copy.read_on(
                    self._call, is_known=lambda: self._id_of(prefix) is not None
                )
            found = self._id_of(prefix)
        if found is None:
            name = f"guid {prefix[1:].hex()}" if prefix[0] else f"id {int.from_bytes(prefix[1:], 'big')}"
            if self._registry.store.has_replica or not self._failure:
                raise Undecodable(f"this node's copy of the registry has no schema with {name}")
            state = self._call.node.image().partition(SCHEMAS_TOPIC, 0)
            nodes = "another node" if state is None else f"one of the nodes {[*state.replicas]}"
            raise Undecodable(
                f"this node has no replica of _schemas to find {name} in, and has not read its leader's: "
                f"{self._failure}. Retry, or ask {nodes}"
            )
        return found

    async def _await_news(self, prefix: bytes) -> None:
        """Wait until this node's replica has a schema, within limits."""
        store = self._registry.store
        try:
            async with asyncio.timeout(LOADING_S if store.is_behind else NEWS_S):
                while self._id_of(prefix) is None:
                    await store.news()
        except TimeoutError:
            pass

    @property
    def _state(self) -> RegistryState:
        store = self._registry.store
        return store.state if store.has_replica else self._registry.copy.state

    def _id_of(self, prefix: bytes) -> int | None:
        state = self._state
        if prefix[0] == BY_GUID:
            return state.by_identity.get(prefix[1:])
        found = int.from_bytes(prefix[1:], "big")
        return found if found in state.ids else None

    async def _parsed(self, identified: Identified) -> Any:
        """Return what the reader of the type takes. Raises SchemaError, Undecodable."""
        if identified.schema.kind == "JSON":
            return None
        state = self._state
        parsed = await self._registry.parse(state, identified)
        if identified.schema.kind == "AVRO":
            return parsed
        from raftlog.schemas.protobuf_payloads import Types

        others = [await self._registry.parse(state, each) for each in state.referred_to(identified)]
        return await self._registry.in_thread(partial(Types, parsed, others))
