"""Avro schemas: canonical text, parsing and compatibility. The package `avro` is imported when a schema is parsed.

Parsing and comparing are work for a thread. Each has a bound that a client cannot pass: `check_shape` limits the JSON,
and the comparison of two schemas counts its steps.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.json_texts import canonical_json, check_shape, loaded, minified
from raftlog.schemas.schema import Named

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
MAX_STEPS: Final = 20_000
"""Pairs of types that a comparison of two schemas looks at."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INT_BITS: Final = {"int": 31, "long": 63}


def stored_text(text: str) -> str:
    """Return the text without white space between its tokens, as Confluent's registry returns it."""
    check_shape(loaded(text))
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
    if "." in name:
        return name
    own = node.get("namespace", space)
    return f"{own}.{name}" if own else name


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
            parsed = avro.schema.make_avsc_object(value, names)
            for record, field in _fields(parsed):
                _check_field(f"{record.name}.{field.name}", field)
        except avro.errors.AvroException as error:
            raise invalid_schema(str(error)[:500]) from None
        except RecursionError:
            raise too_large("its types are nested too deeply") from None
        except (TypeError, AttributeError, ValueError, KeyError) as error:  # the package's, for odd JSON
            raise invalid_schema(f"{type(error).__name__}: {str(error)[:300]}") from None
    return parsed


def _check_field(path: str, field: Any) -> None:
    """Check what the package does not: the name of a field, and its default."""
    if not NAME.fullmatch(str(field.name)):
        raise invalid_schema(f"{path[:200]!r} is no name of a field")
    if field.has_default and not _Fit().fits(field.type, field.default):
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


class _Fit:
    """Checks defaults, as Avro writes them in JSON, against types. Each pair is looked at once: unions recur."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}

    def fits(self, schema: Any, value: Any) -> bool:
        if not isinstance(value, dict | list):
            return self._look(schema, value)
        pair = (id(schema), id(value))
        if pair not in self._known:
            self._known[pair] = self._look(schema, value)
        return self._known[pair]

    def _look(self, schema: Any, value: Any) -> bool:
        kind = schema.type
        if kind in ("union", "error_union"):
            return any(self.fits(each, value) for each in schema.schemas)
        if kind in ("array", "map"):
            return self._all_fit(schema, value)
        if kind in ("record", "error"):
            return isinstance(value, dict) and all(
                self.fits(each.type, value[each.name]) if each.name in value else each.has_default
                for each in schema.fields
            )
        return _is_primitive(schema, value)

    def _all_fit(self, schema: Any, value: Any) -> bool:
        if schema.type == "array":
            return isinstance(value, list) and all(self.fits(schema.items, each) for each in value)
        return isinstance(value, dict) and all(self.fits(schema.values, each) for each in value.values())


def _is_primitive(schema: Any, value: Any) -> bool:
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
    kinds = list(dict.fromkeys(each.name.upper() for each in result.incompatibilities))
    return [
        f"{{errorType:'{', '.join(kinds)}', description:'at {', '.join(sorted(result.locations))}', "
        f"additionalInfo:'{'; '.join(sorted(result.messages))}'}}"
    ]


@lru_cache(maxsize=1)
def _checker_class() -> type[Any]:
    """Return the package's checker, with a bound, and with another memory of pairs: the hashes of its own collide."""
    from avro.compatibility import CompatibleResult, ReaderWriterCompatibilityChecker

    class BoundedChecker(ReaderWriterCompatibilityChecker):
        """Compares each pair of types once. A pair that is being compared counts as compatible."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.compared: dict[tuple[int, int], Any] = {}

        def get_compatibility(
            self, reader: Any, writer: Any, reference_token: str = "", location: list[str] | None = None
        ) -> Any:
            pair = (id(reader), id(writer))
            if pair not in self.compared:
                if len(self.compared) >= MAX_STEPS:
                    raise too_large(f"comparing it takes more than {MAX_STEPS} steps")
                self.compared[pair] = CompatibleResult
                found = self.calculate_compatibility(
                    reader, writer, [*(location or []), reference_token or "/"]
                )
                self.compared[pair] = found
            return self.compared[pair]

    return BoundedChecker
