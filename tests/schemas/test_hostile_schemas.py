"""Schemas of few bytes that would take minutes: each is refused, or takes few steps."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from raftlog.schemas import avro_schemas, json_schemas, protobuf_schemas
from raftlog.schemas.errors import INVALID_SCHEMA, SCHEMA_TOO_LARGE, SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.schema import TEXT_MAX_CHARS, Kind, Schema


@pytest.mark.parametrize("quote", ['"', "'"])
def test_an_unterminated_text_is_one_token(quote: str) -> None:
    """Its end was looked for from each quote, in quadratic time and with the interpreter's lock held."""
    assert len(protobuf_schemas._TOKEN.findall(quote + f"\\{quote}" * 1000)) == 1
    assert len(protobuf_schemas._TOKEN.findall("/* " * 1000)) == 1


def test_a_default_of_types_that_name_each_other_is_looked_at_once_for_each_type() -> None:
    """Each level doubled the ways to the wrong value at its end."""
    default: object = 5
    for _ in range(80):
        default = {"f": default}
    inner = {"type": "record", "name": "B", "fields": [{"name": "f", "type": ["A", "B"]}]}
    outer = {"type": "record", "name": "A", "fields": [{"name": "f", "type": ["A", inner]}]}
    field = {"name": "x", "type": [outer, "B"], "default": default}
    text = json.dumps({"type": "record", "name": "T", "fields": [field]})
    with pytest.raises(SchemaError) as refused:
        avro_schemas.parse(text, ())
    assert refused.value.code == INVALID_SCHEMA


def test_a_long_enum_of_an_early_draft_is_refused() -> None:
    """Its values are compared with each other."""
    text = json.dumps(
        {"$schema": "http://json-schema.org/draft-04/schema#", "enum": [*range(5000), "a", None]}
    )
    with pytest.raises(SchemaError) as refused:
        json_schemas.parse(text, ())
    assert refused.value.code == SCHEMA_TOO_LARGE


@pytest.mark.parametrize(
    "text", ['{"type": "record", "name": "\\ud800"}', '{"type": ["null", "string"], "doc": "x"}', "\ud800"]
)
def test_an_odd_schema_in_the_log_has_an_identity(text: str) -> None:
    """Another registry, or any client that may write the topic, can put it there; the reader went down with it."""
    for kind in get_args(Kind):
        assert len(identity(Schema(kind, text))) == 16
    assert len(identity(Schema("PROTOBUF", '"' * (TEXT_MAX_CHARS + 1)))) == 16
