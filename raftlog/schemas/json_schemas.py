"""JSON Schema: canonical text, parsing, and compatibility by a closed set of rules.

A reader is compatible with a writer if every document that the writer's schema accepts is accepted by the reader's.
Rules follow for types, enums, objects, arrays, bounds, unions and references. Any other restriction,
such as a pattern or a negation, must be the same on both sides. What cannot be shown counts as incompatible.

No reference is ever fetched. It points into the schema itself, or to a schema that the request names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.json_texts import canonical_json, check_shape, loaded, minified
from raftlog.schemas.schema import Named

MAX_STEPS: Final = 200_000
"""Pairs of schemas, references, attributes, values and messages of a comparison."""
CHARS_PER_STEP: Final = 10
"""Of texts that are compared."""
STEPS_PER_MESSAGE: Final = 10
MOST_MESSAGES: Final = 20
NAME_MAX_CHARS: Final = 100
WHERE_MAX_CHARS: Final = 500
"""Of a name, and of a path of names, in a message. Longer ones are cut."""
MAX_MIXED: Final = 200
"""Values of a list of values that cannot be sorted: the package `jsonschema` compares all pairs of them."""
ANYTHING: Final[frozenset[str]] = frozenset(
    {"null", "boolean", "object", "array", "number", "integer", "string"}
)
LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
UNIONS: Final = ("anyOf", "oneOf")
LISTS_OF_SCHEMAS: Final = frozenset({*UNIONS, "allOf", "items", "prefixItems"})
"""Keywords of lists of which the values need not be different."""
INDEX: Final = re.compile(r"[0-9]{1,9}")
COMPARED: Final = frozenset(
    {
        *(*LOWER_BOUNDS, *UPPER_BOUNDS, *UNIONS),
        *("type", "enum", "const", "properties", "required", "additionalProperties"),
        *("items", "additionalItems", "prefixItems"),
    }
)
"""Keywords with a rule."""
NOTES: Final = frozenset(
    {
        *("$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "title", "description"),
        *(
            "default",
            "examples",
            "deprecated",
            "readOnly",
            "writeOnly",
            "contentEncoding",
            "contentMediaType",
        ),
    }
)
"""Keywords that do not restrict documents."""
UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords that mean something else if keywords beside them change."""
_EMPTY: Final[dict[str, Any]] = {}
"""The schema `true`, as an object that stays: pairs of schemas are known by their ids."""


class Parsed(NamedTuple):
    """A schema, and the schemas that it refers to by name."""

    root: Any
    named: Mapping[str, Any]


def stored_text(text: str) -> str:
    """Return the text without white space between its tokens."""
    check_shape(loaded(text))
    return minified(text)


def canonical(text: str) -> str:
    """Return a text that does not depend on layout or on the order of attributes."""
    return canonical_json(loaded(text))


def parse(text: str, named: Sequence[Named]) -> Parsed:
    """Return the parsed schema. Raises SchemaError."""
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import SchemaError as NoSchema
    from jsonschema.validators import validator_for

    root = loaded(text)
    check_shape(root)
    if not isinstance(root, dict | bool):
        raise invalid_schema("a JSON Schema is an object, true or false")
    _check_lists(root)
    try:
        validator_for(root, default=Draft7Validator).check_schema(root, format_checker=None)
    except NoSchema as error:
        where = "/".join(str(each) for each in error.absolute_path) or "its root"
        raise invalid_schema(f"at {where[:200]}: {error.message[:300]}") from None
    except RecursionError:
        raise too_large("it is nested too deeply") from None
    parsed = Parsed(root, {each.name: loaded(each.text) for each in named})
    for reference in dict.fromkeys(_references(root)):
        resolve(parsed, root, reference)
    return parsed


def _check_lists(root: Any) -> None:
    """Raise SchemaError for a long list of mixed values: the package's time grows with the square of its length."""
    waiting = [("", root)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, dict):
            # a schema by the name "dependencies" has lists of names where others have lists of schemas
            waiting += [("" if name.startswith("dependen") else key, value) for key, value in node.items()]
        elif isinstance(node, list):
            if len(node) > MAX_MIXED and name not in LISTS_OF_SCHEMAS and not _sorts(node):
                raise too_large(f"a list has more than {MAX_MIXED} values of different types")
            waiting += [("", each) for each in node]


def _sorts(values: list[Any]) -> bool:
    kinds = set(map(type, values))
    return kinds == {str} or kinds <= {int, float}


def _references(root: Any) -> list[str]:
    """Return all references of a schema."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.append(node["$ref"])
            waiting += [
                value for name, value in node.items() if name not in ("enum", "const", "default", "examples")
            ]
        elif isinstance(node, list):
            waiting += node
    return found


def resolve(parsed: Parsed, document: Any, reference: str) -> tuple[Any, Any]:
    """Return the schema that a reference points to, and the document it is in. Raises SchemaError."""
    name, _, pointer = reference.partition("#")
    if name:
        known = next((each for each in parsed.named if _names(each, name)), None)
        if known is None:
            raise invalid_schema(f"no reference of the request is called {name[:200]!r}; none is fetched")
        document = parsed.named[known]
    found = document
    for part in [each for each in pointer.split("/")[1:] if pointer.startswith("/")]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and INDEX.fullmatch(key) and int(key) < len(found):
            found = found[int(key)]
        else:
            raise invalid_schema(f"nothing is at the reference {reference[:200]!r}")
    return found, document


def _names(known: str, name: str) -> bool:
    """Return whether a name is that of a reference, or a URL that ends in it."""
    start = len(name) - len(known)
    return name.endswith(known) and (start == 0 or name[start - 1] == "/")


def incompatibilities(reader: Parsed, writer: Parsed) -> list[str]:
    """Return why `reader` does not accept all documents of `writer`; empty if it does. Raises SchemaError."""
    comparison = _Comparison(reader, writer)
    try:
        return comparison.compare(_At(reader.root, reader.root), _At(writer.root, writer.root), "#")
    except RecursionError:
        raise too_large("its types refer to each other too deeply to be compared") from None
    except (TypeError, AttributeError, ValueError, KeyError, ArithmeticError) as error:
        # a reference may point to JSON that is no schema, and was not checked
        raise invalid_schema(f"it cannot be compared: {type(error).__name__}: {str(error)[:300]}") from None


class _At(NamedTuple):
    """A schema inside of a document."""

    schema: Any
    document: Any

    def into(self, schema: Any) -> _At:
        return _At(schema, self.document)


class _Comparison:
    """Compares each pair of schemas once; a pair that is being compared counts as compatible."""

    def __init__(self, reader: Parsed, writer: Parsed) -> None:
        self._reader, self._writer = reader, writer
        self._compared: dict[tuple[int, int], list[str]] = {}
        """Why the reader does not accept the writer, by pair."""
        self._targets: dict[tuple[int, int], _At] = {}
        """The schema behind references, by the ids of a schema and its document."""
        self._values: dict[int, frozenset[str] | None] = {}
        """What schemas list, by their ids."""
        self._same: dict[tuple[int, int, str], bool] = {}
        """Whether a reference means the same in two documents; while that is compared it counts as the same."""
        self._steps = 0

    def count(self, steps: int = 1) -> None:
        """Count steps. Raises SchemaError."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise too_large(f"comparing it takes more than {MAX_STEPS} steps")

    def compare(self, reader: _At, writer: _At, where: str) -> list[str]:
        """Return why the reader does not accept all that the writer accepts."""
        self.count()
        reader, writer = self._target(self._reader, reader), self._target(self._writer, writer)
        if reader.schema is True or writer.schema is False or reader.schema == {}:
            return []
        if reader.schema is False:
            return [_message("TYPE_NARROWED", where, "the reader accepts nothing")]
        if writer.schema is True:
            writer = writer.into(_EMPTY)
        pair = (id(reader.schema), id(writer.schema))
        if pair not in self._compared:
            self._compared[pair] = []
            self.count(len(reader.schema) + len(writer.schema))
            is_union = any(name in each.schema for name in UNIONS for each in (reader, writer))
            compare = self._compare_unions if is_union else self._compare_plain
            self._compared[pair] = list(islice(compare(reader, writer, where), MOST_MESSAGES))
            self.count(len(self._compared[pair]) * STEPS_PER_MESSAGE)
        return self._compared[pair]

    def _target(self, parsed: Parsed, at: _At) -> _At:
        """Return the schema behind references; a circle of references accepts anything.

        A reference with restrictions beside it stays, and must be the same.
        """
        start = (id(at.schema), id(at.document))
        if start in self._targets:
            return self._targets[start]
        passed = {start}
        while (
            isinstance(at.schema, dict) and isinstance(at.schema.get("$ref"), str) and _is_only_reference(at)
        ):
            self.count()
            at = _At(*resolve(parsed, at.document, at.schema["$ref"]))
            place = (id(at.schema), id(at.document))
            if place in passed:
                at = at.into(True)
            elif place in self._targets:
                at = self._targets[place]
            passed.add(place)
        if not isinstance(at.schema, dict | bool):
            raise invalid_schema("a reference does not point to a schema")
        self._targets |= dict.fromkeys(passed, at)
        return at

    def _is_same(self, mine: _At, theirs: _At) -> bool:
        """Return whether two restrictions, and the schemas that they refer to, are the same JSON."""
        one, other = canonical_json(mine.schema), canonical_json(theirs.schema)
        self.count((len(one) + len(other)) // CHARS_PER_STEP)
        return one == other and all(
            self._means_same(reference, mine, theirs) for reference in _references(mine.schema)
        )

    def _means_same(self, reference: str, mine: _At, theirs: _At) -> bool:
        pair = (id(mine.document), id(theirs.document), reference)
        if pair not in self._same:
            self._same[pair] = True
            one = resolve(self._reader, mine.document, reference)
            other = resolve(self._writer, theirs.document, reference)
            self._same[pair] = self._is_same(_At(*one), _At(*other))
        return self._same[pair]

    def _compare_unions(self, reader: _At, writer: _At, where: str) -> Iterator[str]:
        if not self._is_same(reader.into(_other(reader.schema)), writer.into(_other(writer.schema))):
            yield _message("COMBINED_TYPE_CHANGED", where, "what is beside the union differs")
            return
        accepting = _branches(reader)
        for number, branch in enumerate(_branches(writer)):
            at = _within(where, str(number))
            if all(self.compare(each, branch, at) for each in accepting):
                yield _message("UNION_NARROWED", at, "no branch of the reader accepts it")

    def _compare_plain(self, reader: _At, writer: _At, where: str) -> Iterator[str]:
        mine, theirs = reader.schema, writer.schema
        missing = _types(theirs) - _types(mine)
        if missing:
            yield _message("TYPE_NARROWED", where, f"the reader does not accept {', '.join(sorted(missing))}")
            return
        yield from self._compare_values(mine, theirs, where)
        names = mine.keys() - COMPARED - NOTES
        if "contains" in mine:
            names |= {"minContains"}
        for name in sorted(names):
            if name in UNEVALUATED:
                here, there = _restrictions(mine), _restrictions(theirs)
            else:
                here, there = mine.get(name), theirs.get(name)
            if not self._is_same(reader.into(here), writer.into(there)):
                yield _message(
                    "RESTRICTION_CHANGED",
                    where,
                    f"{name[:NAME_MAX_CHARS]} differs, for which there is no rule",
                )
        if "object" in _types(theirs):
            yield from self._compare_objects(reader, writer, where)
        if "array" in _types(theirs):
            yield from self._compare_items(reader, writer, where)

    def _compare_objects(self, reader: _At, writer: _At, where: str) -> Iterator[str]:
        mine, theirs = reader.schema, writer.schema
        read, written = mine.get("properties", {}), theirs.get("properties", {})
        self.count(sum(len(each.get("required", ())) for each in (mine, theirs)) + len(read) + len(written))
        for name in sorted(set(mine.get("required", ())) - set(theirs.get("required", ()))):
            if not (isinstance(read.get(name), dict) and "default" in read[name]):
                yield _message("REQUIRED_ATTRIBUTE_ADDED", _within(where, "required"), name)
        others, rest = mine.get("additionalProperties", True), theirs.get("additionalProperties", True)
        patterns = "patternProperties" in theirs  # which may accept anything by names that are not listed
        for name in sorted(read.keys() | written.keys()):
            yield from self.compare(
                reader.into(read.get(name, others)),
                writer.into(written.get(name, True if patterns else rest)),
                _within(where, "properties", name),
            )
        if patterns and "patternProperties" not in mine:
            rest = True
        yield from self.compare(
            reader.into(others), writer.into(rest), _within(where, "additionalProperties")
        )

    def _compare_items(self, reader: _At, writer: _At, where: str) -> Iterator[str]:
        (mine, others), (theirs, rest) = _items(reader.schema), _items(writer.schema)
        for number in range(max(len(mine), len(theirs))):
            yield from self.compare(
                reader.into(mine[number] if number < len(mine) else others),
                writer.into(theirs[number] if number < len(theirs) else rest),
                _within(where, "items", str(number)),
            )
        yield from self.compare(reader.into(others), writer.into(rest), _within(where, "items"))

    def _compare_values(self, mine: Any, theirs: Any, where: str) -> Iterator[str]:
        """Yield what differs in enums, constants and bounds."""
        allowed, written = self._listed(mine), self._listed(theirs)
        if allowed is not None and (written is None or not written <= allowed):
            yield _message(
                "ENUM_ARRAY_NARROWED", where, "the writer has values that the reader does not list"
            )
        for names, sign in ((LOWER_BOUNDS, 1), (UPPER_BOUNDS, -1)):
            for name in names:
                bound, other = mine.get(name), theirs.get(name)
                if bound is not None and (other is None or (bound - other) * sign > 0):
                    yield _message("BOUND_NARROWED", where, f"{name} is {bound}, and was {other}")

    def _listed(self, schema: Any) -> frozenset[str] | None:
        """Return the values that a schema lists; its texts are made once."""
        if id(schema) not in self._values:
            self._values[id(schema)] = _values(schema)
        found = self._values[id(schema)]
        self.count(len(found or ()))
        return found


def _within(where: str, *names: str) -> str:
    """Return the path of what is within a place, cut to a length."""
    return "/".join([where, *(each[:NAME_MAX_CHARS] for each in names)])[:WHERE_MAX_CHARS]


def _message(kind: str, where: str, detail: str) -> str:
    return f"{{errorType:'{kind}', description:'at {where}', additionalInfo:'{detail[:WHERE_MAX_CHARS]}'}}"


def _is_only_reference(at: _At) -> bool:
    """Return whether keywords beside a reference are absent or ignored. Drafts up to 7 ignore them."""
    draft = at.document.get("$schema", "") if isinstance(at.document, dict) else ""
    return at.schema.keys() <= NOTES | {"$ref"} or not ("2019-" in draft or "2020-" in draft)


def _items(schema: Any) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _branches(at: _At) -> list[_At]:
    name = next((each for each in UNIONS if each in at.schema), None)
    return [at] if name is None else [at.into(each) for each in at.schema[name]]


def _other(schema: Any) -> dict[str, Any]:
    """Return the restrictions beside the branches of a union, and none if the schema is no union."""
    if not any(name in schema for name in UNIONS):
        return {}
    return {name: value for name, value in _restrictions(schema).items() if name not in UNIONS}


def _restrictions(schema: Any) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in NOTES}


def _types(schema: Any) -> frozenset[str]:
    kind = schema.get("type")
    if kind is None:
        return ANYTHING
    found = frozenset([kind] if isinstance(kind, str) else kind)
    return found | {"integer"} if "number" in found else found


def _values(schema: Any) -> frozenset[str] | None:
    """Return the values that an enum or a constant lists, as JSON; None without one."""
    listed = schema.get("enum") if "const" not in schema else [schema["const"]]
    return None if listed is None else frozenset(map(canonical_json, listed))
