"""The keywords of JSON Schema that look at a value itself, and not at values in it: each says why it does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple, Protocol

from raftlog.schemas.json_texts import canonical_json

SHOWN_CHARS: Final = 60
"""Of a value or a name in a message."""
MOST_SHOWN: Final = 5
"""Listed values in a message."""
LISTED_PER_STEP: Final = 20
"""Listed values that a value is compared with."""
EXACT_FLOATS: Final = 2.0**53


class At(NamedTuple):
    """A value, the schema for it, and where they are."""

    value: Any
    schema: Any
    document: Any
    """The schema that references point into."""
    path: tuple[Any, ...] = ()
    depth: int = 0

    def by(self, schema: Any) -> At:
        """Return the same value by another schema of the document."""
        return self._replace(schema=schema, depth=self.depth + 1)

    def within(self, name: Any, value: Any, schema: Any) -> At:
        """Return a value in this value."""
        return At(value, schema, self.document, (*self.path, name), self.depth + 1)


class Walk(Protocol):
    """The check that a keyword is part of."""

    draft: int

    def spend(self, steps: int) -> bool:
        """Count steps. Return whether a slice of work ends."""

    def skip(self, reason: str) -> None:
        """Note what is not checked."""

    def key(self, value: Any) -> str:
        """Return a text that is the same for equal values."""

    def matches(self, pattern: str, text: str) -> bool | None:
        """Return whether a part of a text matches a pattern, None where that is not checked."""


def shown(value: Any) -> str:
    """Return a value for a message: short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = canonical_json(value[: SHOWN_CHARS + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} …"


def with_integers(value: Any) -> Any:
    """Return a value in which 1.0 is 1, as JSON Schema compares them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_FLOATS:
        return int(value)
    if isinstance(value, list):
        return [with_integers(each) for each in value]
    if isinstance(value, dict):
        return {name: with_integers(each) for name, each in value.items()}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is(kind: str, value: Any, draft: int) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return _is_number(value)
        case "integer":
            return _is_number(value) and (
                isinstance(value, int) or (draft > 4 and math.isfinite(value) and value.is_integer())
            )
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    raise ValueError(f"there is no type {kind[:SHOWN_CHARS]}")


def _type(walk: Walk, wanted: Any, at: At) -> str:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if any(_is(each, at.value, walk.draft) for each in kinds):
        return ""
    return f"{shown(at.value)} is not of type {' or '.join(kinds)}"


def _enum(walk: Walk, wanted: Any, at: At) -> str:
    walk.spend(len(wanted) // LISTED_PER_STEP)
    if isinstance(at.value, str):
        is_listed = at.value in wanted
    elif isinstance(at.value, dict | list):
        key = walk.key(at.value)
        is_listed = any(key == walk.key(each) for each in wanted if isinstance(each, type(at.value)))
    else:
        is_bool = isinstance(at.value, bool)
        is_listed = any(each == at.value and isinstance(each, bool) == is_bool for each in wanted)
    if is_listed:
        return ""
    listed = ", ".join(shown(each) for each in wanted[:MOST_SHOWN])
    return f"{shown(at.value)} is not one of {listed}{' …' if len(wanted) > MOST_SHOWN else ''}"


def _const(walk: Walk, wanted: Any, at: At) -> str:
    return "" if walk.key(at.value) == walk.key(wanted) else f"{shown(at.value)} is not {shown(wanted)}"


def _least(walk: Walk, wanted: Any, at: At) -> str:
    if not _is_number(at.value):
        return ""
    is_exclusive = at.schema.get("exclusiveMinimum") is True
    if at.value < wanted or (is_exclusive and at.value == wanted):
        return f"{shown(at.value)} is less than the minimum {shown(wanted)}"
    return ""


def _most(walk: Walk, wanted: Any, at: At) -> str:
    if not _is_number(at.value):
        return ""
    is_exclusive = at.schema.get("exclusiveMaximum") is True
    if at.value > wanted or (is_exclusive and at.value == wanted):
        return f"{shown(at.value)} is more than the maximum {shown(wanted)}"
    return ""


def _above(walk: Walk, wanted: Any, at: At) -> str:
    if isinstance(wanted, bool) or not _is_number(at.value) or at.value > wanted:
        return ""
    return f"{shown(at.value)} is not more than {shown(wanted)}"


def _below(walk: Walk, wanted: Any, at: At) -> str:
    if isinstance(wanted, bool) or not _is_number(at.value) or at.value < wanted:
        return ""
    return f"{shown(at.value)} is not less than {shown(wanted)}"


def _multiple(walk: Walk, wanted: Any, at: At) -> str:
    """Compare decimal fractions: 19.99 is a multiple of 0.01."""
    if not _is_number(at.value):
        return ""
    if isinstance(at.value, float) and not math.isfinite(at.value):
        walk.skip("a number is too large to be divided")
        return ""
    is_multiple = Fraction(str(at.value)) % Fraction(str(wanted)) == 0
    return "" if is_multiple else f"{shown(at.value)} is no multiple of {shown(wanted)}"


def _length(kind: type, what: str, *, is_least: bool) -> Callable[[Walk, Any, At], str]:
    """Return the check of how many parts a value has."""

    def check_length(walk: Walk, wanted: Any, at: At) -> str:
        if not isinstance(at.value, kind):
            return ""
        count = len(at.value)  # type: ignore[arg-type]
        if is_least and count < wanted:
            return f"it has {count} {what}, and at least {wanted} are needed"
        if not is_least and count > wanted:
            return f"it has {count} {what}, and at most {wanted} are allowed"
        return ""

    return check_length


def _pattern(walk: Walk, wanted: Any, at: At) -> str:
    if isinstance(at.value, str) and walk.matches(wanted, at.value) is False:
        return f"{shown(at.value)} does not match the pattern {wanted[:SHOWN_CHARS]!r}"
    return ""


def _required(walk: Walk, wanted: Any, at: At) -> str:
    if not isinstance(at.value, dict):
        return ""
    walk.spend(len(wanted))
    missing = next((each for each in wanted if each not in at.value), None)
    return "" if missing is None else f"the required property {missing[:SHOWN_CHARS]!r} is missing"


def _dependent_required(walk: Walk, wanted: Any, at: At) -> str:
    if not isinstance(at.value, dict):
        return ""
    walk.spend(len(wanted))
    reasons = (
        _required(walk, names, at)
        for name, names in wanted.items()
        if name in at.value and isinstance(names, list)
    )
    return next((each for each in reasons if each), "")


def _not_checked(name: str) -> Callable[[Walk, Any, At], str]:
    """Return a check that only notes that the keyword is not checked, unless the keyword allows any value."""

    def skip(walk: Walk, wanted: Any, at: At) -> str:
        if wanted is not True:
            walk.skip(f"{name} is not checked")
        return ""

    return skip


PLAIN: Final[Mapping[str, Callable[[Walk, Any, At], str]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _least,
    "maximum": _most,
    "exclusiveMinimum": _above,
    "exclusiveMaximum": _below,
    "multipleOf": _multiple,
    "minLength": _length(str, "characters", is_least=True),
    "maxLength": _length(str, "characters", is_least=False),
    "minItems": _length(list, "items", is_least=True),
    "maxItems": _length(list, "items", is_least=False),
    "minProperties": _length(dict, "properties", is_least=True),
    "maxProperties": _length(dict, "properties", is_least=False),
    "pattern": _pattern,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependencies": _dependent_required,
    **{
        name: _not_checked(name)
        for name in ("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef")
    },
}
