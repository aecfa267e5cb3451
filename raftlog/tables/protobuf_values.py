"""Reads Protobuf values (Google's package) as rows of Arrow, and says which Arrow type a message has.

Integers are of 64 bits and floats are doubles, so a schema that widens a field changes no column. A field without
presence, such as a plain number of proto3, is never null. A message within itself becomes text as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from raftlog.schemas.proto_files import load_file
from raftlog.schemas.schema import Named
from raftlog.tables.misfits import Misfit
from raftlog.tables.readers import MAX_DEPTH, Columns

MAX_INDEXES: Final = 64
"""Of messages within messages."""
VARINT_MAX_BYTES: Final = 5
TIMESTAMP: Final = "google.protobuf.Timestamp"
MIN_SECONDS: Final = -62_135_596_800
MAX_SECONDS: Final = 253_402_300_799
"""The years 1 to 9999."""
WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_TEXT: Final = frozenset(
    f"google.protobuf.{each}" for each in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Value")
)
"""Messages that Protobuf's JSON shows in a form of their own."""
_PLAIN: Final[dict[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}

Convert = Callable[[Any], Any]


class Column(NamedTuple):
    """The Arrow type of a field or message, and what makes Arrow's value of Protobuf's."""

    type: pa.DataType
    convert: Convert


class ProtobufReader:
    """Reads the values of one schema, a file of messages. Any exception means that the schema cannot be used."""

    def __init__(self, text: str, references: Sequence[Named] = ()) -> None:
        self._file = load_file(text, references)
        self._messages: dict[tuple[int, ...], MessageReader] = {}

    def part(self, payload: bytes) -> tuple[MessageReader, bytes]:
        """Return the reader of the message that the indexes in front of a value mean, and the bytes after them."""
        indexes, rest = split_indexes(payload)
        found = self._messages.get(indexes)
        if found is None:
            found = self._messages[indexes] = MessageReader(self._message(indexes))
        return found, rest

    def _message(self, indexes: tuple[int, ...]) -> Descriptor:
        names: list[str] = []
        messages = self._file.messages
        for index in indexes:
            if not 0 <= index < len(messages):
                raise Misfit(f"its schema has no message {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return self._file.find(".".join(names))


class MessageReader:
    """Reads the values of one message. Any exception means that the message has no columns."""

    def __init__(self, message: Descriptor) -> None:
        self.type, self._convert = _struct(message, (), Columns())
        self._class = GetMessageClass(message)

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values. Any exception means that it does not fit."""
        message = self._class.FromString(payload)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() < size:
            raise Misfit("it has fields that are not in its schema")
        return self._convert(message)


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a value's message, from the outermost in, and the bytes after them. Raise Misfit."""
    count, position = _zigzag(payload, 0)
    if count == 0:
        return (0,), payload[position:]
    if not 0 < count <= MAX_INDEXES:
        raise Misfit(f"its message has {count} indexes")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(payload, position)
        indexes.append(index)
    return tuple(indexes), payload[position:]


def _zigzag(payload: bytes, position: int) -> tuple[int, int]:
    found = 0
    for number, byte in enumerate(payload[position : position + VARINT_MAX_BYTES]):
        found |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position + number + 1
    raise Misfit("its value has no index of a message")


def _message_column(message: Descriptor, within: tuple[str, ...], columns: Columns) -> Column:
    """Return the column of a message in a field. `within` has the names of the messages around it."""
    name = message.full_name
    if name == TIMESTAMP:
        return Column(pa.timestamp("us", tz="UTC"), _microseconds)
    if name in WRAPPERS:
        plain = _value_column(message.fields_by_name["value"], within, columns)
        return Column(plain.type, lambda value: plain.convert(value.value))
    if name in AS_TEXT or name in within or not message.fields or len(within) >= MAX_DEPTH:
        return Column(pa.string(), _as_json)
    return _struct(message, within, columns)


def _struct(message: Descriptor, within: tuple[str, ...], columns: Columns) -> Column:
    columns.add((each.name for each in message.fields), message.full_name)
    within = (*within, message.full_name)
    fields = {each.name: _field_column(each, within, columns) for each in message.fields}
    type_ = pa.struct([pa.field(name, column.type) for name, column in fields.items()])
    return Column(type_, lambda value: {name: each.convert(value) for name, each in fields.items()})


def _field_column(field: FieldDescriptor, within: tuple[str, ...], columns: Columns) -> Column:
    """Return the column of a field, which converts the message that the field is of."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        values = _value_column(entry.fields_by_name["value"], within, columns)
        return Column(
            pa.map_(pa.string(), values.type),
            lambda message: [
                (_key(key), values.convert(value)) for key, value in getattr(message, name).items()
            ],
        )
    found = _value_column(field, within, columns)
    if field.is_repeated:
        return Column(
            pa.list_(pa.field("element", found.type)),
            lambda message: [found.convert(each) for each in getattr(message, name)],
        )
    if field.has_presence:
        return Column(
            found.type,
            lambda message: found.convert(getattr(message, name)) if message.HasField(name) else None,
        )
    return Column(found.type, lambda message: found.convert(getattr(message, name)))


def _value_column(field: FieldDescriptor, within: tuple[str, ...], columns: Columns) -> Column:
    """Return the column of a value of a field."""
    if field.message_type is not None:
        return _message_column(field.message_type, within, columns)
    if field.enum_type is not None:
        return Column(pa.string(), _names(field.enum_type))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Column(pa.binary(), _same)
    return Column(_PLAIN.get(field.cpp_type, pa.string()), _same)


def _names(enum: EnumDescriptor) -> Convert:
    """Return what makes a name of a number, and a text of a number without a name."""
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _microseconds(at: Any) -> int:
    """Return the time of a Timestamp. Raise Misfit outside of the years that Protobuf allows."""
    if not MIN_SECONDS <= at.seconds <= MAX_SECONDS or not 0 <= at.nanos < 1_000_000_000:
        raise Misfit(f"{at.seconds} s and {at.nanos} ns are no timestamp of the years 1 to 9999")
    return int(at.seconds * 1_000_000 + at.nanos // 1000)


def _same(value: Any) -> Any:
    return value


def _as_json(message: Any) -> str:
    pool = message.DESCRIPTOR.file.pool
    found = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    return json.dumps(found, ensure_ascii=False)
