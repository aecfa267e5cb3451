"""Schemas as large as `raftlog.schemas` takes, and the records that fill a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from raftlog.records.batch import build_batch, new_record
from raftlog.schemas.protobuf_schemas import PROTO_MAX_CHARS
from raftlog.schemas.records import ConfigWritten, SchemaWritten, StoreRecord, encode
from raftlog.schemas.schema import (
    MAX_DEPTH,
    MAX_PARTS,
    MAX_REFERENCED_CHARS,
    MAX_REFERENCES,
    TEXT_MAX_CHARS,
    Kind,
    Schema,
)

SUBJECT: Final = "subject-with-versions"
BATCH_BYTES: Final = 500_000
SPARE: Final = 2_000
"""Characters that a schema has besides what makes it large."""
PER_FIELD: Final = 3
"""Values that a field is in the JSON of a schema."""


def stored(versions: int) -> Iterator[StoreRecord]:
    """Yield the records of a subject with so many versions, all compared at once, and of schemas to refer to."""
    for number in range(1, versions + 1):
        fields = [{"name": "f", "type": "long"}, {"name": f"f{number}", "type": "long", "default": 0}]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        yield SchemaWritten(SUBJECT, number, number, Schema("AVRO", text))
    yield ConfigWritten(SUBJECT, {"compatibilityLevel": "FULL_TRANSITIVE"})
    for number in range(1, MAX_REFERENCES + 1):
        doc = "d" * (MAX_REFERENCED_CHARS // MAX_REFERENCES - SPARE)
        text = json.dumps({"type": "record", "name": f"B{number}", "doc": doc, "fields": []})
        yield SchemaWritten(f"base-{number}", 1, versions + number, Schema("AVRO", text))


def batches(versions: int) -> Iterator[bytes]:
    """Yield batches for `_schemas` with what is `stored`."""
    some: list[tuple[bytes, bytes | None]] = []
    for each in stored(versions):
        some.append(encode(each))
        if sum(len(value or b"") for _, value in some) > BATCH_BYTES:
            yield _batch(some)
            some = []
    yield _batch(some)


def _batch(some: list[tuple[bytes, bytes | None]]) -> bytes:
    return build_batch([new_record(key, value, timestamp=1) for key, value in some])


def large_schemas() -> Iterator[tuple[str, Kind, str, Mapping[str, Any]]]:
    """Yield a name, a type, the limit that bounds it, and a body of each schema."""
    count = MAX_PARTS // PER_FIELD - 10
    parts, chars, depth = f"parts {MAX_PARTS}", f"characters {TEXT_MAX_CHARS}", f"depth {MAX_DEPTH}"
    fields = [{"name": f"f{number}", "type": "long"} for number in range(count)]
    yield "of many fields", "AVRO", parts, _body({"type": "record", "name": "R", "fields": fields})
    doc = "\u00e9" * (TEXT_MAX_CHARS - SPARE)
    long = json.dumps({"type": "record", "name": "R", "doc": doc, "fields": []}, ensure_ascii=False)
    yield "of a long text", "AVRO", chars, {"schema": long}
    nested: Any = "long"
    for number in range(MAX_DEPTH - 4):
        nested = {"type": "record", "name": f"R{number}", "fields": [{"name": "f", "type": nested}]}
    yield "of deep types", "AVRO", depth, _body(nested)
    yield "beyond the depth", "AVRO", depth, {"schema": "[" * (TEXT_MAX_CHARS - SPARE)}
    named = range(1, MAX_REFERENCES + 1)
    fields = [{"name": f"f{number}", "type": f"B{number}"} for number in named]
    references = [{"name": f"B{number}", "subject": f"base-{number}", "version": 1} for number in named]
    wide = _body({"type": "record", "name": "R", "fields": fields})
    yield "of references", "AVRO", f"references {MAX_REFERENCES}", {**wide, "references": references}
    properties = {f"f{number}": {"type": "integer"} for number in range(MAX_PARTS // PER_FIELD)}
    yield "of many properties", "JSON", parts, _body({"type": "object", "properties": properties})
    nested = {"type": "integer"}
    for _ in range(MAX_DEPTH - 4):
        nested = {"type": "object", "properties": {"f": nested}}
    yield "of deep types", "JSON", depth, _body(nested)
    lines = (f"int64 f{number} = {number};\n" for number in range(1, PROTO_MAX_CHARS // 25))
    text = 'syntax = "proto3";\nmessage R {\n' + "".join(lines) + "}\n"
    yield "of many fields", "PROTOBUF", f"characters {PROTO_MAX_CHARS}", {"schema": text}


def _body(schema: Any) -> Mapping[str, Any]:
    return {"schema": json.dumps(schema, separators=(",", ":"))}
