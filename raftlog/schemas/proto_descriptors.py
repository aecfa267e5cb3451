"""Protobuf's descriptors (`google.protobuf.FileDescriptorProto`) as bytes, read without Google's package."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Final

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.proto_model import Field, Message, ProtoFile, name_within
from raftlog.schemas.schema import MAX_DEPTH

Value = int | bytes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_MAX_BYTES: Final = 10
TYPES: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""FieldDescriptorProto.Type, but for messages (11) and enums (14), which have names."""
LABELS: Final = {2: "required", 3: "repeated"}


class _Cut(Exception):
    """Bytes that are no Protobuf."""


def descriptor_of(text: str) -> bytes | None:
    """Return the bytes of a schema that is base64; None for a text."""
    stripped = text.strip()
    if not stripped or any(each in stripped for each in '{;" '):
        return None
    try:
        return base64.b64decode(stripped, validate=True)
    except (binascii.Error, ValueError):
        return None


def decode_descriptor(content: bytes) -> ProtoFile:
    """Return the file of a descriptor. Raises SchemaError."""
    try:
        return _file(content)
    except (_Cut, AttributeError, TypeError, ValueError):
        raise invalid_schema("it is neither a .proto text nor a descriptor in base64") from None


def _fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a message by number."""
    position = 0
    while position < len(content):
        key, position = _varint(content, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, position = _varint(content, position)
            yield number, value
            continue
        if kind == BYTES:
            size, position = _varint(content, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise _Cut
        if position + size > len(content):
            raise _Cut
        yield number, content[position : position + size]
        position += size


def _varint(content: bytes, position: int) -> tuple[int, int]:
    found = 0
    for shift in range(VARINT_MAX_BYTES):
        if position >= len(content):
            raise _Cut
        byte = content[position]
        position += 1
        found |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return found, position
    raise _Cut


def _text(value: Value) -> str:
    if isinstance(value, int):
        raise _Cut
    return value.decode()


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise _Cut
    return value


def _file(content: bytes) -> ProtoFile:
    package, imports = "", []
    messages: dict[str, bytes] = {}
    enums: dict[str, bytes] = {}
    for number, value in _fields(content):
        if number == 2:
            package = _text(value)
        elif number == 3:
            imports.append(_text(value))
        elif number == 4:
            _collect(_bytes(value), "", messages, enums, depth=1)
        elif number == 5:
            enums[_name_of(_bytes(value))] = _bytes(value)
    if not messages and not enums:
        raise _Cut
    entries = {name: _entry(each) for name, each in messages.items() if _is_map_entry(each)}
    read = {
        name: Message(name, tuple(_message_fields(each, package, entries)))
        for name, each in messages.items()
        if name not in entries
    }
    named = {name: _enum(each) for name, each in enums.items()}
    return ProtoFile(package, tuple(imports), read, named, tuple(messages))


def _name_of(content: bytes) -> str:
    """Return the name of a message, an enum or a field: its first field."""
    return next((_text(value) for number, value in _fields(content) if number == 1), "")


def _collect(
    content: bytes, scope: str, messages: dict[str, bytes], enums: dict[str, bytes], *, depth: int
) -> None:
    """Collect a message with the messages and enums within it."""
    if depth > MAX_DEPTH:
        raise too_large(f"its messages are nested deeper than {MAX_DEPTH}")
    name = name_within(scope, _name_of(content))
    messages[name] = content
    for number, value in _fields(content):
        if number == 3:
            _collect(_bytes(value), name, messages, enums, depth=depth + 1)
        elif number == 4:
            enums[name_within(name, _name_of(_bytes(value)))] = _bytes(value)


def _is_map_entry(content: bytes) -> bool:
    options = next((_bytes(value) for number, value in _fields(content) if number == 7), b"")
    return any(number == 7 and value for number, value in _fields(options))


def _entry(content: bytes) -> list[Field]:
    """Return the key and the value of a map's entry."""
    return sorted(_message_fields(content, "", {}))


def _message_fields(content: bytes, package: str, entries: dict[str, list[Field]]) -> Iterator[Field]:
    oneofs = [_name_of(_bytes(value)) for number, value in _fields(content) if number == 8]
    for number, value in _fields(content):
        if number == 2:
            yield _field(_bytes(value), package, oneofs, entries)


def _field(content: bytes, package: str, oneofs: list[str], entries: dict[str, list[Field]]) -> Field:
    found = dict(_fields(content))
    kind, label = found.get(5, 0), LABELS.get(int(found.get(4, 0)), "")
    name = TYPES.get(int(kind), "")
    if 6 in found:
        name = _text(found[6]).lstrip(".")
        name = name.removeprefix(f"{package}.") if package else name
    if name in entries:
        key, value = entries[name]
        inner = value.type.removeprefix(f"{package}.") if package else value.type
        name = f"map<{key.type},{inner}>"
    index = found.get(9)
    is_optional = bool(found.get(17))  # proto3's optional has a oneof of its own, which is not in the text
    oneof = oneofs[int(index)] if index is not None and not is_optional and int(index) < len(oneofs) else ""
    return Field(int(found.get(3, 0)), _text(found.get(1, b"")), label, name, oneof)


def _enum(content: bytes) -> dict[int, str]:
    values = (dict(_fields(_bytes(value))) for number, value in _fields(content) if number == 2)
    return {int(each.get(2, 0)): _text(each.get(1, b"")) for each in values}
