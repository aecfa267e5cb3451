"""Claims about the readers of payloads: they read what other libraries write, and stay within their bounds."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.schemas import avro_payloads, avro_schemas, protobuf_payloads, protobuf_schemas
from raftlog.schemas.payloads import MAX_CHARS, MAX_DEPTH, MAX_VALUES, Budget, Steps, Undecodable, plain
from raftlog.schemas.schema import Named

EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "count", "type": "int"},
        {"name": "total", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "many", "type": {"type": "array", "items": "long"}},
        {"name": "by_name", "type": {"type": "map", "values": "int"}},
        {"name": "next", "type": ["null", "Everything"]},
    ],
}
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
FLAT = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "count": INTS,
        "total": LONGS,
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "name": TEXTS,
        "raw": st.binary(max_size=20),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "maybe": st.none() | TEXTS,
        "many": st.lists(LONGS, max_size=300),
        "by_name": st.dictionaries(TEXTS, INTS, max_size=5),
        "next": st.none(),
    }
)


def run(steps: Steps) -> tuple[Any, int]:
    """Return the value of a reader, and after how many slices."""
    slices = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def read_avro(schema: Any, payload: bytes) -> Any:
    return run(avro_payloads.read(payload, avro_schemas.parse(json.dumps(schema), ())))[0]


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@settings(max_examples=60)
@given(FLAT, FLAT)
def test_avro_reads_what_fastavro_writes(value: dict[str, Any], inner: dict[str, Any]) -> None:
    """All types, a record within itself, and bytes in base64."""
    whole = {**value, "next": inner}
    found = read_avro(EVERYTHING, written(EVERYTHING, whole))
    encoded = json.loads(msgspec.json.encode(whole))
    assert json.loads(msgspec.json.encode(found)) == encoded


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_000, "1970-01-01T00:00:01Z"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**62, 2**62),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, "1970-01-01T00:00:00.000001"),
        ({"type": "int", "logicalType": "time-millis"}, 61_000, "00:01:01"),
        ({"type": "int", "logicalType": "time-millis"}, -1, -1_000),
    ],
)
def test_logical_types_are_shown_as_people_write_them(kind: Any, value: int, shown: Any) -> None:
    """What no calendar has stays a number."""
    assert read_avro(kind, written(kind["type"], value)) == shown


def test_decimals_keep_their_digits() -> None:
    """Of bytes and of a fixed size; a decimal with an invalid precision stays bytes."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    assert (
        read_avro(decimal, written("bytes", (-(10**30) - 5).to_bytes(14, signed=True))) == f"-1{'0' * 28}.05"
    )
    fixed = {**decimal, "type": "fixed", "name": "F", "size": 2, "precision": 4}
    assert read_avro(fixed, b"\x00\x7b") == "1.23"
    assert read_avro({**decimal, "precision": 0}, b"\x02a") == "YQ=="


NUMBERS = {"type": "array", "items": "null"}
TREE = {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        (NUMBERS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", f"more than {MAX_VALUES} values"),
        (TREE, b"\x02" * 10_000, f"nested deeper than {MAX_DEPTH}"),
        (EVERYTHING, b"", "1 bytes are expected at byte 0"),
        ("string", b"\xff" * 20, "a number has no end"),
        ("string", b"\x04\xff\xfe", "not UTF-8"),
        ("string", b"\x03", "bytes are expected"),
        ("long", b"\x02more", "4 bytes follow its value"),
        (["null", "string"], b"\x08", "branch 4 of 2"),
        ({"type": "map", "values": "null"}, b"\x02\x02\xff\x00", "not UTF-8"),
    ],
)
def test_payloads_that_are_no_avro_say_why(schema: Any, payload: bytes, reason: str) -> None:
    """A few bytes cannot stand for a billion values, nor for a thousand records within each other."""
    with pytest.raises(Undecodable, match=reason):
        read_avro(schema, payload)


def test_long_names_of_fields_are_counted() -> None:
    """A record of a thousand fields with long names is cheap in bytes only."""
    record = {"type": "record", "name": "R", "fields": [{"name": "x" * 900, "type": "null"}]}
    with pytest.raises(Undecodable, match=f"more than {MAX_CHARS} characters"):
        read_avro({"type": "array", "items": record}, b"\xa0\x9c\x01" + b"\x00")


@pytest.mark.parametrize(
    ("item", "payload"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A" * 100_000]}, b"\xd0\x0f" + b"\0" * 1_001),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 1000},
            b"\xa0\x1f" + b"\x02\x01" * 2_000 + b"\0",
        ),
    ],
)
def test_what_a_schema_adds_to_a_payload_is_counted(item: Any, payload: bytes) -> None:
    """A symbol of an enum and the zeros of a decimal take a byte or two of a payload."""
    with pytest.raises(Undecodable, match=f"more than {MAX_CHARS} characters"):
        read_avro({"type": "array", "items": item}, payload)


@pytest.mark.parametrize("packed", [True, False])
def test_names_of_the_numbers_of_a_protobuf_enum_are_counted(*, packed: bool) -> None:
    """A byte of a payload stands for the whole name."""
    name = "A" * 10_000
    text = f'syntax = "proto3"; enum Colour {{ {name} = 0; }} message M {{ repeated Colour all = 1; }}'
    types = protobuf_payloads.Types(protobuf_schemas.parse(text, ()), [])
    payload = b"\0" + (b"\x0a\x7f" + b"\0" * 127 if packed else b"\x08\0" * 127)
    with pytest.raises(Undecodable, match=f"more than {MAX_CHARS} characters"):
        run(protobuf_payloads.read(payload, types))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": "long"}, list(range(9_000))),
        ({"type": "map", "values": "int"}, {str(each): each for each in range(9_000)}),
        ({"type": "array", "items": "string"}, ["x" * 1_000] * 900),
    ],
)
def test_long_payloads_are_read_in_slices(schema: Any, value: Any) -> None:
    """Other requests get the loop between two slices, of arrays, of maps and of long texts."""
    payload = written(schema, value)
    found, slices = run(avro_payloads.read(payload, avro_schemas.parse(json.dumps(schema), ())))
    assert (found, slices > 20) == (value, True)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_no_bytes_break_a_reader(payload: bytes) -> None:
    """Each returns a value or raises Undecodable."""
    for steps in (
        avro_payloads.read(payload, AVRO),
        protobuf_payloads.read(payload, TYPES),
    ):
        try:
            msgspec.json.encode(run(steps)[0])
        except Undecodable:
            pass


PROTO = """
syntax = "proto3";
package shop.v1;
import "money.proto";
message Order {
  string name = 1;
  repeated int32 numbers = 2;
  map<string, Line> lines = 3;
  Colour colour = 4;
  sint64 change = 5;
  fixed32 code = 6;
  double ratio = 7;
  bytes raw = 8;
  optional Order inner = 9;
  money.Money price = 10;
  repeated string tags = 11;
  google.protobuf.Timestamp at = 12;
  enum Colour { RED = 0; BLUE = 2; }
  message Line { int64 amount = 1; bool gift = 2; }
  message Empty {}
}
message Other { uint64 big = 1; }
"""
MONEY = 'syntax = "proto3"; package money; message Money { int64 units = 1; }'
NAMED = (Named("money.proto", MONEY),)
TYPES = protobuf_payloads.Types(protobuf_schemas.parse(PROTO, NAMED), [protobuf_schemas.parse(MONEY, ())])
AVRO = avro_schemas.parse(json.dumps(EVERYTHING), ())


def _google() -> Any:
    """Return Google's class of the order, made of descriptors."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="money", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="units", number=1, type=3, label=1)
    pool.Add(money)
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop.v1", syntax="proto3")
    file.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="LinesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".shop.v1.Order.Line")
    line = order.nested_type.add(name="Line")
    line.field.add(name="amount", number=1, type=3, label=1)
    line.field.add(name="gift", number=2, type=8, label=1)
    colours = order.enum_type.add(name="Colour")
    colours.value.add(name="RED", number=0)
    colours.value.add(name="BLUE", number=2)
    add = order.field.add
    add(name="name", number=1, type=9, label=1)
    add(name="numbers", number=2, type=5, label=3)
    add(name="lines", number=3, type=11, label=3, type_name=".shop.v1.Order.LinesEntry")
    add(name="colour", number=4, type=14, label=1, type_name=".shop.v1.Order.Colour")
    add(name="change", number=5, type=18, label=1)
    add(name="code", number=6, type=7, label=1)
    add(name="ratio", number=7, type=1, label=1)
    add(name="raw", number=8, type=12, label=1)
    add(name="inner", number=9, type=11, label=1, type_name=".shop.v1.Order")
    add(name="price", number=10, type=11, label=1, type_name=".money.Money")
    add(name="tags", number=11, type=9, label=3)
    add(name="at", number=12, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order")), file


def test_protobuf_reads_what_googles_library_writes() -> None:
    """By the text and by the descriptor: maps, packed numbers, enums, messages of other files."""
    kind, file = _google()
    order = kind(name="Ada", numbers=[1, -1, 300], change=-7, code=9, ratio=0.5, raw=b"\xff", colour=2)
    order.lines["a"].amount = 2**40
    order.lines["b"].gift = True
    order.inner.name = "inner"
    order.price.units = 3
    order.tags.extend(["x", "y"])
    order.at.seconds = 5
    expected = {
        "name": "Ada",
        "numbers": [1, -1, 300],
        "lines": {"a": {"amount": 2**40}, "b": {"gift": True}},
        "colour": "BLUE",
        "change": -7,
        "code": 9,
        "ratio": 0.5,
        "raw": "/w==",
        "inner": {"name": "inner"},
        "price": {"units": 3},
        "tags": ["x", "y"],
        "at": {"seconds": 5},
    }
    payload = order.SerializeToString()
    descriptor = base64.b64encode(file.SerializeToString()).decode()
    of_descriptor = protobuf_payloads.Types(
        protobuf_schemas.parse(descriptor, NAMED), [protobuf_schemas.parse(MONEY, ())]
    )
    for types in (TYPES, of_descriptor):
        assert run(protobuf_payloads.read(b"\0" + payload, types))[0] == ("Order", expected)


@pytest.mark.parametrize(
    ("payload", "message", "value"),
    [
        (b"\x02\x02\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "Other", {"big": 2**64 - 1}),
        (b"\x04\x00\x00\x08\x05", "Order.Line", {"amount": 5}),
        (b"\x04\x00\x02", "Order.Empty", {}),
        (b"\x00\xa0\x06\x01", "Order", {"#100": 1}),
        (b"\x00\x20\x07", "Order", {"colour": 7}),
    ],
)
def test_protobuf_finds_the_message_by_its_places(payload: bytes, message: str, value: Any) -> None:
    """Messages within messages; unknown fields and enums have their numbers."""
    assert run(protobuf_payloads.read(payload, TYPES))[0] == (message, value)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "ends within a number"),
        (b"\x02\x08", "no message at"),
        (b"\x00\x0a\x7f", "goes beyond byte"),
        (b"\x00\x0a\x02\xff\xfe", "not UTF-8"),
        (b"\x00\x0b", "wire type 3"),
        (b"\x00" + b"\x4a\x80\x01" * 3, "goes beyond"),
        (b"\x00\x38\x01", "wire type of another"),
        (b"\xff" * 12, "a number has no end"),
    ],
)
def test_payloads_that_are_no_protobuf_say_why(payload: bytes, reason: str) -> None:
    """Cut payloads, other types, messages that are not there."""
    with pytest.raises(Undecodable, match=reason):
        run(protobuf_payloads.read(payload, TYPES))


def test_messages_within_messages_have_a_bound() -> None:
    """A thousand messages within each other end at the bound."""
    payload = b""
    for _ in range(200):
        size = len(payload)
        payload = b"\x4a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + payload
    with pytest.raises(Undecodable, match=f"nested deeper than {MAX_DEPTH}"):
        run(protobuf_payloads.read(b"\0" + payload, TYPES))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({b"\xff": 1, 2: [float("nan")], None: b"a"}, {"/w==": 1, "2": ["NaN"], "None": "YQ=="}),
        (msgspec.msgpack.Ext(5, b"x"), None),
    ],
)
def test_values_of_messagepack_become_json(value: Any, shown: Any) -> None:
    """Keys of any type, numbers that JSON lacks, extensions."""
    found, _ = run(plain(value, Budget()))
    msgspec.json.encode(found)
    assert shown is None or found == shown
