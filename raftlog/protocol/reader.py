"""Bytes of a message → kio dataclass with plain ints, built once per entity from its schema.

kio's own reader is not used for what comes from the network: it reserves memory by declared array lengths,
aborts the process when that fails, and refuses tagged fields that it does not know. Law: nothing is allocated
for an element before its bytes were seen, and what a message may cost in objects is bounded by its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.schema import FIXED, Field, KioType, schema_of

OBJECT_BYTES_PER_RECEIVED_BYTE: Final = 8
"""What decoded objects may take for each byte received, above the allowance that every message has."""

ALLOWANCE_BYTES: Final = 1 << 20
CEILING_BYTES: Final = 64 << 20
"""What the objects of any one message may take, so that decoding never holds up the loop for long."""

_OBJECT_BYTES: Final = 64
"""What one decoded value or object takes, about."""

_BEYOND_VARINT: Final = 35
_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")


class Cursor:
    """A position in a message, and what its objects may still cost in bytes."""

    __slots__ = ("budget_bytes", "buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        received = self.end - position
        self.budget_bytes = min(ALLOWANCE_BYTES + OBJECT_BYTES_PER_RECEIVED_BYTE * received, CEILING_BYTES)

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raises InvalidRequest if they are not there."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise InvalidRequest(f"{size} bytes declared where {self.end - start} are left")
        self.position = start + size
        return self.buffer[start : start + size]

    def spend(self, count: int, cost: int) -> None:
        """Note `count` objects of `cost` bytes. Raises InvalidRequest when the message costs too much."""
        self.budget_bytes -= count * cost
        if self.budget_bytes < 0:
            raise InvalidRequest("the message has more elements than its size allows")

    def varint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        buffer, position = self.buffer, self.position
        value = shift = 0
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift == _BEYOND_VARINT:
                raise InvalidRequest("a varint is longer than five bytes")
        self.position = position
        return value


Read = Callable[[Cursor], Any]


def read_message(entity: KioType, buffer: memoryview, position: int, *, is_asked_for: bool = False) -> Any:
    """Decode a message. Raises InvalidRequest, saying what is wrong with it.

    `is_asked_for`: an answer to a question of ours. One of very many small parts may cost what any message may.
    Bytes behind it are ignored, as Kafka does: librdkafka 2.16 leaves three when it asks for all topics.
    """
    cursor = Cursor(buffer, position)
    if is_asked_for:
        cursor.budget_bytes = CEILING_BYTES
    try:
        return entity_reader(entity)(cursor)
    except (IndexError, struct.error):
        raise InvalidRequest(f"{entity.__name__} is cut off") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{entity.__name__} has a string that is not UTF-8") from None


@cache
def entity_reader(entity: KioType) -> Read:
    """Return the function that reads one entity."""
    schema = schema_of(entity)
    steps = _steps(schema.fields, schema.is_flexible)
    tagged = {
        each.tag: (each.name, _field_reader(each, flexible=True, tagged=True)) for each in schema.tagged
    }
    defaults = {each.name: each.default for each in schema.tagged}
    cost = _OBJECT_BYTES + 8 * (len(schema.fields) + len(schema.tagged))
    is_flexible = schema.is_flexible

    def read(cursor: Cursor) -> Any:
        cursor.spend(1, cost)
        values = dict(defaults)
        for step in steps:
            step(cursor, values)
        if is_flexible:
            _read_tagged(cursor, tagged, values)
        return entity(**values)

    return read


Step = Callable[[Cursor, dict[str, Any]], None]


def _steps(fields: tuple[Field, ...], flexible: bool) -> list[Step]:
    """Neighbouring fixed-width fields are read as one struct."""
    steps: list[Step] = []
    run: list[Field] = []
    for field in fields:
        if field.kind in FIXED and not field.is_array:
            run.append(field)
            continue
        if run:
            steps.append(_run_step(run))
            run = []
        steps.append(_field_step(field, flexible))
    if run:
        steps.append(_run_step(run))
    return steps


def _run_step(run: list[Field]) -> Step:
    layout = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
    names = tuple(field.name for field in run)
    cost = 32 * len(run)

    def read(cursor: Cursor, values: dict[str, Any]) -> None:
        found = layout.unpack_from(cursor.buffer, cursor.position)
        cursor.position += layout.size
        cursor.spend(1, cost)
        values.update(zip(names, found, strict=True))

    return read


def _field_step(field: Field, flexible: bool) -> Step:
    name = field.name
    read_value = _field_reader(field, flexible=flexible, tagged=False)

    def read(cursor: Cursor, values: dict[str, Any]) -> None:
        values[name] = read_value(cursor)

    return read


def _field_reader(field: Field, *, flexible: bool, tagged: bool) -> Read:
    if field.is_array:
        return _array_reader(field, flexible)
    if field.kind == "entity":
        assert field.entity is not None
        read_entity = entity_reader(field.entity)
        return _nullable_entity_reader(read_entity) if field.is_nullable and not tagged else read_entity
    return _value_reader(field.kind, flexible=flexible, nullable=field.is_nullable)


def _nullable_entity_reader(read_entity: Read) -> Read:
    """KIP-893: an i8 in front says whether the struct is there."""

    def read(cursor: Cursor) -> Any:
        return read_entity(cursor) if cursor.take(1)[0] < 0x80 else None

    return read


def _value_reader(kind: str, *, flexible: bool, nullable: bool) -> Read:
    if kind in FIXED:
        return _fixed_reader(FIXED[kind])
    if kind == "uuid":
        return _read_uuid
    length = _length_reader(flexible, wide=kind != "string")
    convert: Callable[[memoryview], Any] = _to_str if kind == "string" else bytes

    def read(cursor: Cursor) -> Any:
        size = length(cursor)
        if size < 0:
            return _null(nullable)
        cursor.spend(1, _OBJECT_BYTES + size)
        return convert(cursor.take(size))

    return read


def _fixed_reader(code: str) -> Read:
    layout = struct.Struct(">" + code)

    def read(cursor: Cursor) -> Any:
        (value,) = layout.unpack_from(cursor.buffer, cursor.position)
        cursor.position += layout.size
        return value

    return read


def _read_uuid(cursor: Cursor) -> UUID | None:
    cursor.spend(1, 2 * _OBJECT_BYTES)
    found = bytes(cursor.take(16))
    return UUID(bytes=found) if any(found) else None


def _array_reader(field: Field, flexible: bool) -> Read:
    if field.kind == "int32":
        return _int32_array_reader(flexible, field.is_nullable)
    if field.entity is not None:
        read_item, cost = entity_reader(field.entity), 8
    else:
        read_item = _value_reader(field.kind, flexible=flexible, nullable=False)
        cost = 40
    length = _length_reader(flexible, wide=True)
    nullable = field.is_nullable

    def read(cursor: Cursor) -> Any:
        count = length(cursor)
        if count < 0:
            return _null(nullable)
        if count > cursor.end - cursor.position:  # every element has at least one byte
            raise InvalidRequest(f"{count} elements declared in {cursor.end - cursor.position} bytes")
        cursor.spend(count, cost)
        return tuple([read_item(cursor) for _ in range(count)])

    return read


def _int32_array_reader(flexible: bool, nullable: bool) -> Read:
    length = _length_reader(flexible, wide=True)

    def read(cursor: Cursor) -> Any:
        count = length(cursor)
        if count < 0:
            return _null(nullable)
        data = cursor.take(4 * count)
        cursor.spend(count, 40)
        return struct.unpack(f">{count}i", data)

    return read


def _length_reader(flexible: bool, *, wide: bool) -> Callable[[Cursor], int]:
    if flexible:
        return lambda cursor: cursor.varint() - 1
    layout = _i32 if wide else _i16

    def read(cursor: Cursor) -> int:
        length: int = layout.unpack_from(cursor.buffer, cursor.position)[0]
        cursor.position += layout.size
        if length < -1:
            raise InvalidRequest(f"length {length} is negative")
        return length

    return read


def _null(nullable: bool) -> None:
    if not nullable:
        raise InvalidRequest("null where the schema wants a value")


def _to_str(data: memoryview) -> str:
    return str(data, "utf-8")


def _read_tagged(cursor: Cursor, tagged: dict[int | None, tuple[str, Read]], values: dict[str, Any]) -> None:
    for _ in range(cursor.varint()):
        tag = cursor.varint()
        size = cursor.varint()
        known = tagged.get(tag)
        if known is None:
            cursor.take(size)
            continue
        end = cursor.position + size
        values[known[0]] = known[1](cursor)
        if cursor.position != end:
            raise InvalidRequest(f"tagged field {known[0]} does not fill its {size} bytes")
