"""Avro data: what a schema can read, and bytes that claim more than they have."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.records.varint import write_varint
from raftlog.schemas import avro_schemas
from raftlog.schemas.avro_validation import NotOfSchema, TooManySteps
from raftlog.schemas.avro_validation import check_payload as check_within

FULL = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": "double"}},
        {"name": "d", "type": {"type": "map", "values": "int"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "g", "type": "boolean"},
        {"name": "h", "type": "bytes"},
        {"name": "i", "type": "float"},
    ],
}
RECORDS = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**63), 2**63 - 1),
        "b": st.none() | st.text(max_size=5),
        "c": st.lists(st.floats(), max_size=3),
        "d": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=3),
        "e": st.sampled_from("XY"),
        "f": st.binary(min_size=2, max_size=2),
        "g": st.booleans(),
        "h": st.binary(max_size=5),
        "i": st.floats(width=32),
    }
)


STEPS = 10_000


def check_payload(schema: Any, content: bytes) -> tuple[int, int]:
    """Return the steps and the slices of a check."""
    slices = 1
    steps = check_within(schema, content, max_steps=STEPS)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def parsed(schema: Any) -> Any:
    return avro_schemas.parse(json.dumps(schema), ())


PARSED = parsed(FULL)


@given(RECORDS)
def test_what_another_library_writes_is_data_of_the_schema(record: dict[str, Any]) -> None:
    """And is not, once it is cut off or has a byte more."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(FULL), record)
    content = out.getvalue()
    check_payload(PARSED, content)
    for wrong in (content[:-1], content + b"\0"):
        with pytest.raises(NotOfSchema):
            check_payload(PARSED, wrong)


@given(st.binary(max_size=40))
def test_any_bytes_are_data_or_are_not(content: bytes) -> None:
    """No other exception, and an end."""
    try:
        check_payload(PARSED, content)
    except NotOfSchema:
        pass


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ("int", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("long", b"\xff" * 11),
        ("boolean", b"\x02"),
        ("string", b"\x02\xff"),
        ("string", b"\x01"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (["null", "int"], b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\x02"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"),
    ],
)
def test_hostile_bytes_are_refused_soon(schema: Any, content: bytes) -> None:
    """An array may claim 2^62 items in ten bytes."""
    with pytest.raises(NotOfSchema):
        check_payload(parsed(schema), content)


def test_data_is_nested_no_deeper_than_a_limit() -> None:
    """A list of lists of lists takes a byte for each level."""
    schema = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    check_payload(parsed(schema), b"\x02" * 50 + b"\0")
    with pytest.raises(NotOfSchema, match="nested deeper than 200"):
        check_payload(parsed(schema), b"\x02" * 5_000 + b"\0")


NOTHING = {"type": "record", "name": "N", "fields": [{"name": "a", "type": "null"}]}


@pytest.mark.parametrize("items", ["null", NOTHING, {"type": "fixed", "name": "F", "size": 0}])
def test_items_that_take_no_bytes_are_one_step(items: Any) -> None:
    """Ten bytes may claim 2^62 of them, and are data of the schema."""
    schema = parsed({"type": "array", "items": items})
    assert check_payload(schema, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0")[0] <= 3


def test_a_check_yields_after_each_slice_and_has_an_end() -> None:
    """One record may take seconds, in which other work waits."""
    schema = parsed({"type": "array", "items": "long"})
    count = bytearray()
    write_varint(count, 5_000)
    assert check_payload(schema, bytes(count) + bytes(5_000) + b"\0") == (5_001, 6)
    count.clear()
    write_varint(count, STEPS)
    with pytest.raises(TooManySteps):
        check_payload(schema, bytes(count) + bytes(STEPS) + b"\0")
