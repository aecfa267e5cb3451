"""Schemas as a registry's REST API returns them, with the schemas that they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from raftlog.schemas.errors import SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND
from raftlog.schemas.schema import MAX_REFERENCES, Named, Reference

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

    Of a schema with more than MAX_REFERENCES references, some are missing, so that its text cannot be parsed.
    """
    references = tuple(dict.fromkeys(_referred(found, ask, set())))
    return RegisteredSchema(found.get("schemaType", "AVRO"), found["schema"], references)


def _referred(found: Any, ask: Callable[[str], Any], seen: set[Reference]) -> Iterator[Named]:
    """Yield the references that were not seen, deepest first."""
    for each in found.get("references") or ():
        reference = Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        if reference in seen or len(seen) >= MAX_REFERENCES:
            continue
        seen.add(reference)
        subject = quote(reference.subject, safe="")
        there = ask(f"/subjects/{subject}/versions/{reference.version}?deleted=true")
        if there is not None:
            yield from _referred(there, ask, seen)
            yield Named(reference.name, str(there["schema"]))
