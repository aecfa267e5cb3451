"""Reads Protobuf values as rows of Arrow, and says which Arrow type a schema has. It needs no compiled messages.

Values are of the first message of the schema's file. As with Avro, integers are of 64 bits and floats are doubles, and
a message within itself becomes text as JSON. A field that was not set is null if the wire shows that (a message,
`optional`, a oneof), otherwise the default of its type.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from raftlog.schemas.errors import SchemaError
from raftlog.schemas.proto_descriptors import varint, wire_fields
from raftlog.schemas.proto_model import Field, Message, ProtoFile
from raftlog.schemas.protobuf_schemas import parse_file
from raftlog.tables.misfits import Misfit

MAX_DEPTH: Final = 100
"""Messages within messages of a value, as in Google's own readers."""
ONE_INDEX: Final = 2
"""The number of indexes in a path, 1, as the wire has it."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
U64: Final = pa.decimal128(20, 0)
_I32, _U32, _I64, _U64, _F32, _F64 = (struct.Struct(f"<{each}") for each in "iIqQfd")

Read = Callable[[Any], Any]


def _signed(bits: int) -> Read:
    """Return what reads a varint as a signed number."""
    top, span = 1 << (bits - 1), 1 << bits
    return lambda value: ((value & (span - 1)) ^ top) - top


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


class Scalar(NamedTuple):
    """A type without fields: its column, its default, and what reads it. `size` is of fixed types, 0 of varints."""

    type: pa.DataType
    default: Any
    read: Read
    size: int | None = 0


def _fixed(layout: struct.Struct) -> Read:
    return lambda value: layout.unpack(value)[0]


SCALARS: Final = {
    "int32": Scalar(pa.int64(), 0, _signed(32)),
    "int64": Scalar(pa.int64(), 0, _signed(64)),
    "uint32": Scalar(pa.int64(), 0, lambda value: value & 0xFFFF_FFFF),
    "uint64": Scalar(U64, 0, lambda value: value & 0xFFFF_FFFF_FFFF_FFFF),
    "sint32": Scalar(pa.int64(), 0, _zigzag),
    "sint64": Scalar(pa.int64(), 0, _zigzag),
    "bool": Scalar(pa.bool_(), False, bool),
    "fixed32": Scalar(pa.int64(), 0, _fixed(_U32), 4),
    "sfixed32": Scalar(pa.int64(), 0, _fixed(_I32), 4),
    "float": Scalar(pa.float64(), 0.0, _fixed(_F32), 4),
    "fixed64": Scalar(U64, 0, _fixed(_U64), 8),
    "sfixed64": Scalar(pa.int64(), 0, _fixed(_I64), 8),
    "double": Scalar(pa.float64(), 0.0, _fixed(_F64), 8),
    "string": Scalar(pa.string(), "", lambda value: value.decode(), None),
    "bytes": Scalar(pa.binary(), b"", bytes, None),
}
WRAPPERS: Final = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        ("Double", "double"),
        ("Float", "float"),
        ("Int64", "int64"),
        ("UInt64", "uint64"),
        ("Int32", "int32"),
        ("UInt32", "uint32"),
        ("Bool", "bool"),
        ("String", "string"),
        ("Bytes", "bytes"),
    )
}
TIMESTAMP: Final = "google.protobuf.Timestamp"


class ProtobufReader:
    """Reads the values of one schema, a text or a descriptor. Raise Misfit for a schema that is none."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        try:
            files = [parse_file(each) for each in (*references, text)]
            self._types = _Types(files)
            if not files[-1].messages:
                raise ValueError("it has no message")
            first = next(iter(files[-1].messages.values()))
            self._message = self._types.message(_full(files[-1], first.name), ())
        except (SchemaError, ValueError, KeyError) as error:
            raise Misfit(f"its schema cannot be used: {error}") from None
        if not self._message.type.num_fields:
            raise Misfit(f"its message {first.name} has no fields")
        self.type = self._message.type

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values. Raise Misfit."""
        try:
            count, position = varint(payload, 0)
            if count:  # 0 is short for a path of one index, which is 0
                index, position = varint(payload, position)
                if (count, index) != (ONE_INDEX, 0):
                    raise Misfit("it is not of the first message of its schema, which alone is read")
            return self._message.read(payload[position:])
        except Misfit:
            raise
        except Exception as error:  # whatever the bytes make of it
            raise Misfit(f"its bytes are not of its schema: {type(error).__name__}: {error}") from None


def _full(file: ProtoFile, name: str) -> str:
    return f"{file.package}.{name}" if file.package else name


class Part(NamedTuple):
    """A field of a message: what makes Arrow's value of what the wire has of it, in order."""

    name: str
    type: pa.DataType
    value: Callable[[list[Any]], Any]


class MessageReader(NamedTuple):
    """Reads the bytes of a message."""

    type: pa.StructType
    parts: Mapping[int, Part]

    def read(self, content: bytes) -> dict[str, Any]:
        found: dict[int, list[Any]] = {}
        for number, value in wire_fields(content):
            if number in self.parts:
                found.setdefault(number, []).append(value)
        return {part.name: part.value(found.get(number, [])) for number, part in self.parts.items()}


class _Types:
    """The messages and enums of a file and the files that it imports, by their full names."""

    def __init__(self, files: Sequence[ProtoFile]) -> None:
        self._messages: dict[str, tuple[Message, ProtoFile]] = {}
        self._enums: dict[str, Mapping[int, str]] = {}
        for file in files:
            for name, message in file.messages.items():
                self._messages[_full(file, name)] = message, file
            for name, values in file.enums.items():
                self._enums[_full(file, name)] = values

    def message(self, name: str, within: tuple[str, ...]) -> MessageReader:
        """Return the reader of a message. `within` has the names of the messages around it. Raise ValueError."""
        message, file = self._messages[name]
        parts = {each.number: self._part(each, file, (*within, name)) for each in message.fields}
        if len({each.name.lower() for each in parts.values()}) < len(parts):
            raise ValueError(f"two fields of {name} differ in case only")
        return MessageReader(pa.struct([(each.name, each.type) for each in parts.values()]), parts)

    def _part(self, field: Field, file: ProtoFile, within: tuple[str, ...]) -> Part:
        if field.type.startswith("map<"):
            return self._map(field, file, within)
        one = self._single(field.type, file, within)
        if field.label == "repeated":
            type_ = pa.list_(pa.field("element", one.type))
            return Part(
                field.name, type_, lambda found: [each for raw in found for each in _elements(one, raw)]
            )
        can_be_null = field.label == "optional" or field.oneof or one.default is None
        default = None if can_be_null else one.default
        return Part(field.name, one.type, lambda found: one.read(_last(one, found)) if found else default)

    def _map(self, field: Field, file: ProtoFile, within: tuple[str, ...]) -> Part:
        kind, _, values = field.type[4:-1].partition(",")
        key, value = self._single(kind.strip(), file, within), self._single(values.strip(), file, within)

        def read(found: list[Any]) -> list[tuple[str, Any]]:
            entries: dict[str, Any] = {}
            for raw in found:
                parts = dict(wire_fields(raw))
                name = key.read(parts[1]) if 1 in parts else key.default
                entries[_text(name)] = value.read(parts[2]) if 2 in parts else value.default
            return list(entries.items())

        return Part(field.name, pa.map_(pa.string(), value.type), read)

    def _single(self, kind: str, file: ProtoFile, within: tuple[str, ...]) -> Scalar:
        """Return how a value of a type is read that is not repeated; messages have None as default."""
        if kind in SCALARS:
            return SCALARS[kind]
        name = self._name(kind, file)
        if name in self._enums:
            symbols = self._enums[name]
            number = _signed(32)

            def symbol(value: int) -> str:
                return symbols.get(number(value), str(number(value)))

            return Scalar(pa.string(), symbol(0), symbol)
        if name == TIMESTAMP:
            return Scalar(pa.timestamp("us", tz="UTC"), None, _timestamp, None)
        if name in WRAPPERS:
            wrapped = SCALARS[WRAPPERS[name]]
            return Scalar(wrapped.type, None, lambda raw: _wrapped(wrapped, raw), None)
        if name not in self._messages:
            raise ValueError(f"it has a field of {kind}, which is not in its file or in its references")
        if name in within:
            return Scalar(pa.string(), None, self._as_json(name), None)
        found = self.message(name, within)
        if not found.type.num_fields:
            return Scalar(pa.string(), None, lambda _raw: "{}", None)
        return Scalar(found.type, None, found.read, None)

    def _name(self, kind: str, file: ProtoFile) -> str:
        """Return the full name of a type that a field names, relative to the packages around it or in full."""
        scope = file.package
        while True:
            name = f"{scope}.{kind}" if scope else kind
            if not scope or name in self._messages or name in self._enums:
                return name.lstrip(".")
            scope = scope.rpartition(".")[0]

    def _as_json(self, name: str) -> Read:
        """Return what reads a message as text, with all messages of its own kind within it."""
        return lambda raw: json.dumps(self._nested(name, raw, 0), default=_json, ensure_ascii=False)

    def _nested(self, name: str, raw: bytes, depth: int) -> dict[str, Any]:
        if depth > MAX_DEPTH:
            raise ValueError(f"messages are nested deeper than {MAX_DEPTH}")
        message, file = self._messages[name]
        found: dict[int, list[Any]] = {}
        for number, value in wire_fields(raw):
            found.setdefault(number, []).append(value)
        result = {}
        for field in message.fields:
            values = found.get(field.number, [])
            if self._name(field.type, file) == name:
                inner = [self._nested(name, each, depth + 1) for each in values]
                result[field.name] = inner if field.label == "repeated" else (inner or [None])[-1]
            else:
                result[field.name] = self._part(field, file, (name,)).value(values)
        return result


def _elements(one: Scalar, raw: Any) -> list[Any]:
    """Return the elements that a field of the wire has: one, or several that are packed."""
    if one.size is None or isinstance(raw, int):
        return [one.read(raw)]
    if one.size:
        return [one.read(raw[at : at + one.size]) for at in range(0, len(raw), one.size)]
    found, position = [], 0
    while position < len(raw):
        number, position = varint(raw, position)
        found.append(one.read(number))
    return found


def _last(one: Scalar, found: list[Any]) -> Any:
    """Return what counts of a field that came several times: the last, and of messages all parts together."""
    return b"".join(found) if pa.types.is_struct(one.type) else found[-1]


def _wrapped(wrapped: Scalar, raw: bytes) -> Any:
    parts = dict(wire_fields(raw))
    return wrapped.read(parts[1]) if 1 in parts else wrapped.default


def _timestamp(raw: bytes) -> datetime:
    parts = dict(wire_fields(raw))
    seconds, nanos = (SCALARS["int64"].read(parts.get(number, 0)) for number in (1, 2))
    return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _json(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
