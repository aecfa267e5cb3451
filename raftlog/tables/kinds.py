"""The reader of each kind of schema. The packages of a kind are imported with its first schema."""

from __future__ import annotations

from raftlog.tables.misfits import Misfit
from raftlog.tables.readers import Reader
from raftlog.tables.registry import RegisteredSchema


def new_reader(schema: RegisteredSchema) -> Reader:
    """Return the reader of a schema. Raise Misfit if there is none, and anything for a text that is no schema."""
    match schema.kind:
        case "AVRO":
            from raftlog.tables.avro_values import AvroReader

            return AvroReader(schema.text, [each.text for each in schema.references])
        case "JSON":
            from raftlog.tables.json_values import JsonReader

            return JsonReader(schema.text, schema.references)
        case "PROTOBUF":
            from raftlog.tables.protobuf_values import ProtobufReader

            return ProtobufReader(schema.text, schema.references)
    raise Misfit(f"it is of kind {schema.kind}, which is not read")
