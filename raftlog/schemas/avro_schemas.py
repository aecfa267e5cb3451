"""Avro schemas: canonical text, parsing and compatibility. The package `avro` is imported when a schema is parsed.

Parsing and comparing are work for a thread. Each has a bound that a client cannot pass: `check_shape` limits the JSON,
and the comparison of two schemas counts its steps.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.json_texts import canonical_json, check_shape, loaded, minified
from raftlog.schemas.schema import Named

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
MAX_STEPS: Final = 20_000
"""Pairs of types that a comparison of two schemas looks at."""
MAX_FIELDS: Final = 200_000
"""Fields of records that a comparison of two schemas looks at, in all pairs."""
MAX_DEFAULT_STEPS: Final = 100_000
"""Pairs of a type and a value that the check of a schema's defaults looks at."""
MOST_MESSAGES: Final = 20
NAME_MAX_CHARS: Final = 1_000
"""Of a type's full name, which the text with full names repeats wherever the type is used."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INT_BITS: Final = {"int": 31, "long": 63}


def stored_text(text: str) -> str:
    """Return the text without white space between its tokens, as Confluent's registry does. Raises SchemaError."""
    value = loaded(text)
    check_shape(value)
    _resolved(value, "")
    return minified(text)


def canonical(text: str) -> str:
    """Return a text that is the same for schemas that differ only in layout, order of attributes, or form of names."""
    return canonical_json(_resolved(loaded(text), ""))


def _resolved(node: Any, space: str) -> Any:
    """Return a type with full names, and without the wrapping of a plain primitive."""
    if isinstance(node, str):
        return node if node in PRIMITIVES or "." in node or not space else f"{space}.{node}"
    if isinstance(node, list):
        return [_resolved(each, space) for each in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if len(node) == 1 and isinstance(kind, str | dict | list):
        return _resolved(kind, space)
    found = dict(node)
    if isinstance(kind, str) and kind in NAMED and isinstance(node.get("name"), str):
        found["name"] = _full_name(node, space)
        found.pop("namespace", None)
        space = found["name"].rpartition(".")[0]
    for name in ("items", "values"):
        if name in node:
            found[name] = _resolved(node[name], space)
    if isinstance(kind, dict | list):
        found["type"] = _resolved(kind, space)
    fields = node.get("fields")
    if isinstance(fields, list):
        found["fields"] = [_resolved_field(each, space) for each in fields]
    return found


def _full_name(node: Mapping[str, Any], space: str) -> str:
    name = str(node["name"])
    if "." not in name:
        own = node.get("namespace", space)
        name = f"{own}.{name}" if own else name
    if len(name) > NAME_MAX_CHARS:
        raise too_large(f"the full name of a type has more than {NAME_MAX_CHARS} characters")
    return name


def _resolved_field(field: Any, space: str) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        return field
    return {**field, "type": _resolved(field["type"], space)}


def parse(text: str, named: Sequence[Named]) -> Any:
    """Return the parsed schema, with the types of the schemas that it refers to. Raises SchemaError."""
    import avro.errors
    import avro.name
    import avro.schema

    names = avro.name.Names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about logical types that this release of the package does not know
        try:
            for each in named:
                avro.schema.make_avsc_object(loaded(each.text), names)
            value = loaded(text)
            check_shape(value)
            _resolved(value, "")
            parsed = avro.schema.make_avsc_object(value, names)
            defaults = _Defaults()
            for record, field in _fields(parsed):
                _check_field(f"{record.name}.{field.name}", field, defaults)
        except avro.errors.AvroException as error:
            raise invalid_schema(str(error)[:500]) from None
        except RecursionError:
            raise too_large("its types are nested too deeply") from None
        except (TypeError, AttributeError, ValueError, KeyError) as error:  # the package's, for odd JSON
            raise invalid_schema(f"{type(error).__name__}: {str(error)[:300]}") from None
    return parsed


def _check_field(path: str, field: Any, defaults: _Defaults) -> None:
    """Check the name and the default of a field, which the package does not check."""
    if not NAME.fullmatch(str(field.name)):
        raise invalid_schema(f"{path[:200]!r} is no name of a field")
    if field.has_default and not defaults.fit(field.type, field.default):
        raise invalid_schema(f"the default of {path} is not of its type: {json.dumps(field.default)[:100]}")


def _fields(root: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each field of a schema, after its record."""
    waiting, seen = [root], set()
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        if schema.type in ("record", "error"):
            for field in schema.fields:
                yield schema, field
                waiting.append(field.type)
        elif schema.type == "array":
            waiting.append(schema.items)
        elif schema.type == "map":
            waiting.append(schema.values)
        elif schema.type in ("union", "error_union"):
            waiting += schema.schemas


class _Defaults:
    """Checks each pair of a type and a value once: unions of records that contain each other have 2^depth paths."""

    def __init__(self) -> None:
        self._fit: dict[tuple[int, int], bool] = {}
        """By the ids of a type and a value, which both stay as long as the parsed schema."""
        self._steps = 0

    def fit(self, schema: Any, value: Any) -> bool:
        """Return whether a default is of a type, as Avro writes defaults in JSON. Raises SchemaError."""
        self._count(1)
        pair = (id(schema), id(value))
        if pair not in self._fit:
            self._fit[pair] = self._fits(schema, value)
        return self._fit[pair]

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_DEFAULT_STEPS:
            raise too_large(f"checking its defaults takes more than {MAX_DEFAULT_STEPS} steps")

    def _fits(self, schema: Any, value: Any) -> bool:
        kind = schema.type
        if kind in ("union", "error_union"):
            return any(self.fit(each, value) for each in schema.schemas)
        if kind == "array":
            return isinstance(value, list) and all(self.fit(schema.items, each) for each in value)
        if kind == "map":
            return isinstance(value, dict) and all(self.fit(schema.values, each) for each in value.values())
        if kind in ("record", "error"):
            return isinstance(value, dict) and self._fits_record(schema.fields, value)
        return _fits_simple(schema, value)

    def _fits_record(self, fields: Sequence[Any], value: dict[str, Any]) -> bool:
        self._count(len(fields))
        return all(
            self.fit(each.type, value[each.name]) if each.name in value else each.has_default
            for each in fields
        )


def _fits_simple(schema: Any, value: Any) -> bool:
    """Return whether a default is of a type without other types in it."""
    kind = schema.type
    if kind in INT_BITS:
        bits = INT_BITS[kind]
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if kind == "enum":
        return value in schema.symbols
    if kind in ("float", "double"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number or value in ("NaN", "Infinity", "-Infinity")
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, str) and (kind != "fixed" or len(value) == schema.size)


def incompatibilities(reader: Any, writer: Any) -> list[str]:
    """Return why `reader` cannot read all records of `writer`; empty if it can. Raises SchemaError."""
    from avro.compatibility import SchemaCompatibilityType

    try:
        result = _checker_class()().get_compatibility(reader, writer)
    except RecursionError:
        raise too_large("its types refer to each other too deeply to be compared") from None
    if result.compatibility is not SchemaCompatibilityType.incompatible:
        return []
    return [each.text() for each in sorted(result.messages)[:MOST_MESSAGES]]


class _Fault(NamedTuple):
    """A reason why records cannot be read."""

    where: str
    """The path in the reader's schema."""
    kind: str
    detail: str
    field: str
    """The names of the fields around it, with dots between; "" outside of any."""

    def text(self) -> str:
        """Return it in the form of Confluent's registry, with the field's name beside the path."""
        named = f" (field {self.field})" if self.field else ""
        return f"{{errorType:'{self.kind}', description:'at {self.where}{named}', additionalInfo:'{self.detail}'}}"


class _Index(str):
    """The number of a field, as a part of a path, with the field's name."""

    name: str

    def __new__(cls, number: int, name: str) -> _Index:
        found = super().__new__(cls, number)
        found.name = name
        return found


def _separated(result: Any, location: list[str]) -> Any:
    """Replace the messages of a result by faults, because the package does not pair messages with kinds and places."""
    field = ".".join(each.name for each in location if isinstance(each, _Index))
    for message in [each for each in result.messages if not isinstance(each, _Fault)]:
        where = "/".join(location)[1:] or "/"
        if len(result.locations) == 1:
            (where,) = result.locations
        fault = _Fault(where, result.incompatibilities[0].name.upper(), message, field)
        result.messages = result.messages - {message} | {fault}
    return result


def _compare_named(
    reader: Any, writer: Any, location: list[str], compare_fields: Callable[[Any, Any, list[str]], Any]
) -> Any:
    """Return the result of two records, enums or fixed types."""
    from avro.compatibility import (
        check_fixed_size,
        check_reader_enum_contains_writer_enum,
        check_schema_names,
        merge,
    )

    if reader.type == "record":
        rest = compare_fields(reader, writer, location)
    elif reader.type == "fixed":
        rest = check_fixed_size(reader, writer, location)
    else:
        rest = check_reader_enum_contains_writer_enum(reader, writer, location)
        if rest.messages:  # a set as text, in any order
            missing = sorted(set(writer.symbols) - set(reader.symbols))
            rest.messages = {", ".join(missing[:MOST_MESSAGES])}
    name = check_schema_names(reader, writer, location)
    return merge(_separated(name, location), _separated(rest, location))


@lru_cache(maxsize=1)
def _checker_class() -> type[Any]:
    """Return the package's checker with a limit, and with its own record of pairs: the package's hashes collide."""
    from avro.compatibility import (
        CompatibleResult,
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityType,
        SchemaIncompatibilityType,
        incompatible,
        merge,
    )

    class BoundedChecker(ReaderWriterCompatibilityChecker):
        """Compares each pair of types once. A pair that is being compared counts as compatible."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.compared: dict[tuple[int, int], Any] = {}
            self.fields = 0
            """Fields of readers that it has looked at."""

        def get_compatibility(
            self, reader: Any, writer: Any, reference_token: str = "", location: list[str] | None = None
        ) -> Any:
            pair = (id(reader), id(writer))
            if pair not in self.compared:
                if len(self.compared) >= MAX_STEPS:
                    raise too_large(f"comparing it takes more than {MAX_STEPS} steps")
                self.compared[pair] = CompatibleResult
                place = [*(location or []), reference_token or "/"]
                self.compared[pair] = self.calculate_compatibility(reader, writer, place)
            return self.compared[pair]

        def calculate_compatibility(self, reader: Any, writer: Any, location: list[str]) -> Any:
            """Return the result of a pair of types. Its messages are faults."""
            if reader.type == writer.type and reader.type in ("record", "enum", "fixed"):
                return _compare_named(reader, writer, location, self.check_reader_writer_record_fields)
            return _separated(super().calculate_compatibility(reader, writer, location), location)

        def check_reader_writer_record_fields(self, reader: Any, writer: Any, location: list[str]) -> Any:
            """Return the results of the fields up to a number of misfits: the package copies all results for each."""
            result, misfits = CompatibleResult, 0
            written = writer.fields_dict
            self.fields += len(reader.fields) + len(writer.fields)
            if self.fields > MAX_FIELDS:
                raise too_large(f"comparing it takes more than {MAX_FIELDS} fields")
            for number, field in enumerate(reader.fields):
                place = [*location, "fields", _Index(number, field.name)]
                found = self.compare_field(field, written, writer, place)
                misfits += found.compatibility is SchemaCompatibilityType.incompatible
                result = merge(result, found)
                if misfits >= MOST_MESSAGES:
                    break
            return result

        def compare_field(self, field: Any, written: dict[str, Any], writer: Any, location: list[str]) -> Any:
            """Return the result of a field of the reader, of which the writer may have another name."""
            aliases = field.props.get("aliases")
            names = [field.name, *(aliases if isinstance(aliases, list) else ())]
            self.fields += len(names)
            found = next((written[each] for each in names if isinstance(each, str) and each in written), None)
            if found is not None:
                return self.get_compatibility(field.type, found.type, "type", location)
            if field.has_default:
                return CompatibleResult
            if field.type.type == "enum" and field.type.props.get("default"):
                return self.get_compatibility(field.type, writer, "type", location)
            kind = SchemaIncompatibilityType.reader_field_missing_default_value
            return _separated(incompatible(kind, field.name, location), location)

    return BoundedChecker
