"""The names of records that subjects are called after (RecordNameStrategy and TopicRecordNameStrategy)."""

from __future__ import annotations

from functools import lru_cache

from raftlog.schemas import json_texts
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import format_of
from raftlog.schemas.schema import Schema


@lru_cache(maxsize=1000)
def _names(kind: str, text: str) -> frozenset[str]:
    try:
        if kind == "AVRO":
            from raftlog.schemas.avro_schemas import canonical

            found = json_texts.loaded(canonical(text))
            return frozenset({found["name"]} if isinstance(found, dict) and "name" in found else ())
        if kind == "JSON":
            found = json_texts.loaded(text)
            return frozenset({found["title"]} if isinstance(found, dict) and "title" in found else ())
        file = format_of("PROTOBUF").parse(text, ())
        return frozenset(f"{file.package}.{name}" if file.package else name for name in file.messages)
    except SchemaError:
        return frozenset()


def names_of(schema: Schema) -> frozenset[str]:
    """Return the names that a record of a schema may have: of a Protobuf file, all its messages."""
    return _names(schema.kind, schema.text)
