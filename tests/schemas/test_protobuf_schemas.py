"""Protobuf: texts and descriptors, and which files read which records."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from raftlog.schemas import protobuf_schemas
from raftlog.schemas.errors import INVALID_SCHEMA, SCHEMA_TOO_LARGE, SchemaError
from raftlog.schemas.proto_model import NAME_MAX_CHARS
from raftlog.schemas.protobuf_schemas import PROTO_MAX_CHARS, incompatibilities, parse
from raftlog.schemas.schema import Named

ORDER = """
syntax = "proto3";
package shop; // a comment
import "google/protobuf/timestamp.proto";
message Order {
  string id = 1;
  repeated Line lines = 2;
  oneof paid { int64 cents = 3; string voucher = 4; }
  map<string, Line> named = 5;
  Kind kind = 6;
  optional int32 weight = 7;
  message Line { int32 count = 1; google.protobuf.Timestamp at = 2; }
  enum Kind { PLAIN = 0; GIFT = 1; }
}
"""


def file(body: str) -> str:
    return f'syntax = "proto3";\nmessage M {{ {body} }}'


def descriptor(file_descriptor: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.standard_b64encode(file_descriptor.SerializeToString()).decode()


def order_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """ORDER, as protoc compiles it."""
    found = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    found.dependency.append("google/protobuf/timestamp.proto")
    order = found.message_type.add(name="Order")
    order.oneof_decl.add(name="paid")
    order.oneof_decl.add(name="_weight")
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=5, label=1)
    line.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    entry = order.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".shop.Order.Line")
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="PLAIN", number=0)
    kind.value.add(name="GIFT", number=1)
    order.field.add(name="id", number=1, type=9, label=1)
    order.field.add(name="lines", number=2, type=11, label=3, type_name=".shop.Order.Line")
    order.field.add(name="cents", number=3, type=3, label=1, oneof_index=0)
    order.field.add(name="voucher", number=4, type=9, label=1, oneof_index=0)
    order.field.add(name="named", number=5, type=11, label=3, type_name=".shop.Order.NamedEntry")
    order.field.add(name="kind", number=6, type=14, label=1, type_name=".shop.Order.Kind")
    order.field.add(name="weight", number=7, type=5, label=1, oneof_index=1, proto3_optional=True)
    return found


def test_a_descriptor_is_the_same_as_its_text() -> None:
    """Python's serializers register descriptors, Java's texts."""
    text, compiled = parse(ORDER, ()), parse(descriptor(order_descriptor()), ())
    assert compiled.messages.keys() == text.messages.keys() == {"Order", "Order.Line"}
    for name, message in text.messages.items():
        fields = [each._replace(label=each.label.replace("optional", "")) for each in message.fields]
        assert fields == list(compiled.messages[name].fields)
    assert (compiled.package, compiled.imports, compiled.enums) == (text.package, text.imports, text.enums)
    assert incompatibilities(text, compiled) == incompatibilities(compiled, text) == []


def test_a_descriptor_of_protobufs_own_is_read() -> None:
    """As the package `protobuf` serializes it."""
    found = parse(base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode(), ())
    assert [each.name for each in found.messages["Timestamp"].fields] == ["seconds", "nanos"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "message",
        "message M {",
        'syntax = "proto3";',
        file("int32 a = 1; int32 b = 1;"),
        file("int32 a = 0;"),
        'syntax = "proto3"; import "other.proto"; message M { other.X x = 1; }',
        "AAAA",
        base64.b64encode(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").decode(),
        base64.b64encode(b"\x20\x01" * 10).decode(),
    ],
)
def test_what_is_no_file(text: str) -> None:
    """42201."""
    with pytest.raises(SchemaError, check=lambda error: error.code == INVALID_SCHEMA):
        parse(text, ())


@pytest.mark.parametrize(
    "text",
    [
        "message M {" * 70 + "}" * 70,
        f"// {'x' * PROTO_MAX_CHARS}",
    ],
)
def test_a_file_beyond_a_limit(text: str) -> None:
    """42209, before it is parsed."""
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        parse(text, ())


def test_an_import_is_a_reference() -> None:
    """By the name that the import has."""
    text = 'syntax = "proto3"; import "money.proto"; message M { Money m = 1; }'
    parse(text, (Named("money.proto", file("int32 a = 1;")),))


@pytest.mark.parametrize(
    ("reader", "writer", "reads"),
    [
        ("int32 a = 1;", "int32 a = 1;", True),
        ("int32 b = 1;", "int32 a = 1;", True),
        ("int32 a = 1; string b = 2;", "int32 a = 1;", True),
        ("int32 a = 1;", "int32 a = 1; string b = 2;", True),
        ("int64 a = 1;", "int32 a = 1;", True),
        ("sint32 a = 1;", "int32 a = 1;", False),
        ("string a = 1;", "bytes a = 1;", True),
        ("string a = 1;", "int32 a = 1;", False),
        ("repeated int32 a = 1;", "int32 a = 1;", False),
        ("repeated string a = 1;", "string a = 1;", True),
        ("E a = 1; enum E { X = 0; }", "int32 a = 1;", True),
        ("map<string,int32> a = 1;", "map<string,int32> a = 1;", True),
        ("map<string,int32> a = 1;", "map<string,string> a = 1;", False),
        ("N a = 1; message N { int32 x = 1; }", "N a = 1; message N { int32 x = 1; }", True),
        ("N a = 1; message N { int32 x = 1; }", "N a = 1; message N { string x = 1; }", False),
        ("int32 a = 1;", "int32 a = 1; message N { int32 x = 1; }", False),
        ("oneof o { int32 a = 1; }", "int32 a = 1;", True),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", False),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; } int32 b = 2;", False),
        ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", False),
        ("required int32 a = 1;", "optional int32 a = 1;", False),
        ("required int32 a = 1;", "required int32 a = 1;", True),
    ],
)
def test_which_files_read_which_records(reader: str, writer: str, reads: bool) -> None:
    """Numbers, types, labels and oneofs count, and names do not."""
    assert (incompatibilities(parse(file(reader), ()), parse(file(writer), ())) == []) is reads


def test_comments_and_layout_are_no_part_of_the_schema() -> None:
    """The text itself is stored as it was sent."""
    one, other = "message M{int32 a=1;}", "// note\nmessage M {\n  int32 a = 1; /* more */\n}\n"
    assert protobuf_schemas.canonical(one) == protobuf_schemas.canonical(other)
    assert protobuf_schemas.stored_text(other) == other


@pytest.mark.parametrize("text", ['"' + '\\"' * 20_000, "'" + "\\'" * 20_000, "/* " * 20_000])
def test_a_string_or_a_comment_without_an_end_is_one_token(text: str) -> None:
    """It would be read from each of its characters on again, for minutes. The parser refuses it."""
    assert protobuf_schemas._TOKEN.findall(text) == [text]
    with pytest.raises(SchemaError, check=lambda error: error.code == INVALID_SCHEMA):
        parse(text[:99], ())


def test_a_text_beyond_the_limit_is_not_split_into_tokens() -> None:
    """Its identity is that of the text as it is."""
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        protobuf_schemas.canonical(";" * (PROTO_MAX_CHARS + 1))


def test_the_name_of_a_type_has_a_limit() -> None:
    """Each of many messages in a message has its name: they would take gigabytes."""
    long = descriptor_pb2.FileDescriptorProto()
    long.message_type.add(name="M" * NAME_MAX_CHARS).nested_type.add(name="N")
    for text in (descriptor(long), f"message {'M' * NAME_MAX_CHARS} {{ message N {{}} }}"):
        with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
            parse(text, ())


def test_a_comparison_returns_a_few_messages() -> None:
    """A file may have twenty thousand reasons."""
    names = [f"M{number}" for number in range(50)]
    many = parse(" ".join(f"message {each} {{}}" for each in names), ())
    assert len(incompatibilities(parse("message N {}", ()), many)) == protobuf_schemas.MOST_MESSAGES


def test_a_map_entry_without_a_value_is_no_descriptor() -> None:
    """42201, and no failure of the registry."""
    odd = descriptor_pb2.FileDescriptorProto()
    message = odd.message_type.add(name="M")
    message.field.add(name="f", number=1, type=11, label=3, type_name=".M.E")
    message.nested_type.add(name="E").options.map_entry = True
    with pytest.raises(SchemaError, check=lambda error: error.code == INVALID_SCHEMA):
        parse(descriptor(odd), ())
