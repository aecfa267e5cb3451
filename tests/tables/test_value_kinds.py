"""Values of JSON Schema and Protobuf as columns, as confluent-kafka's serializers write them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.schemas.schema import Named
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import CommandLine
from tests.kit.waits import PATIENCE_S
from tests.tables.conftest import Backend

pytestmark = pytest.mark.tables

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {"type": ["string", "null"], "description": "a name"},
        "price": {"type": "number"},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "color": {"enum": ["red", None]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "inner": {"$ref": "#/$defs/inner"},
        "tree": {"$ref": "#/$defs/tree"},
        "either": {"type": ["string", "integer"]},
        "odd": {"type": "object", "properties": {"a.b": {"type": "integer"}}},
        "other": {"$ref": "other.json"},
    },
    "$defs": {
        "inner": {
            "type": "object",
            "properties": {"deep": {"type": "integer"}},
            "additionalProperties": False,
        },
        "tree": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}},
        },
    },
}
OTHER = '{"type": "object", "properties": {"x": {"type": "string"}}}'


def row(kind: str, text: str, payload: bytes, *references: Named) -> Any:
    """Return a value as Arrow has it in the columns of a schema. Raise Misfit."""
    import pyarrow as pa

    from raftlog.pipeline.decoding import KnownSchemas
    from raftlog.tables.registry import RegisteredSchema
    from raftlog.tables.values import Values

    values = Values(KnownSchemas({1: RegisteredSchema(kind, text, references)}))
    found = values.read(b"\0\0\0\0\1" + payload)
    return pa.array([found], values.type).to_pylist()[0]


def json_row(schema: Any, value: Any) -> Any:
    """Return a JSON value as Arrow has it in the columns of a schema."""
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return row("JSON", json.dumps(schema), payload, Named("other.json", OTHER))


def test_every_type_of_json_has_a_column() -> None:
    """What has several types, refers to itself or has names that are no columns is text."""
    value = {
        "id": 2**62,
        "who": None,
        "price": 3,
        "paid": True,
        "color": "red",
        "tags": ["a"],
        "counts": {"b": 1},
        "inner": {"deep": 1.0},
        "tree": {"n": 1, "next": {"n": 2}},
        "either": 5,
        "odd": {"a.b": 1},
        "other": {"x": "y"},
    }
    assert json_row(JSON_SCHEMA, value) == {
        **value,
        "counts": [("b", 1)],
        "tree": {"n": 1, "next": '{"n":2}'},
        "either": "5",
        "odd": '{"a.b":1}',
    }
    assert set(json_row(JSON_SCHEMA, {}).values()) == {None}
    assert json_row({"type": "integer"}, 7) == {"value": 7}
    assert json_row({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1]) == {"value": "[1]"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"{", "no JSON"),
        (b'{"id": NaN}', "no JSON"),
        ([], "another type than its schema says: object"),
        (None, "it is null"),
        ({"id": "1"}, '"1" is of another type than its schema says: integer'),
        ({"id": True}, "another type"),
        ({"id": 1.5}, "another type"),
        ({"price": 2**53 + 1}, "more digits"),
        (b'{"price": %d}' % 10**400, "greater than any double"),
        (b'{"price": 1%s}' % (b"0" * 300 + b"1"), "more digits"),
        (b'{"price": %s}' % (b"9" * 5000), "no JSON"),
        (b'{"who": "\\ud800"}', "no JSON"),
        (b'{"who": %s}' % (b"[" * 100_000), "no JSON"),
        ({"inner": {"deep": 1, "more": 2}}, "attribute 'more' is not in its schema"),
    ],
)
def test_json_that_does_not_fit_says_why(value: Any, said: str) -> None:
    """No attribute is left out in silence."""
    from raftlog.tables.misfits import Misfit

    with pytest.raises(Misfit, match=said):
        json_row(JSON_SCHEMA, value)


PROTO = """
syntax = "proto3";
package shop;
import "other.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "confluent/meta.proto";

message Unused { }
message Order {
  int32 id = 1 [(confluent.field_meta).doc = "a number"];
  optional int64 count = 2;
  uint64 large = 3;
  float price = 4;
  bool paid = 5;
  string who = 6;
  bytes raw = 7;
  Color color = 8;
  repeated int32 parts = 9;
  map<int32, Line> lines = 10;
  Line line = 11;
  oneof either { string a = 12; int32 b = 13; }
  Order within = 14;
  google.protobuf.Timestamp at = 15;
  google.protobuf.StringValue note = 16;
  google.protobuf.Struct rest = 17;
  other.Money money = 18;
  message Line { string article = 1; repeated Kinds.Kind kinds = 2; }
  message Kinds { enum Kind { NONE = 0; SOME = 1; } }
  enum Color { RED = 0; BLUE = 1; }
}
"""
OTHER_PROTO = (
    'syntax = "proto2"; package other; message Money { required string unit = 1; optional int32 cents = 2; }'
)
REFERENCES = (Named("other.proto", OTHER_PROTO),)
FRAME = b"\x02\x02"
"""One index: the second message."""


def proto_reader(text: str = PROTO) -> Any:
    from raftlog.tables.protobuf_values import ProtobufReader

    return ProtobufReader(text, REFERENCES)


def proto_row(payload: bytes, text: str = PROTO) -> Any:
    """Return a Protobuf value as Arrow has it in the columns of a message."""
    return row("PROTOBUF", text, payload, *REFERENCES)


def order(value: Any) -> bytes:
    """Return an Order of the schema as bytes, made of its JSON."""
    from google.protobuf import json_format

    part, _ = proto_reader().part(FRAME)
    return FRAME + json_format.ParseDict(value, part._class()).SerializeToString()


def test_every_type_of_protobuf_has_a_column() -> None:
    """Fields without presence have their defaults; a message within itself is text."""
    value = {
        "id": -1,
        "count": 0,
        "large": 2**64 - 1,
        "price": 0.5,
        "paid": True,
        "who": "\N{SNOWMAN}",
        "raw": "/wA=",
        "color": 7,
        "parts": [1, 2],
        "lines": {"5": {"article": "a"}},
        "line": {"article": "b", "kinds": ["SOME"]},
        "b": 0,
        "within": {"id": 3},
        "at": "2026-01-31T12:00:00Z",
        "note": "",
        "rest": {"x": [1]},
        "money": {"unit": "EUR"},
    }
    found = proto_row(order(value))
    at = found.pop("at")
    assert at.isoformat() == "2026-01-31T12:00:00+00:00"
    assert found == {
        **{name: each for name, each in value.items() if name != "at"},
        "raw": b"\xff\0",
        "color": "7",
        "lines": [("5", {"article": "a", "kinds": []})],
        "a": None,
        "within": '{"id": 3}',
        "rest": '{"x": [1.0]}',
        "money": {"unit": "EUR", "cents": None},
    }
    empty = proto_row(FRAME)
    assert {name for name, each in empty.items() if each is not None} == {
        *("id", "large", "price", "paid", "who", "raw", "color", "parts", "lines")
    }
    assert empty["color"] == "RED" and empty["parts"] == []


def test_proto2_has_groups_and_a_descriptor_reads_as_a_text_does() -> None:
    """Python's serializers register descriptors in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    text = "message M { optional group G = 1 { required int32 x = 1; } optional string s = 2; }"
    payload = b"\0\x0b\x08\x05\x0c\x12\x01a"
    assert proto_row(payload, text) == {"g": {"x": 5}, "s": "a"}
    found = FileDescriptorProto(name="any.proto", syntax="proto3")
    field = found.message_type.add(name="M").field.add(name="x", number=1, label=1, type=5)
    field.proto3_optional, field.oneof_index = True, 0
    found.message_type[0].oneof_decl.add(name="_x")
    assert proto_row(b"\0\x08\x05", base64.b64encode(found.SerializeToString()).decode()) == {"x": 5}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "no index of a message"),
        (b"\xff\xff\xff\xff\xff\x01", "no index of a message"),
        (b"\x80\x02", "has 128 indexes"),
        (b"\x01", "has -1 indexes"),
        (b"\x02\x08", r"no message \[4\]"),
        (b"\x04\x02\x06", r"no message \[1, 3\]"),
        (b"\0\x08\x05", "fields that are not in its schema"),
        (FRAME + b"\x08", "not of its schema: DecodeError"),
        (FRAME + b"\x32\x01\xff", "not of its schema"),
        (FRAME + b"\x92\x01\x00", "not of its schema"),
    ],
)
def test_protobuf_that_does_not_fit_says_why(payload: bytes, said: str) -> None:
    """Cut bytes, no UTF-8, a required field that is missing, indexes of no message, fields of another schema."""
    from raftlog.tables.misfits import Misfit

    with pytest.raises(Misfit, match=said):
        proto_row(payload)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_schema_that_doubles_with_each_level_is_refused(kind: str) -> None:
    """Thirty types that hold the next one twice are a thousand million columns."""
    from raftlog.tables.misfits import Misfit

    levels = range(29, -1, -1)
    avro: Any = "int"
    for each in levels:
        fields = [{"name": "a", "type": avro}, {"name": "b", "type": "int" if each == 29 else f"R{each + 1}"}]
        avro = {"type": "record", "name": f"R{each}", "fields": fields}
    following = {
        each: {"$ref": f"#/$defs/{each + 1}"} if each < 29 else {"type": "string"} for each in levels
    }
    types = {str(each): {"properties": {"a": next_, "b": next_}} for each, next_ in following.items()}
    text = {
        "AVRO": json.dumps(avro),
        "JSON": json.dumps({"$ref": "#/$defs/0", "$defs": types}),
        "PROTOBUF": "".join(f"message M{each} {{ optional M{each + 1} a = 1; optional M{each + 1} b = 2; }}"
                            for each in range(30)) + "message M30 { optional int32 x = 1; }",
    }[kind]  # fmt: skip
    with pytest.raises(Misfit, match="5000 columns"):
        row(kind, text, b"\0")


def avro_row(type_: Any, payload: bytes) -> Any:
    """Return what a record with a field of a type has in it."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": type_}]}
    return row("AVRO", json.dumps(schema), payload)["a"]


@pytest.mark.parametrize("levels", [250, 100_000])
def test_an_avro_value_that_is_nested_too_deeply_does_not_fit(levels: int) -> None:
    """The compiled reader would recurse until the process ends, by a value of a few thousand bytes."""
    from raftlog.tables.misfits import Misfit

    tree = ["null", "Order"]
    assert avro_row(tree, b"\2\2\0") == '{"a": {"a": null}}'
    with pytest.raises(Misfit, match="RecursionError"):
        avro_row(tree, b"\2" * levels + b"\0")
    with pytest.raises(Misfit, match="RecursionError"):
        avro_row("Order", b"\0")


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "F", "size": 0}, EMPTY, {**EMPTY, "fields": []}]
)
def test_an_avro_array_of_items_without_bytes_is_refused(items: Any) -> None:
    """Seven bytes would make a list of a million million items."""
    from raftlog.tables.misfits import Misfit

    for type_ in ({"type": "array", "items": items}, ["int", {"type": "array", "items": items}]):
        with pytest.raises(Misfit, match=r"schema 1: .*items that take no bytes"):
            avro_row(type_, b"\x80\x80\x80\x80\x80\x40\0")
    assert avro_row({"type": "array", "items": ["null", "int"]}, b"\4\0\2\4\0") == [None, 2]


def test_an_avro_decimal_that_is_longer_than_its_schema_says_does_not_fit() -> None:
    """fastavro rounds it to the precision. Up to 38 digits the column refuses it, beyond that it is text."""
    from raftlog.tables.misfits import Misfit

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    assert avro_row(decimal, b"\2\x7b") == "1.23"
    with pytest.raises(Misfit, match="precision of 40"):
        avro_row(decimal, b"\x28" + b"\x7f" * 20)


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 2**63 - 1])
def test_a_protobuf_timestamp_outside_of_its_years_does_not_fit(seconds: int) -> None:
    """No reader of tables in Python could show it, and the largest fit into no column."""
    from google.protobuf.timestamp_pb2 import Timestamp

    from raftlog.tables.misfits import Misfit

    text = (
        'import "google/protobuf/timestamp.proto"; message M { optional google.protobuf.Timestamp at = 1; }'
    )
    payload = Timestamp(seconds=seconds).SerializeToString()
    with pytest.raises(Misfit, match="the years 1 to 9999"):
        row("PROTOBUF", text, b"\0\x0a%c" % len(payload) + payload)


def test_a_reason_can_be_written_whatever_it_quotes() -> None:
    """A reason is a column of a table: UTF-8, and short beside its value."""
    from raftlog.tables.misfits import MAX_REASON, Misfit

    assert str(Misfit("\ud800")) == "\\ud800"
    assert len(str(Misfit("x" * 10**6))) == MAX_REASON


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_types_that_are_nested_deeply_become_text(kind: str) -> None:
    """Engines have limits of their own, and a schema of 60 levels is none of them."""
    import pyarrow as pa

    from raftlog.tables.kinds import new_reader
    from raftlog.tables.readers import MAX_DEPTH
    from raftlog.tables.registry import RegisteredSchema

    avro: Any = "int"
    schema: Any = {"type": "integer"}
    for each in range(60, 0, -1):
        avro = {"type": "record", "name": f"R{each}", "fields": [{"name": "a", "type": avro}]}
        schema = {"type": "object", "properties": {"a": schema}}
    proto = "".join(f"message M{each} {{ optional M{each + 1} a = 1; }}" for each in range(60))
    text = {
        "AVRO": json.dumps(avro),
        "JSON": json.dumps(schema),
        "PROTOBUF": f"{proto} message M60 {{ optional int32 a = 1; }}",
    }[kind]
    part, _ = new_reader(RegisteredSchema(kind, text)).part(b"\0")
    found: Any = part.type
    depth = 0
    while pa.types.is_struct(found):
        found, depth = found.field("a").type, depth + 1
    assert (found, depth) == (pa.string(), MAX_DEPTH)


def test_values_of_confluents_serializers_become_columns(backend: Backend, tmp_path: Path) -> None:
    """JSON and Protobuf, by raftlog's own registry, with a schema that grows."""
    from confluent_kafka import Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.timestamp_pb2 import Timestamp

    first = {"title": "T", "type": "object", "properties": {"a": {"type": "integer"}}}
    second = {**first, "properties": {**first["properties"], "b": {"type": "string"}}}
    with AdminCluster(nodes=1) as cluster:
        client = SchemaRegistryClient({"url": cluster.schema_registry_url()})
        client.set_compatibility(level="NONE")
        raftlog = CommandLine(cluster.bootstrap_servers)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        writers = {
            "json": [
                (JSONSerializer(json.dumps(first), client), {"a": 1}),
                (JSONSerializer(json.dumps(second), client), {"a": 2, "b": "x"}),
            ],
            "proto": [(ProtobufSerializer(Timestamp, client), Timestamp(seconds=5))],
        }
        for topic, values in writers.items():
            assert raftlog("topic", "create", topic, "-p", "1").returncode == 0
            context = SerializationContext(topic, MessageField.VALUE)
            for serializer, value in values:
                producer.produce(topic, serializer(value, context))
        assert producer.flush(PATIENCE_S) == 0
        where = ("--to", str(tmp_path), "--format", backend.name, "--registry", cluster.schema_registry_url())
        ran = raftlog("table", "run", *writers, *where, "--until-end", "-J")
        assert ran.returncode == 0, ran.stderr
    assert [json.loads(line)["dead_letters"] for line in ran.stdout.splitlines()] == [0, 0]
    assert [each["value"] for each in backend.read(str(tmp_path / "json"))] == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]
    assert [each["value"] for each in backend.read(str(tmp_path / "proto"))] == [{"seconds": 5, "nanos": 0}]
