"""Schemas as a registry's REST API returns them, with the schemas that they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from raftlog.schemas.errors import SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, too_large
from raftlog.schemas.schema import MAX_REFERENCED_CHARS, MAX_REFERENCES, Named, Reference

UNKNOWN: Final = {"/schemas/": (SCHEMA_NOT_FOUND,), "/subjects/": (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND)}
"""The codes that mean that a registry has no such schema, by the beginning of the path."""


class RegisteredSchema(NamedTuple):
    """A schema and those it refers to, in an order in which they can be parsed."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[Named, ...] = ()


class NotARegistry(Exception):
    """A response that no schema registry gives: the address is that of another service."""


def schema_in(answer: Any, path: str) -> dict[str, Any] | None:
    """Return the schema in a response's body, None if the registry has none of that path. Raise NotARegistry.

    Only the registry's own code means that it has none. Any server returns 404 for paths that it does not know.
    """
    found = answer if isinstance(answer, dict) else {}
    if isinstance(found.get("schema"), str):
        return found
    codes = next(codes for beginning, codes in UNKNOWN.items() if path.startswith(beginning))
    if found.get("error_code") in codes:
        return None
    said = f": {str(found['message'])[:200]}" if "message" in found else ""
    raise NotARegistry(f"it has no schema registry's answer to {path}{said}")


def read_registered(found: Any, ask: Callable[[str], Any]) -> RegisteredSchema:
    """Return the schema of a response. `ask` returns the response for a path, None for what the registry does not have.

    Of a schema with more than MAX_REFERENCES references, some are missing, so that its text cannot be parsed. Raise
    ValueError for a response of another form, SchemaError for more than MAX_REFERENCED_CHARS in references.
    """
    schema = msgspec.convert(found, _Response)
    references = tuple(dict.fromkeys(_referred(schema, ask, {})))
    return RegisteredSchema(schema.schema_type or "AVRO", schema.schema, references)


class _ReferenceBody(msgspec.Struct):
    name: str
    subject: str
    version: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _Response(msgspec.Struct, rename="camel"):
    """The fields of a response that are read."""

    schema: str
    schema_type: str | None = None
    references: list[_ReferenceBody] | None = None


def _referred(schema: _Response, ask: Callable[[str], Any], seen: dict[Reference, int]) -> Iterator[Named]:
    """Yield the references that were not seen, deepest first. `seen` has the characters of each."""
    for each in schema.references or ():
        reference = Reference(each.name, each.subject, each.version)
        if reference in seen or len(seen) >= MAX_REFERENCES:
            continue
        seen[reference] = 0
        subject = quote(reference.subject, safe="")
        there = ask(f"/subjects/{subject}/versions/{reference.version}?deleted=true")
        if there is not None:
            found = msgspec.convert(there, _Response)
            seen[reference] = len(found.schema)
            if sum(seen.values()) > MAX_REFERENCED_CHARS:
                raise too_large(f"it refers to more than {MAX_REFERENCED_CHARS} characters")
            yield from _referred(found, ask, seen)
            yield Named(reference.name, found.schema)
