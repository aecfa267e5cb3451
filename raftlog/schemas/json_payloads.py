"""Checks JSON values by a JSON Schema that `json_schemas.parse` returned, of the drafts 4 to 2020-12.

A schema and its values are of clients. So the work is counted, ends at a limit, and yields between slices. Patterns run
in RE2, whose time is linear, and no reference is fetched. What cannot be checked is skipped, and the result says so: a
value counts as wrong only by what was checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple

from raftlog.base import regex
from raftlog.base.errors import InvalidRegularExpression
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.json_keywords import PLAIN, SHOWN_CHARS, At, shown, with_integers
from raftlog.schemas.json_schemas import Parsed, resolve
from raftlog.schemas.json_texts import canonical_json

MAX_STEPS: Final = 100_000
"""Keywords, items, members and listed values of one check."""
MAX_REQUEST_STEPS: Final = 4 * MAX_STEPS
"""Of the checks of one request, of which the last may go on to MAX_STEPS: a second or two."""
STEPS_AT_ONCE: Final = 400
"""Steps between two slices: a millisecond or two."""
MAX_DEPTH: Final = 80
"""Schemas within schemas, references among them."""
CHARS_PER_STEP: Final = 100
COMPILE_STEPS: Final = STEPS_AT_ONCE
"""Of an expression that is not among the few that are remembered. Compiling it is a slice of its own."""
REGEX_STEPS_PER_STEP: Final = 4_000
MAX_REGEX_STEPS: Final = 5_000_000
"""Steps of RE2 for one text: some twenty milliseconds, of one slice."""
WHERE_MAX_CHARS: Final = 200
REASON_MAX_CHARS: Final = 400
DRAFT: Final = re.compile(r"json-schema\.org/draft(?:-0|/)(\d{1,4})")
DEFAULT_DRAFT: Final = 7
CLASSES: Final = re.compile(r"\\[sSwWdDbB]")
"""Validators differ about what these match beyond ASCII."""
Misfit = tuple[tuple[Any, ...], str]
"""The path of a value that does not fit, and why."""
Search = Generator[None, None, Misfit | None]
"""Returns the first misfit that is found."""


class Fit(NamedTuple):
    """The result of a check: the first misfit, and what of the schema was not checked first; "" for neither."""

    mismatch: str
    unchecked: str


class StepsLeft:
    """The steps that are left for the checks of one request."""

    def __init__(self) -> None:
        self.count = MAX_REQUEST_STEPS


class _Unchecked(Exception):
    """Ends the check of a combination of schemas, or the whole check; the message says why."""


def check(payload: bytes, parsed: Parsed, left: StepsLeft) -> Generator[None, None, Fit]:
    """Return whether a JSON text fits a schema."""
    if left.count <= 0:
        return Fit("", f"the checks of values before it took {MAX_REQUEST_STEPS} steps")
    left.count -= len(payload) // CHARS_PER_STEP
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return Fit("", "a number has too many digits, or values are nested too deeply")
    walk = _Walk(parsed, left)
    found = None
    try:
        found = yield from walk.misfit(At(value, parsed.root, parsed.root))
    except (_Unchecked, SchemaError) as error:
        walk.unchecked = str(error)
    except RecursionError:
        walk.unchecked = "it is nested too deeply"
    except (TypeError, AttributeError, ValueError, KeyError, ArithmeticError) as error:
        # a reference may point to JSON that is no schema
        walk.unchecked = f"it cannot be compared ({str(error)[:WHERE_MAX_CHARS]})"
    return Fit("" if found is None else _described(*found), walk.unchecked)


def _described(path: tuple[Any, ...], reason: str) -> str:
    where = "".join(f"/{str(each)[:SHOWN_CHARS]}" for each in path)
    if len(where) > WHERE_MAX_CHARS:
        where = f"{where[:WHERE_MAX_CHARS]} …"
    found = f"at {where}: {reason[:REASON_MAX_CHARS]}" if where else reason[:REASON_MAX_CHARS]
    return found.encode("utf-8", "replace").decode()  # a text may have half of a surrogate pair


class _Walk:
    """One check, as far as it has come."""

    def __init__(self, parsed: Parsed, left: StepsLeft) -> None:
        self.unchecked = ""
        """What was skipped first."""
        self._parsed = parsed
        self._left = left
        self._steps = 0
        self._slice_ends = STEPS_AT_ONCE
        self._inside = 0
        """Combinations of schemas around the place: a part that is skipped could reverse their result."""
        named = parsed.root.get("$schema") if isinstance(parsed.root, dict) else None
        found = DRAFT.search(named) if isinstance(named, str) else None
        self.draft = DEFAULT_DRAFT if found is None else int(found[1])

    def spend(self, steps: int) -> bool:
        """Count steps. Return whether a slice of work ends. Raises _Unchecked."""
        self._steps += steps
        self._left.count -= steps
        if self._steps > MAX_STEPS:
            raise _Unchecked(f"it takes more than {MAX_STEPS} steps")
        return self._steps >= self._slice_ends

    def begin_slice(self) -> None:
        """Count anew until the next slice ends."""
        self._slice_ends = self._steps + STEPS_AT_ONCE

    def skip(self, reason: str) -> None:
        """Note what is not checked. Raise _Unchecked within a combination."""
        if self._inside:
            raise _Unchecked(reason)
        self.unchecked = self.unchecked or reason

    def misfit(self, at: At) -> Search:
        """Return why a value does not fit a schema, None if it does."""
        schema = at.schema
        if self.spend(1 + _size(schema) + _size(at.value)):
            self.begin_slice()
            yield
        if schema is False:
            return at.path, "nothing is allowed here"
        if not isinstance(schema, dict):
            return None
        if at.depth > MAX_DEPTH:
            raise _Unchecked(f"its schemas refer to each other, or nest, more than {MAX_DEPTH} deep")
        own_id = schema.get("$id" if self.draft > 4 else "id")
        is_reference_alone = "$ref" in schema and self.draft <= 7  # no keyword beside it counts
        if isinstance(own_id, str) and not own_id.startswith("#") and not is_reference_alone:
            at = at._replace(document=schema)
        if "$ref" in schema:
            found = yield from self._by_reference(at, str(schema["$ref"]))
            if found is not None or is_reference_alone:
                return found
        for name, wanted in schema.items():
            first, last = DRAFTS.get(name, ANY_DRAFT)
            if not first <= self.draft <= last:
                continue
            reason = PLAIN[name](self, wanted, at) if name in PLAIN else ""
            if reason:
                return at.path, reason
            found = (yield from self._nested(name, wanted, at)) if name in NESTED else None
            if found is not None:
                return found
        return None

    def _nested(self, name: str, wanted: Any, at: At) -> Search:
        if name not in COMBINATIONS:
            return (yield from NESTED[name](self, wanted, at))
        self._inside += 1
        try:
            return (yield from NESTED[name](self, wanted, at))
        except _Unchecked as error:
            if self._inside > 1 or self._steps > MAX_STEPS:
                raise
            self.unchecked = self.unchecked or str(error)
            return None
        finally:
            self._inside -= 1

    def _by_reference(self, at: At, reference: str) -> Search:
        pointer = reference.partition("#")[2]
        if pointer and not pointer.startswith("/"):
            self.skip(f"the anchor {pointer[:SHOWN_CHARS]!r} is not followed")
            return None
        try:
            schema, document = resolve(self._parsed, at.document, reference)
        except SchemaError:  # a schema has its own $id, or is of another name
            self.skip(f"the reference {reference[:SHOWN_CHARS]!r} is not followed")
            return None
        return (yield from self.misfit(at.by(schema)._replace(document=document)))

    def fits(self, at: At) -> Generator[None, None, bool]:
        """Return whether a value fits a schema."""
        return (yield from self.misfit(at)) is None

    def matches(self, pattern: str, text: str) -> bool | None:
        """Return whether a part of a text matches a pattern, None where that is not checked."""
        before = regex.compiled.cache_info().misses
        unchecked = _why_not_searched(pattern, text)
        self.spend(1 + COMPILE_STEPS * (regex.compiled.cache_info().misses - before))
        if unchecked:
            self.skip(f"the pattern {pattern[:SHOWN_CHARS]!r} {unchecked}")
            return None
        self.spend(regex.steps(pattern, text) // REGEX_STEPS_PER_STEP)
        return regex.compiled(pattern).search(text) is not None

    def key(self, value: Any) -> str:
        """Return a text that is the same for equal values."""
        found = canonical_json(with_integers(value))
        self.spend(1 + len(found) // CHARS_PER_STEP)
        return found


def _size(value: Any) -> int:
    if isinstance(value, dict | list):
        return len(value)
    return len(value) // CHARS_PER_STEP if isinstance(value, str) else 0


def _why_not_searched(pattern: str, text: str) -> str:
    """Return why a text is not searched for a pattern, "" if it can be."""
    try:
        regex.check_regex(pattern)
    except InvalidRegularExpression:
        return "is not one that RE2 searches in linear time, or is too large"
    if regex.steps(pattern, text) > MAX_REGEX_STEPS:
        return f"takes too many steps for a text of {len(text)} characters"
    if CLASSES.search(pattern) and not text.isascii():
        return "means different things beyond ASCII"
    return ""


# -- keywords with schemas in them


def _first(walk: _Walk, places: Iterator[At]) -> Search:
    """Return the first misfit of some places."""
    for each in places:
        found = yield from walk.misfit(each)
        if found is not None:
            return found
    return None


def _properties(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, dict):
        return None
    walk.spend(len(wanted))
    return (
        yield from _first(
            walk,
            (at.within(name, at.value[name], each) for name, each in wanted.items() if name in at.value),
        )
    )


def _pattern_properties(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, dict):
        return None
    for pattern, schema in wanted.items():
        for name, each in at.value.items():
            if walk.spend(1):
                walk.begin_slice()
                yield
            if walk.matches(pattern, name):
                found = yield from walk.misfit(at.within(name, each, schema))
                if found is not None:
                    return found
    return None


def _is_known(walk: _Walk, name: str, schema: Any) -> Generator[None, None, bool]:
    """Return whether a property is not an additional one. A pattern that is not checked may match it."""
    if name in schema.get("properties", ()):
        return True
    for pattern in schema.get("patternProperties", ()):
        if walk.spend(1):
            walk.begin_slice()
            yield
        if walk.matches(pattern, name) is not False:
            return True
    return False


def _additional_properties(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, dict) or wanted is True:
        return None
    for name, each in at.value.items():
        if walk.spend(1):
            walk.begin_slice()
            yield
        if (yield from _is_known(walk, name, at.schema)):
            continue
        if wanted is False:
            return at.path, f"the property {name[:SHOWN_CHARS]!r} is not allowed"
        found = yield from walk.misfit(at.within(name, each, wanted))
        if found is not None:
            return found
    return None


def _unique_items(walk: _Walk, wanted: Any, at: At) -> Search:
    seen: set[str] = set()
    items = at.value if wanted is True and isinstance(at.value, list) else ()
    for number, each in enumerate(items):
        if walk.spend(1):
            walk.begin_slice()
            yield
        key = walk.key(each)
        if key in seen:
            return (*at.path, number), "an earlier item is equal, and all must be different"
        seen.add(key)
    return None


def _property_names(walk: _Walk, wanted: Any, at: At) -> Search:
    names = at.value if isinstance(at.value, dict) else ()
    return (yield from _first(walk, (at.within(name, name, wanted) for name in names)))


def _dependent_schemas(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, dict):
        return None
    walk.spend(len(wanted))
    schemas = (each for name, each in wanted.items() if name in at.value and not isinstance(each, list))
    return (yield from _first(walk, map(at.by, schemas)))


def _items(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, list):
        return None
    if isinstance(wanted, list):
        return (yield from _prefix_items(walk, wanted, at))
    start = len(at.schema.get("prefixItems", ())) if walk.draft >= 2020 else 0
    rest = at.value[start:]
    return (yield from _first(walk, (at.within(start + n, each, wanted) for n, each in enumerate(rest))))


def _prefix_items(walk: _Walk, wanted: Any, at: At) -> Search:
    pairs = zip(at.value, wanted, strict=False) if isinstance(at.value, list) else ()
    return (yield from _first(walk, (at.within(n, each, schema) for n, (each, schema) in enumerate(pairs))))


def _additional_items(walk: _Walk, wanted: Any, at: At) -> Search:
    known = at.schema.get("items")
    if not isinstance(at.value, list) or not isinstance(known, list):
        return None
    start = len(known)
    rest = at.value[start:]
    return (yield from _first(walk, (at.within(start + n, each, wanted) for n, each in enumerate(rest))))


def _contains(walk: _Walk, wanted: Any, at: At) -> Search:
    if not isinstance(at.value, list):
        return None
    count = 0
    for number, each in enumerate(at.value):
        count += yield from walk.fits(at.within(number, each, wanted))
    least, most = 1, count
    if walk.draft >= 2019:
        least, most = at.schema.get("minContains", 1), at.schema.get("maxContains", count)
    if least <= count <= most:
        return None
    bound = f"at least {least}" if count < least else f"at most {most}"
    return at.path, f"{count} items fit the schema of 'contains', of {bound}"


def _all_of(walk: _Walk, wanted: Any, at: At) -> Search:
    return (yield from _first(walk, map(at.by, wanted)))


def _any_of(walk: _Walk, wanted: Any, at: At) -> Search:
    deepest: Misfit = at.path, "nothing is allowed here"
    for each in wanted:
        found = yield from walk.misfit(at.by(each))
        if found is None:
            return None
        deepest = max(found, deepest, key=_depth)
    return deepest[0], _of_none(wanted, deepest[1])


def _one_of(walk: _Walk, wanted: Any, at: At) -> Search:
    deepest: Misfit = at.path, "nothing is allowed here"
    fitting = 0
    for each in wanted:
        found = yield from walk.misfit(at.by(each))
        fitting += found is None
        deepest = max(found or deepest, deepest, key=_depth)
    if fitting > 1:
        return at.path, f"it fits {fitting} alternatives of 'oneOf', of which only one may fit"
    return None if fitting else (deepest[0], _of_none(wanted, deepest[1]))


def _depth(found: Misfit) -> int:
    return len(found[0])


def _of_none(alternatives: Any, reason: str) -> str:
    return f"it fits none of {len(alternatives)} alternatives, as {reason}"


def _not(walk: _Walk, wanted: Any, at: At) -> Search:
    if (yield from walk.fits(at.by(wanted))):
        return at.path, f"{shown(at.value)} fits the schema of 'not'"
    return None


def _if(walk: _Walk, wanted: Any, at: At) -> Search:
    is_true = yield from walk.fits(at.by(wanted))
    return (yield from walk.misfit(at.by(at.schema.get("then" if is_true else "else", True))))


NESTED: Final[Mapping[str, Callable[[_Walk, Any, At], Search]]] = {
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "dependencies": _dependent_schemas,
    "dependentSchemas": _dependent_schemas,
    "uniqueItems": _unique_items,
    "items": _items,
    "prefixItems": _prefix_items,
    "additionalItems": _additional_items,
    "contains": _contains,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
COMBINATIONS: Final = frozenset({"contains", "anyOf", "oneOf", "not", "if"})
"""Keywords under which a value that does not fit may be right."""
LATEST: Final = 9_999
ANY_DRAFT: Final = (0, LATEST)
DRAFTS: Final[Mapping[str, tuple[int, int]]] = {
    "const": (6, LATEST),
    "contains": (6, LATEST),
    "propertyNames": (6, LATEST),
    "if": (7, LATEST),
    "dependencies": (0, 7),
    "additionalItems": (0, 2019),
    "dependentRequired": (2019, LATEST),
    "dependentSchemas": (2019, LATEST),
    "prefixItems": (2020, LATEST),
    "unevaluatedItems": (2019, LATEST),
    "unevaluatedProperties": (2019, LATEST),
    "$recursiveRef": (2019, 2019),
    "$dynamicRef": (2020, LATEST),
}
"""The first and the last draft of keywords that not all drafts have."""
