"""The names of records that subjects are called after (RecordNameStrategy and TopicRecordNameStrategy)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from raftlog.schemas import json_texts
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import demand_package, format_of
from raftlog.schemas.schema import Kind, Named, Schema

MAX_NAMED: Final = 200
"""Texts whose names are kept, some of which the registry may have deleted meanwhile."""


@lru_cache(maxsize=MAX_NAMED)
def _names(kind: Kind, text: str, imported: tuple[str, ...]) -> frozenset[str]:
    if kind == "PROTOBUF":
        demand_package(kind)
    try:
        if kind == "AVRO":
            from raftlog.schemas.avro_schemas import canonical

            return _named(json_texts.loaded(canonical(text)), "name")
        if kind == "JSON":
            return _named(json_texts.loaded(text), "title")
        file = format_of("PROTOBUF").parse(text, tuple(Named(each, "") for each in imported))
        return frozenset(f"{file.package}.{name}" if file.package else name for name in file.messages)
    except (SchemaError, RecursionError):  # another registry took it
        return frozenset()


def _named(found: Any, attribute: str) -> frozenset[str]:
    name = found.get(attribute) if isinstance(found, dict) else None
    return frozenset({name} if isinstance(name, str) else ())


def names_of(schema: Schema) -> frozenset[str]:
    """Return the names that a record of a schema may have: of a Protobuf file, all its messages.

    Work for a thread. Raises SchemaError if the package that parses the schema is not installed.
    """
    return _names(schema.kind, schema.text, tuple(each.name for each in schema.references))
