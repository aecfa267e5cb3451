"""Schemas as a registry's REST API returns them, with the schemas that they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from raftlog.schemas.schema import MAX_REFERENCES, Named, Reference


class RegisteredSchema(NamedTuple):
    """A schema and those it refers to, in an order in which they can be parsed."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[Named, ...] = ()


def read_registered(found: Any, ask: Callable[[str], Any]) -> RegisteredSchema:
    """Return the schema of a response. `ask` returns the response for a path, None for 404.

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
