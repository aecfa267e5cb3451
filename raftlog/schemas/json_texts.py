"""Schemas that are written in JSON: reading with limits on depth and size, and texts that do not depend on layout."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import msgspec

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.schema import MAX_DEPTH, MAX_PARTS, TEXT_MAX_CHARS

LEVELS_PER_TYPE: Final = 3
"""JSON nests so deeply for each type within a type: the object, the array of its fields, the field."""


def loaded(text: str) -> Any:
    """Return the JSON of a text. Raises SchemaError."""
    if len(text) > TEXT_MAX_CHARS:
        raise too_large(f"it has {len(text)} characters, of at most {TEXT_MAX_CHARS}")
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except RecursionError:
        raise too_large(f"its types are nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise invalid_schema(f"it is not JSON: {error}") from None
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def check_shape(value: Any) -> None:
    """Raise SchemaError for JSON that is nested too deeply or has too many parts."""
    parts, depth, level = 0, 0, [value]
    while level:
        depth += 1
        parts += len(level)
        if parts > MAX_PARTS:
            raise too_large(f"it has more than {MAX_PARTS} parts")
        if depth > MAX_DEPTH * LEVELS_PER_TYPE:
            raise too_large(f"its types are nested deeper than {MAX_DEPTH}")
        deeper: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                deeper += each.values()
            elif isinstance(each, list):
                deeper += each
        level = deeper


def canonical_json(value: Any) -> str:
    """Return JSON with sorted attributes and without white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def minified(text: str) -> str:
    """Return a JSON text without white space between its tokens, which are kept as they are."""
    return msgspec.json.format(text, indent=-1)
