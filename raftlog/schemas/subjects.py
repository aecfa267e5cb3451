"""The names of records that subjects are called after (RecordNameStrategy and TopicRecordNameStrategy)."""

from __future__ import annotations

from typing import Any

from raftlog.schemas import json_texts
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import demand_package, format_of
from raftlog.schemas.schema import Named, Schema


def names_of(schema: Schema) -> frozenset[str]:
    """Return the names that a record of a schema may have: of a Protobuf file, all its messages.

    Work for a thread. Raises SchemaError if the package that parses the schema is not installed.
    """
    kind, text = schema.kind, schema.text
    if kind == "PROTOBUF":
        demand_package(kind)
    try:
        if kind == "AVRO":
            from raftlog.schemas.avro_schemas import canonical

            return _named(json_texts.loaded(canonical(text)), "name")
        if kind == "JSON":
            return _named(json_texts.loaded(text), "title")
        file = format_of("PROTOBUF").parse(text, tuple(Named(each.name, "") for each in schema.references))
        return frozenset(f"{file.package}.{name}" if file.package else name for name in file.messages)
    except (SchemaError, RecursionError):  # another registry took it
        return frozenset()


def _named(found: Any, attribute: str) -> frozenset[str]:
    name = found.get(attribute) if isinstance(found, dict) else None
    return frozenset({name} if isinstance(name, str) else ())
