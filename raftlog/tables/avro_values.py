"""Reads Avro values (fastavro) as rows of Arrow, and says which Arrow type a schema has.

Integers are of 64 bits and floats are doubles, so a schema that widens a field changes no column. A union of several
types, and a record within itself, become text as JSON.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from fastavro._read_py import schemaless_reader as in_python

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
    """The types with names in a schema, the count of its columns, and the records that become text."""

    named: dict[str, Any]
    columns: Columns
    cut: set[str]


class AvroReader:
    """Reads the values of one schema. Any exception means that the schema cannot be used."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        named: dict[str, Any] = {}
        empty: dict[str, bool] = {}
        for each in (*references, text):
            self._schema = fastavro.parse_schema(json.loads(each), named_schemas=named)
            _check_arrays(self._schema, empty)
        types = _Types(named, Columns(), set())
        column = _column(self._schema, types, ())
        # the compiled reader has no limit of levels: a record within itself could end the process
        self._decode = in_python if types.cut else fastavro.schemaless_reader
        is_record = pa.types.is_struct(column.type)
        self.type = column.type if is_record else pa.struct([pa.field("value", column.type)])
        convert = column.convert or _same
        self._convert: Convert = convert if is_record else lambda value: {"value": convert(value)}

    def part(self, payload: bytes) -> tuple[AvroReader, bytes]:
        """Return this reader for any value."""
        return self, payload

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values. Any exception means that it does not fit."""
        stream = io.BytesIO(payload)
        row = self._convert(self._decode(stream, self._schema, None))
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
        precision, scale = node["precision"], int(node.get("scale", 0))
        return (
            Column(pa.decimal128(precision, scale))
            if precision <= MAX_PRECISION
            else Column(pa.string(), partial(_long_decimal, precision, scale))
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
        types.cut.add(name)
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


def _check_arrays(node: Any, empty: dict[str, bool]) -> None:
    """Raise ValueError for an array of items without bytes: a few bytes could count any number of them."""
    if isinstance(node, list):
        for each in node:
            _check_arrays(each, empty)
    elif isinstance(node, dict):
        if node["type"] == "array" and _is_empty(node["items"], empty):
            raise ValueError("it has an array of items that take no bytes")
        for each in (node["type"], node.get("items"), node.get("values"), node.get("fields")):
            _check_arrays(each, empty)
        _is_empty(node, empty)


def _is_empty(node: Any, empty: dict[str, bool]) -> bool:
    """Return whether the values of a schema take no bytes. `empty` has that of the named types so far."""
    if not isinstance(node, dict):
        return node == "null" or (isinstance(node, str) and empty.get(node, False))
    name, kind = node.get("name", ""), node["type"]
    if kind in ("record", "error") and name not in empty:
        empty[name] = False  # within itself
        empty[name] = all(_is_empty(each["type"], empty) for each in node["fields"])
    elif kind == "fixed":
        empty[name] = node["size"] == 0
    return empty[name] if name in empty else _is_empty(kind, empty)


def _long_decimal(precision: int, scale: int, value: Decimal) -> str:
    """Return a decimal that no column has room for. Raise Misfit if fastavro rounded it to the schema's precision."""
    if value.as_tuple().exponent != -scale:
        raise Misfit(f"a decimal is longer than its precision of {precision}")
    return str(value)


def _same(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _as_text(value)
