"""JSON Schema: what is no schema, and which schemas accept which documents, by the stated rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftlog.schemas import json_schemas
from raftlog.schemas.errors import INVALID_SCHEMA, SCHEMA_TOO_LARGE, SchemaError
from raftlog.schemas.schema import Named


def obj(*required: str, closed: bool = False, **properties: Any) -> dict[str, Any]:
    """An object with these properties."""
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return {**found, "additionalProperties": False} if closed else found


INT, STRING = {"type": "integer"}, {"type": "string"}


def parse(schema: Any, *named: Named) -> json_schemas.Parsed:
    return json_schemas.parse(json.dumps(schema), named)


@pytest.mark.parametrize(
    "schema",
    [
        5,
        [],
        {"type": "text"},
        {"properties": 5},
        {"required": "a"},
        {"$ref": "#/definitions/missing"},
        {"title": "\ud800"},
        {"$ref": "#/allOf/\u00b2", "allOf": [{}]},
        {"$ref": f"#/allOf/{'1' * 5000}", "allOf": [{}]},
        {"title": {"a": "\udfff"}},
        {"$ref": "https://example.com/other.json"},
        {"properties": {"a": {"$ref": "other.json#/definitions/x"}}},
    ],
)
def test_what_is_no_json_schema(schema: Any) -> None:
    """42201; a reference is never fetched."""
    with pytest.raises(SchemaError, check=lambda error: error.code == INVALID_SCHEMA):
        parse(schema)


def test_references_lead_into_the_schema_or_to_a_named_schema() -> None:
    """By JSON pointers, with their escapes."""
    other = Named("other.json", '{"definitions":{"a/b":{"type":"integer"}}}')
    parse({"definitions": {"x": INT}, "properties": {"a": {"$ref": "#/definitions/x"}}})
    reader = parse({"$ref": "other.json#/definitions/a~1b"}, other)
    assert json_schemas.incompatibilities(reader, parse(INT)) == []
    assert json_schemas.incompatibilities(reader, parse(STRING))


NEW = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
UNEVALUATED = {"unevaluatedProperties": False}
A = {"$ref": "#/definitions/a"}


@pytest.mark.parametrize(
    ("reader", "writer", "accepts"),
    [
        (True, {"type": "string"}, True),
        ({}, obj(a=INT), True),
        (INT, {}, False),
        (False, INT, False),
        (INT, {"type": "number"}, False),
        ({"type": "number"}, INT, True),
        ({"type": ["integer", "null"]}, INT, True),
        (INT, {"type": ["integer", "null"]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"enum": ["a", "b"]}, {"const": "a"}, True),
        ({"enum": ["a"]}, STRING, False),
        (obj("a", a=INT), obj("a", a=INT), True),
        (obj("a", a=INT), obj(a=INT), False),
        (obj("a", a={"type": "integer", "default": 0}), obj(a=INT), True),
        (obj(a=INT), obj("a", a=INT), True),
        (obj(a=INT, b=STRING), obj(a=INT), False),
        (obj(a=INT, b=STRING), obj(a=INT, closed=True), True),
        (obj(a=INT, b={}), obj(a=INT), True),
        (obj(a=INT), obj(a=INT, b=STRING), True),
        (obj(a=INT, closed=True), obj(a=INT, b=STRING, closed=True), False),
        (obj(a=INT, closed=True), obj(a=INT), False),
        ({**obj(a=INT), "additionalProperties": STRING}, obj(a=INT, b=STRING, closed=True), True),
        ({**obj(a=INT), "additionalProperties": INT}, obj(a=INT, b=STRING, closed=True), False),
        ({"type": "array", "items": INT}, {"type": "array", "items": INT}, True),
        ({"type": "array", "items": INT}, {"type": "array", "items": STRING}, False),
        ({"type": "array", "items": INT}, {"type": "array"}, False),
        ({"type": "array", "items": [INT]}, {"type": "array", "items": [INT]}, True),
        ({"type": "array", "items": [INT, INT]}, {"type": "array", "items": [INT]}, False),
        ({"type": "array", "items": [INT]}, {"type": "array", "items": [INT, STRING]}, True),
        ({"items": [INT, STRING]}, {"items": [INT], "additionalItems": STRING}, True),
        ({"items": [INT], "additionalItems": STRING}, {"items": [INT], "additionalItems": False}, True),
        ({"items": [INT], "additionalItems": False}, {"items": [INT], "additionalItems": STRING}, False),
        ({"items": INT}, {"items": [INT, INT], "additionalItems": False}, True),
        ({"items": INT}, {"items": [INT, STRING], "additionalItems": False}, False),
        ({"items": INT}, {"items": INT, "additionalItems": STRING}, True),
        (NEW | {"items": INT}, NEW | {"items": INT, "prefixItems": [STRING]}, False),
        (NEW | {"items": INT}, NEW | {"items": INT, "prefixItems": [INT]}, True),
        (NEW | {"prefixItems": [INT]}, NEW | {"items": INT}, True),
        (
            {"additionalProperties": INT},
            {"additionalProperties": INT, "patternProperties": {"^a": STRING}},
            False,
        ),
        (obj(a=INT), {**obj(closed=True), "patternProperties": {"^a": STRING}}, False),
        (obj(), {**obj(closed=True), "patternProperties": {"^a": STRING}}, True),
        ({"patternProperties": {"^a": INT}}, {"patternProperties": {"^a": INT}, **obj(b=INT)}, True),
        ({"propertyNames": {"pattern": "^a"}}, obj(a=INT), False),
        (NEW | obj(a=INT) | UNEVALUATED, NEW | obj(a=INT, b=INT) | UNEVALUATED, False),
        (NEW | obj(a=INT) | UNEVALUATED, NEW | obj(a=INT) | UNEVALUATED, True),
        ({"contains": INT}, {"contains": INT, "minContains": 0}, False),
        ({"type": "integer", "minimum": 0}, {"type": "integer", "minimum": 1}, True),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}, False),
        ({"type": "string", "maxLength": 5}, STRING, False),
        (STRING, {"type": "string", "maxLength": 5}, True),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "a"}, True),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, False),
        ({"not": INT}, STRING, False),
        ({"anyOf": [INT, STRING]}, INT, True),
        ({"oneOf": [INT, STRING]}, {"oneOf": [STRING, INT]}, True),
        ({"oneOf": [INT]}, {"oneOf": [STRING, INT]}, False),
        (INT, {"oneOf": [STRING, INT]}, False),
        ({"title": "a", "type": "integer"}, {"description": "b", "type": "integer"}, True),
        (
            {"definitions": {"n": obj(next={"$ref": "#/definitions/n"})}, "$ref": "#/definitions/n"},
            {"definitions": {"n": obj(next={"$ref": "#/definitions/n"})}, "$ref": "#/definitions/n"},
            True,
        ),
        ({"$ref": "#"}, INT, True),
        (
            {"allOf": [A], "definitions": {"a": INT}},
            {"allOf": [A], "definitions": {"a": INT, "b": INT}},
            True,
        ),
        ({"allOf": [A], "definitions": {"a": INT}}, {"allOf": [A], "definitions": {"a": STRING}}, False),
        (
            {"allOf": [A], "definitions": {"a": {"not": A}}},
            {"allOf": [A], "definitions": {"a": {"not": A}}},
            True,
        ),
        ({**A, "minimum": 5, "definitions": {"a": INT}}, INT, True),
        (NEW | {**A, "minimum": 5, "definitions": {"a": INT}}, INT, False),
        (NEW | {**A, "title": "t", "definitions": {"a": INT}}, INT, True),
    ],
)
def test_which_schemas_accept_which_documents(reader: Any, writer: Any, accepts: bool) -> None:
    """A reader accepts every document that the writer accepts, or cannot be shown to."""
    assert (json_schemas.incompatibilities(parse(reader), parse(writer)) == []) is accepts


def test_a_message_names_the_property() -> None:
    """In the form of Confluent's registry."""
    (message,) = json_schemas.incompatibilities(parse(obj("a", a=INT)), parse(obj(a=INT)))
    assert (
        message == "{errorType:'REQUIRED_ATTRIBUTE_ADDED', description:'at #/required', additionalInfo:'a'}"
    )


def test_a_comparison_of_unions_has_an_end() -> None:
    """n branches on both sides are n² pairs, and nested unions multiply."""
    wide = [obj("a", a={"const": number}) for number in range(300)]
    other = [obj("b", b={"const": number}) for number in range(300)]
    nested: Any = INT
    for _ in range(30):
        nested = {"anyOf": [{"type": "array", "items": nested}, {"type": "array", "items": nested}]}
    try:
        json_schemas.incompatibilities(parse({"anyOf": wide}), parse({"anyOf": other}))
        json_schemas.incompatibilities(parse(nested), parse(nested))
    except SchemaError as error:
        assert error.code == SCHEMA_TOO_LARGE


def test_the_same_schema_has_one_canonical_text() -> None:
    """Whatever its layout."""
    assert json_schemas.canonical('{"a": 1, "b":2}') == json_schemas.canonical('{"b":2,"a":1}')
    assert json_schemas.stored_text('{ "type" : "object" }') == '{"type":"object"}'


def test_references_are_followed_once() -> None:
    """Many properties that refer to one long chain: each link is resolved for the first of them only."""
    chain = {f"d{number}": {"$ref": f"#/definitions/d{number + 1}"} for number in range(1_000)}
    many = obj(**{f"p{number}": {"$ref": "#/definitions/d0"} for number in range(1_000)})
    text = {**many, "definitions": {**chain, "d1000": STRING}}
    reader, writer = parse(text), parse(text)
    comparison = json_schemas._Comparison(reader, writer)
    mine, theirs = (json_schemas._At(each.root, each.root) for each in (reader, writer))
    assert comparison.compare(mine, theirs, "#") == []
    assert comparison._steps < 20_000


def test_every_link_counts_as_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain is not free."""
    chain = {f"d{number}": {"$ref": f"#/definitions/d{number + 1}"} for number in range(200)}
    text = {"$ref": "#/definitions/d0", "definitions": {**chain, "d200": STRING}}
    monkeypatch.setattr(json_schemas, "MAX_STEPS", 200)
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        json_schemas.incompatibilities(parse(text), parse(text))


def test_the_size_of_restrictions_counts() -> None:
    """Each of many pairs would compare a large text again."""
    wide = {"anyOf": [{"not": {"enum": list(range(5_000))}}, {}]}
    many = {"anyOf": [{"not": {"const": number}} for number in range(2_000)]}
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        json_schemas.incompatibilities(parse(wide), parse(many))


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [*range(500), "x"]},
        {"enum": [{"a": number} for number in range(500)]},
        {"properties": {"default": {"enum": [None, *range(500)]}}},
        {"required": [*(str(number) for number in range(500)), 1]},
        {"dependencies": {"anyOf": [{"a": number} for number in range(500)]}},
    ],
)
@pytest.mark.parametrize("draft", ["04", "07"])
def test_a_long_list_of_mixed_values_is_refused(schema: Any, draft: str) -> None:
    """The package compares all pairs of values that it cannot sort."""
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        parse({"$schema": f"http://json-schema.org/draft-{draft}/schema#", **schema})


def test_long_lists_that_sort_or_have_schemas_are_taken() -> None:
    """Enums of thousands of names or numbers, and wide unions."""
    names, numbers = [str(number) for number in range(2_000)], list(range(2_000))
    parse({"enum": names, "anyOf": [obj("a", a={"const": number}) for number in range(500)]})
    parse({"$schema": "http://json-schema.org/draft-04/schema#", "enum": numbers})


def test_messages_have_a_limited_length() -> None:
    """Each has the path of its place: long names in a circle of references would fill the memory."""
    name = "n" * 10_000

    def circle(length: int) -> Any:
        schemas = {
            f"d{each}": obj(name, **{name: {"$ref": f"#/definitions/d{(each + 1) % length}"}})
            for each in range(length)
        }
        return {"definitions": schemas, "$ref": "#/definitions/d0"}

    weaker = json.loads(
        json.dumps(circle(8)).replace('"required"', '"description"').replace(f'["{name}"]', '""')
    )
    found = json_schemas.incompatibilities(parse(circle(9)), parse(weaker))
    assert found
    assert max(map(len, found)) < 2 * json_schemas.WHERE_MAX_CHARS + 200
    assert sum(each.count("n" * 101) for each in found) <= 5 * len(found)


def test_a_reference_to_what_is_no_schema_is_refused() -> None:
    """What a default or an enum has is not checked when the schema is parsed."""
    for odd in (5, ["a"], {"type": 5}, {"properties": 5}):
        text = parse({"$ref": "#/default", "default": odd})
        with pytest.raises(SchemaError, check=lambda error: error.code == INVALID_SCHEMA):
            json_schemas.incompatibilities(text, text)
