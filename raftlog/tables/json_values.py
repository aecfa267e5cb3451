"""Reads JSON values as rows of Arrow, and says which Arrow type a JSON Schema has.

A column has one type. What may be of several types, refers to itself, or has attributes that no list in the schema
names, becomes text as JSON. The types of values are checked. An attribute without a column is a misfit, so no part of a
value is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from raftlog.schemas.json_schemas import NOTES, Parsed, resolve
from raftlog.schemas.json_texts import loaded
from raftlog.schemas.schema import Named
from raftlog.tables.misfits import Misfit
from raftlog.tables.readers import MAX_DEPTH, Columns

Convert = Callable[[Any], Any]
NAME: Final = re.compile(r"[^\s,;{}()=.`\"]{1,250}")
"""Names that each format of tables takes for a column."""
COMBINED: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "if", "not", "patternProperties", "dependentSchemas", "unevaluatedProperties"}
)
"""Keywords beside a list of attributes that may bring more attributes."""
TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Column(NamedTuple):
    """The Arrow type of a schema, and what makes Arrow's value of JSON's; raises Misfit."""

    type: pa.DataType
    convert: Convert


class JsonReader:
    """Reads the values of one schema. Any exception means that the schema cannot be used."""

    def __init__(self, text: str, references: Sequence[Named] = ()) -> None:
        parsed = Parsed(loaded(text), {each.name: loaded(each.text) for each in references})
        column = _Reading(parsed).column(parsed.root, parsed.root, ())
        self._is_object = pa.types.is_struct(column.type)
        self.type = column.type if self._is_object else pa.struct([pa.field("value", column.type)])
        self._convert = column.convert

    def part(self, payload: bytes) -> tuple[JsonReader, bytes]:
        """Return this reader for any value."""
        return self, payload

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values. Any exception means that it does not fit."""
        try:
            found = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Misfit(f"its bytes are no JSON: {error}") from None
        row = self._convert(found)
        if not self._is_object:
            return {"value": row}
        if row is None:
            raise Misfit("it is null, and no object")
        return row


class _Reading:
    """The columns of the types of one schema. `within`: the ids of the types around a type."""

    def __init__(self, parsed: Parsed) -> None:
        self._parsed = parsed
        self._columns = Columns()

    def column(self, schema: Any, document: Any, within: tuple[int, ...]) -> Column:
        if not isinstance(schema, dict) or id(schema) in within or len(within) >= MAX_DEPTH:
            return AS_TEXT
        within = (*within, id(schema))
        keywords = schema.keys() - NOTES
        if "$ref" in schema:
            if keywords != {"$ref"}:
                return AS_TEXT
            target, there = resolve(self._parsed, document, schema["$ref"])
            return self.column(target, there, within)
        for union in ("oneOf", "anyOf", "allOf"):
            if keywords == {union}:
                return self._union(schema[union], document, within)
        match _type_of(schema):
            case "object":
                return self._object(schema, document, within)
            case "array" if isinstance(schema.get("items"), dict):
                return _list(self.column(schema["items"], document, within))
            case found:
                return _PLAIN.get(found, AS_TEXT)

    def _union(self, branches: Sequence[Any], document: Any, within: tuple[int, ...]) -> Column:
        """Return the column of the only branch besides null, or text."""
        rest = [each for each in branches if not isinstance(each, dict) or _type_of(each) != "null"]
        return self.column(rest[0], document, within) if len(rest) == 1 else AS_TEXT

    def _object(self, schema: Mapping[str, Any], document: Any, within: tuple[int, ...]) -> Column:
        properties, more = schema.get("properties"), schema.get("additionalProperties", True)
        if COMBINED & schema.keys() or (properties and isinstance(more, dict)):
            return AS_TEXT
        if not properties:
            is_map = isinstance(more, dict) and more
            return _map(self.column(more, document, within)) if is_map else AS_TEXT
        if not all(NAME.fullmatch(each) for each in properties):
            return AS_TEXT
        self._columns.add(properties, "an object")
        return _struct({name: self.column(each, document, within) for name, each in properties.items()})


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the only type besides null, "null", or "" for several."""
    found = schema.get("type")
    if found is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else ())
        found = [TYPES.get(type(each), "") for each in values]
        found += ["object"] * ("properties" in schema) + ["array"] * ("items" in schema)
    types = {found} if isinstance(found, str) else set(found)
    rest = types - {"null"}
    if rest == {"integer", "number"}:
        return "number"
    return next(iter(rest or types), "") if len(rest) < 2 else ""


def _struct(columns: Mapping[str, Column]) -> Column:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _other_type(value, "object")
        for name in value:
            if name not in columns:
                raise Misfit(f"its attribute {name[:100]!r} is not in its schema")
        return {
            name: None if (found := value.get(name)) is None else each.convert(found)
            for name, each in columns.items()
        }

    return Column(pa.struct([pa.field(name, each.type) for name, each in columns.items()]), convert)


def _list(items: Column) -> Column:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise _other_type(value, "array")
        return [None if each is None else items.convert(each) for each in value]

    return Column(pa.list_(pa.field("element", items.type)), convert)


def _map(values: Column) -> Column:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _other_type(value, "object")
        return [(name, None if each is None else values.convert(each)) for name, each in value.items()]

    return Column(pa.map_(pa.string(), values.type), convert)


def _other_type(value: Any, expected: str) -> Misfit:
    return Misfit(f"{_as_text(value)[:100]} is of another type than its schema says: {expected}")


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _plain(expected: str, *types: type) -> Convert:
    def convert(value: Any) -> Any:
        if value is None or type(value) in types:
            return value
        raise _other_type(value, expected)

    return convert


def _integer(value: Any) -> Any:
    """Return an integer; 1.0 is one, too."""
    if type(value) is float and value.is_integer():
        return int(value)
    return _INTEGER(value)


def _number(value: Any) -> Any:
    if type(value) is int:
        try:
            found = float(value)
        except OverflowError:
            raise Misfit(f"{_as_text(value)[:100]} is greater than any double") from None
        if int(found) != value:
            raise Misfit(f"{_as_text(value)[:100]} has more digits than a double")
        return found
    return _FLOAT(value)


_INTEGER: Final = _plain("integer", int)
_FLOAT: Final = _plain("number", float)
AS_TEXT: Final = Column(pa.string(), lambda value: None if value is None else _as_text(value))
_PLAIN: Final[dict[str, Column]] = {
    "string": Column(pa.string(), _plain("string", str)),
    "boolean": Column(pa.bool_(), _plain("boolean", bool)),
    "integer": Column(pa.int64(), _integer),
    "number": Column(pa.float64(), _number),
}
