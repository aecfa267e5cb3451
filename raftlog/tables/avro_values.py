"""Reads Avro values (fastavro) as rows of Arrow, and says which Arrow type a schema has.

Integers are of 64 bits and floats are doubles, so a schema that widens a field changes no column. A union of several
types, and a record within itself, become text as JSON.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from raftlog.tables.misfits import Misfit
from raftlog.tables.readers import MAX_DEPTH, Columns

UTC_TIME: Final = pa.timestamp("us", tz="UTC")
MAX_PRECISION: Final = 38
_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": UTC_TIME,
    "timestamp-micros": UTC_TIME,
}
_AS_TEXT: Final = frozenset(
    {"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid"}
)
"""Logical types that Delta or Iceberg lack, or that engines read differently."""

Convert = Callable[[Any], Any]


class Column(NamedTuple):
    """The Arrow type of a schema, and what makes Arrow's value of fastavro's; None if that is the same."""

    type: pa.DataType
    convert: Convert | None = None


class _Types(NamedTuple):
    """The types with names in a schema, and the count of its columns."""

    named: dict[str, Any]
    columns: Columns


class AvroReader:
    """Reads the values of one schema. Raise Misfit for a schema that is none."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(json.loads(each), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
            column = _column(self._schema, _Types(named, Columns()), ())
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            fastavro.schema.SchemaParseException,
        ) as error:
            raise Misfit(f"its schema cannot be used: {error}") from None
        is_record = pa.types.is_struct(column.type)
        self.type = column.type if is_record else pa.struct([pa.field("value", column.type)])
        convert = column.convert or _same
        self._convert: Convert = convert if is_record else lambda value: {"value": convert(value)}

    def part(self, payload: bytes) -> tuple[AvroReader, bytes]:
        """Return this reader for any value."""
        return self, payload

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values. Raise Misfit."""
        stream = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(stream, self._schema, None)
            row = self._convert(found)
        except Exception as error:  # whatever the bytes make fastavro do
            raise Misfit(f"its bytes are not of its schema: {type(error).__name__}: {error}") from None
        if stream.tell() != len(payload):
            raise Misfit(f"{len(payload) - stream.tell()} bytes follow its value")
        return row


def _column(node: Any, types: _Types, within: tuple[str, ...]) -> Column:
    """Return the column of a schema. `within` has the names of the records around it."""
    if isinstance(node, list):
        return _union(node, types, within)
    if isinstance(node, str):
        return (
            _column(types.named[node], types, within)
            if node in types.named
            else Column(_PLAIN.get(node, pa.string()))
        )
    kind, logical = node["type"], node.get("logicalType")
    if isinstance(kind, dict | list) or kind in types.named:
        return _column(kind, types, within)
    if logical == "decimal":
        precision, scale = node["precision"], node.get("scale", 0)
        return (
            Column(pa.decimal128(precision, scale))
            if precision <= MAX_PRECISION
            else Column(pa.string(), str)
        )
    if logical in _AS_TEXT:
        return Column(pa.string(), _as_text)
    if logical in _LOGICAL:
        return Column(_LOGICAL[logical])
    match kind:
        case "record" | "error":
            return _record(node, types, within)
        case "array":
            return _array(_column(node["items"], types, within))
        case "map":
            return _map(_column(node["values"], types, within))
    return Column(_PLAIN[kind])


def _union(branches: list[Any], types: _Types, within: tuple[str, ...]) -> Column:
    columns = [_column(each, types, within) for each in branches if each != "null"]
    if len(columns) == 1:
        type_, convert = columns[0]
        return Column(
            type_, None if convert is None else lambda value: None if value is None else convert(value)
        )
    if columns and all(each == columns[0] for each in columns):
        return columns[0]
    return Column(pa.string(), lambda value: None if value is None else _as_json(value))


def _record(node: Any, types: _Types, within: tuple[str, ...]) -> Column:
    name = node["name"]
    fields = node["fields"]
    if name in within or (within and not fields) or len(within) >= MAX_DEPTH:
        return Column(pa.string(), _as_json)
    types.columns.add((each["name"] for each in fields), name)
    columns = {each["name"]: _column(each["type"], types, (*within, name)) for each in fields}
    converts = {field: convert for field, (_, convert) in columns.items() if convert is not None}
    type_ = pa.struct([pa.field(field, column.type) for field, column in columns.items()])
    if not converts:
        return Column(type_)
    return Column(
        type_,
        lambda value: {**value, **{field: convert(value[field]) for field, convert in converts.items()}},
    )


def _array(items: Column) -> Column:
    convert = items.convert
    type_ = pa.list_(pa.field("element", items.type))
    return Column(type_, None if convert is None else lambda value: [convert(each) for each in value])


def _map(values: Column) -> Column:
    convert = values.convert or _same
    return Column(
        pa.map_(pa.string(), values.type),
        lambda value: [(key, convert(each)) for key, each in value.items()],
    )


def _same(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _as_text(value)
