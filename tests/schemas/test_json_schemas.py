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
