"""Protobuf values: each type beside Google's own package, by descriptors and by texts, and hostile bytes."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tables

INTEGERS = {"int32": -5, "int64": -(2**63), "uint32": 2**32 - 1, "sint32": -7, "sint64": 2**62, "fixed32": 9}
INTEGERS |= {"sfixed32": -(2**31), "sfixed64": -3}
SCALARS = {**INTEGERS, "uint64": Decimal(2**64 - 1), "fixed64": Decimal(2**63), "double": 0.25, "float": 0.5}
SCALARS |= {"bool": True, "string": "\N{SNOWMAN}", "bytes": b"\xff\0"}
FIELDS = "".join(f"  {kind} a_{kind} = {number};\n" for number, kind in enumerate(SCALARS, 1))
LISTS = "".join(f"  repeated {kind} some_{kind} = {number};\n" for number, kind in enumerate(SCALARS, 21))
TEXT = f"""syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {{
{FIELDS}{LISTS}
  optional int32 may = 50;
  oneof how {{ string card = 51; Line paid = 52; }}
  Color color = 53;
  repeated Line lines = 54;
  map<string, Line> by_name = 55;
  map<int32, string> names = 56;
  google.protobuf.Timestamp at = 57;
  google.protobuf.Int64Value wrapped = 58;
  Tree tree = 59;
  Nothing nothing = 60;
  enum Color {{ UNKNOWN = 0; RED = 1; }}
}}
message Line {{ string what = 1; Inner inner = 2; message Inner {{ int64 deep = 1; }} }}
message Tree {{ int32 value = 1; repeated Tree below = 2; }}
message Nothing {{}}
"""


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Google's class for the first message, and its file's descriptor."""
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(file.DESCRIPTOR.serialized_pb)
    pool.Add(described())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order"))


def described() -> Any:
    """Return the descriptor of TEXT, as protoc would make it, by hand."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name="order.proto", package="shop.v1", syntax="proto3")
    file.dependency[:] = ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    order, line, tree, nothing = (
        file.message_type.add(name=each) for each in ("Order", "Line", "Tree", "Nothing")
    )
    kinds = {name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}") for name in SCALARS}

    def field(message: Any, name: str, number: int, kind: str, **more: Any) -> Any:
        if kind in kinds:
            return message.field.add(name=name, number=number, type=kinds[kind], **{"label": 1, **more})
        type_ = 14 if kind.endswith("Color") else 11
        return message.field.add(name=name, number=number, type=type_, type_name=kind, **{"label": 1, **more})

    def entry(name: str, key: str, value: str) -> None:
        nested = order.nested_type.add(name=name)
        nested.options.map_entry = True
        field(nested, "key", 1, key)
        field(nested, "value", 2, value)

    for number, kind in enumerate(SCALARS, 1):
        field(order, f"a_{kind}", number, kind)
        field(order, f"some_{kind}", number + 20, kind, label=3)
    order.oneof_decl.add(name="how")
    order.oneof_decl.add(name="_may")
    field(order, "may", 50, "int32", oneof_index=1, proto3_optional=True)
    field(order, "card", 51, "string", oneof_index=0)
    field(order, "paid", 52, ".shop.v1.Line", oneof_index=0)
    field(order, "color", 53, ".shop.v1.Order.Color")
    field(order, "lines", 54, ".shop.v1.Line", label=3)
    entry("ByNameEntry", "string", ".shop.v1.Line")
    entry("NamesEntry", "int32", "string")
    field(order, "by_name", 55, ".shop.v1.Order.ByNameEntry", label=3)
    field(order, "names", 56, ".shop.v1.Order.NamesEntry", label=3)
    field(order, "at", 57, ".google.protobuf.Timestamp")
    field(order, "wrapped", 58, ".google.protobuf.Int64Value")
    field(order, "tree", 59, ".shop.v1.Tree")
    field(order, "nothing", 60, ".shop.v1.Nothing")
    color = order.enum_type.add(name="Color")
    color.value.add(name="UNKNOWN", number=0)
    color.value.add(name="RED", number=1)
    field(line, "what", 1, "string")
    field(line, "inner", 2, ".shop.v1.Line.Inner")
    field(line.nested_type.add(name="Inner"), "deep", 1, "int64")
    field(tree, "value", 1, "int32")
    field(tree, "below", 2, ".shop.v1.Tree", label=3)
    assert nothing.name
    return file


def schemas() -> list[str]:
    return [TEXT, base64.b64encode(described().SerializeToString()).decode()]


def read(schema: str, payload: bytes) -> Any:
    """Return a value as a row of its column."""
    import pyarrow as pa

    from raftlog.tables.proto_values import ProtobufReader

    reader = ProtobufReader(schema)
    (row,) = pa.array([reader.read(payload)], reader.type).to_pylist()
    return row


@pytest.mark.parametrize("schema", [0, 1], ids=["text", "descriptor"])
def test_every_type_is_read_as_google_wrote_it(order: Any, schema: int) -> None:
    """Single, repeated (packed or not), in maps, in messages, wrapped; what holds itself is text."""
    plain = {kind: int(value) if isinstance(value, Decimal) else value for kind, value in SCALARS.items()}
    value = order(
        **{f"a_{kind}": each for kind, each in plain.items()},
        **{f"some_{kind}": [each, each] for kind, each in plain.items()},
        may=0,
        paid={"what": "x", "inner": {"deep": 3}},
        color="RED",
        lines=[{"what": "a"}, {}],
        by_name={"k": {"what": "v"}},
        names={-1: "minus"},
        at=datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        tree={"value": 1, "below": [{"value": 2}]},
    )
    value.wrapped.value = 0
    value.nothing.SetInParent()
    row = read(schemas()[schema], b"\0" + value.SerializeToString())
    assert {name: row.pop(f"a_{name}") for name in SCALARS} == SCALARS
    assert {name: row.pop(f"some_{name}") for name in SCALARS} == {
        name: [each] * 2 for name, each in SCALARS.items()
    }
    assert row == {
        "may": 0,
        "card": None,
        "paid": {"what": "x", "inner": {"deep": 3}},
        "color": "RED",
        "lines": [{"what": "a", "inner": None}, {"what": "", "inner": None}],
        "by_name": [("k", {"what": "v", "inner": None})],
        "names": [("-1", "minus")],
        "at": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        "wrapped": 0,
        "tree": {"value": 1, "below": ['{"value": 2, "below": []}']},
        "nothing": "{}",
    }


@pytest.mark.parametrize("schema", [0, 1], ids=["text", "descriptor"])
def test_what_was_not_set_is_null_or_the_default(order: Any, schema: int) -> None:
    """As in Google's package."""
    row = read(schemas()[schema], b"\x02\0" + order().SerializeToString())
    assert (row["may"], row["card"], row["paid"], row["at"], row["wrapped"]) == (None,) * 5
    assert (row["a_int32"], row["a_string"], row["color"], row["lines"], row["names"]) == (
        0,
        "",
        "UNKNOWN",
        [],
        [],
    )


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "not of its schema"),
        (b"\x02\x02", "not of the first message"),
        (b"\x04\0\0", "not of the first message"),
        (b"\0\x08", "not of its schema"),
        (b"\0\x0a\x01", "not of its schema"),
        (b"\0\x72\x01\xff", "not of its schema"),
        (b"\0\x0b", "not of its schema"),
    ],
)
def test_bytes_that_do_not_fit_say_so(payload: bytes, said: str) -> None:
    """Cut, of another message, a group, another wire type."""
    from raftlog.tables.misfits import Misfit

    with pytest.raises(Misfit, match=said):
        read(TEXT, payload)


def test_messages_without_end_are_no_crash() -> None:
    """A value that nests itself more deeply than any stack."""
    from raftlog.tables.misfits import Misfit

    payload = b""
    for _ in range(3_000):
        size, prefix = len(payload), bytearray()
        while size > 0x7F:
            prefix.append(size & 0x7F | 0x80)
            size >>= 7
        payload = b"\x12" + bytes([*prefix, size]) + payload
    with pytest.raises(Misfit, match="nested deeper than 100"):
        read('syntax = "proto3"; message Tree { int32 value = 1; repeated Tree below = 2; }', b"\0" + payload)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("message {", "cannot be used"),
        ("enum E { A = 0; }", "has no message"),
        ("message M {}", "has no fields"),
        ("message M { Other other = 1; }", "has a field of Other"),
        ("message M { int32 a = 1; int32 A = 2; }", "differ in case only"),
    ],
)
def test_a_schema_that_has_no_columns_says_so(schema: str, said: str) -> None:
    """Each value of it is a dead letter with this reason."""
    from raftlog.tables.misfits import Misfit

    with pytest.raises(Misfit, match=said):
        read(f'syntax = "proto3"; {schema}', b"\0")


def test_types_of_references_are_found(order: Any) -> None:
    """In another file with another package."""
    from raftlog.tables.proto_values import ProtobufReader

    money = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'
    bill = 'syntax = "proto3"; package shop; import "money.proto"; message Bill { common.Money sum = 1; }'
    assert ProtobufReader(bill, [money]).read(b"\0\x0a\x02\x08\x07") == {"sum": {"cents": 7}}


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_misfit(payload: bytes) -> None:
    """No other error is raised."""
    from raftlog.tables.misfits import Misfit

    try:
        read(TEXT, payload)
    except Misfit:
        pass
