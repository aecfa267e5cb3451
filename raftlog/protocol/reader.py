"""Bytes of a message → kio dataclass with plain ints, built once per entity from its schema.

kio's own reader is not fit for bytes from the network. It reserves memory by declared array lengths, aborts the process
if that fails, and refuses unknown tagged fields. Law: an element is allocated only after its bytes were seen, and a
message's size limits the memory of its objects.

A message is read at once (`read_message`). If it may have very many elements, it is read piece by piece
(`read_message_incrementally`), so that the caller can yield between two pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.schema import FIXED, Field, KioType, Schema, schema_of

OBJECT_BYTES_PER_RECEIVED_BYTE: Final = 16
"""The bytes of decoded objects for each byte received, beyond every message's allowance. A partition of
ShareAcknowledge with one acknowledgement takes 13.
"""

BASE_OBJECT_BYTES: Final = 1 << 20
MAX_OBJECT_BYTES: Final = 64 << 20
"""The bytes of the objects of any one message at most, so that decoding never blocks the loop for long."""

STRING_MAX_BYTES: Final = 32_767
"""The longest string of the protocol in any version, although the wire's length could express more."""

TAGS_MAX: Final = 64
"""Tagged fields of one entity or header; the protocol has three at most."""

NO_LIMIT: Final = 1 << 62

_OBJECT_BYTES: Final = 64
"""The bytes of one decoded value or object, about."""

_BEYOND_VARINT: Final = 35
_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")


class TooManyElements(InvalidRequest):
    """The message has more elements than the caller allows, or more objects than its size allows."""


class Cursor:
    """A position in a message, the bytes left for its objects, and the array elements left."""

    __slots__ = ("budget_bytes", "buffer", "end", "parts_left", "parts_max", "position")

    def __init__(self, buffer: memoryview, position: int, *, parts_max: int = NO_LIMIT) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.parts_left = self.parts_max = parts_max
        received = self.end - position
        self.budget_bytes = min(
            BASE_OBJECT_BYTES + OBJECT_BYTES_PER_RECEIVED_BYTE * received, MAX_OBJECT_BYTES
        )

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raise InvalidRequest at the end."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise InvalidRequest(f"{size} bytes are declared, but {self.end - start} are left")
        self.position = start + size
        return self.buffer[start : start + size]

    def charge(self, count: int, cost: int) -> None:
        """Charge `count` objects of `cost` bytes. Raise TooManyElements if the message exceeds its limit."""
        self.budget_bytes -= count * cost
        if self.budget_bytes < 0:
            raise TooManyElements("the message has more elements than its size allows")

    def begin_array(self, count: int, cost: int) -> None:
        """Charge an array of `count` elements of `cost` bytes each, which take at least a byte of the message each."""
        if count > self.end - self.position:
            raise InvalidRequest(
                f"{count} elements are declared, but {self.end - self.position} bytes are left"
            )
        self.parts_left -= count
        if self.parts_left < 0:
            raise TooManyElements(f"all arrays of a request have at most {self.parts_max} elements together")
        self.charge(count, cost)

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

IncrementalRead = Generator[None, None, Any]
"""Yields after each piece, and returns what was read."""

IncrementalReader = Callable[[Cursor], IncrementalRead]


def read_message(
    entity: KioType,
    buffer: memoryview,
    position: int,
    *,
    is_asked_for: bool = False,
    parts_max: int = NO_LIMIT,
) -> Any:
    """Decode a message. Raise InvalidRequest with the reason.

    `is_asked_for`: a response to our request. With very many small parts it may cost as much as any message.
    `parts_max`: raise TooManyElements for more elements of all arrays together. Bytes behind it are ignored, as Kafka
    does: librdkafka 2.16 leaves three when it asks for all topics.
    """
    cursor = _cursor(buffer, position, is_asked_for, parts_max)
    try:
        return entity_reader(entity)(cursor)
    except _FAULTS as error:
        raise _described(error, entity) from None


def read_message_incrementally(
    entity: KioType,
    buffer: memoryview,
    position: int,
    *,
    is_asked_for: bool = False,
    parts_max: int = NO_LIMIT,
) -> IncrementalRead:
    """Decode a message as `read_message` does, and stop after each element of its arrays.

    An element without an array of entities or strings is one piece. So are a nullable entity, tagged fields and an
    array of numbers.
    """
    cursor = _cursor(buffer, position, is_asked_for, parts_max)
    try:
        return (yield from incremental_entity_reader(entity)(cursor))
    except _FAULTS as error:
        raise _described(error, entity) from None


def _cursor(buffer: memoryview, position: int, is_asked_for: bool, parts_max: int) -> Cursor:
    cursor = Cursor(buffer, position, parts_max=parts_max)
    if is_asked_for:
        cursor.budget_bytes = MAX_OBJECT_BYTES
    return cursor


_FAULTS: Final = (IndexError, struct.error, UnicodeDecodeError)


def _described(error: Exception, entity: KioType) -> InvalidRequest:
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest(f"{entity.__name__} has a string that is not UTF-8")
    return InvalidRequest(f"{entity.__name__} is cut off")


@cache
def incremental_entity_reader(entity: KioType) -> IncrementalReader:
    """Return the function that reads like `entity_reader`, piece by piece."""
    schema = schema_of(entity)
    if not any(map(_has_pieces, schema.fields)):
        return _as_one_piece(entity_reader(entity))
    steps: list[tuple[str | None, Any]] = []
    for has_pieces, fields in groupby(schema.fields, _has_pieces):
        if has_pieces:
            steps += [(field.name, _array_pieces(field, schema.is_flexible)) for field in fields]
        else:
            steps += [(None, step) for step in _steps(tuple(fields), schema.is_flexible)]
    cost, defaults, read_end = _costs_of(schema), _defaults_of(schema), _end_reader(schema)

    def read(cursor: Cursor) -> IncrementalRead:
        cursor.charge(1, cost)
        values = dict(defaults)
        for name, step in steps:
            if name is None:
                step(cursor, values)
            else:
                values[name] = yield from step(cursor)
        read_end(cursor, values)
        return entity(**values)

    return read


def _has_pieces(field: Field) -> bool:
    return field.is_array and (field.entity is not None or field.kind == "string")


def _as_one_piece(read_whole: Read) -> IncrementalReader:
    def read(cursor: Cursor) -> IncrementalRead:
        found = read_whole(cursor)
        yield
        return found

    return read


def _array_pieces(field: Field, flexible: bool) -> IncrementalReader:
    begin = _array_beginning(field, flexible)
    if field.entity is not None and any(map(_has_pieces, schema_of(field.entity).fields)):
        read_parts = incremental_entity_reader(field.entity)

        def read(cursor: Cursor) -> IncrementalRead:
            count = begin(cursor)
            if count is None:
                return None
            found = []
            for _ in range(count):
                found.append((yield from read_parts(cursor)))
                yield
            return tuple(found)

        return read
    read_item = _item_reader(field, flexible)

    def read_simple(cursor: Cursor) -> IncrementalRead:
        count = begin(cursor)
        if count is None:
            return None
        found = []
        for _ in range(count):
            found.append(read_item(cursor))
            yield
        return tuple(found)

    return read_simple


@cache
def entity_reader(entity: KioType) -> Read:
    """Return the function that reads one entity."""
    schema = schema_of(entity)
    steps = _steps(schema.fields, schema.is_flexible)
    cost, defaults, read_end = _costs_of(schema), _defaults_of(schema), _end_reader(schema)

    def read(cursor: Cursor) -> Any:
        cursor.charge(1, cost)
        values = dict(defaults)
        for step in steps:
            step(cursor, values)
        read_end(cursor, values)
        return entity(**values)

    return read


def _costs_of(schema: Schema) -> int:
    """Return the bytes of an entity's object with its fields of fixed width."""
    fixed = sum(map(_is_fixed, schema.fields))
    return _OBJECT_BYTES + 8 * (len(schema.fields) + len(schema.tagged)) + 32 * fixed


def _is_fixed(field: Field) -> bool:
    return field.kind in FIXED and not field.is_array


def _defaults_of(schema: Schema) -> dict[str, Any]:
    return {each.name: each.default for each in schema.tagged}


def _end_reader(schema: Schema) -> Step:
    """Read the tagged fields after an entity's ordinary fields."""
    if not schema.is_flexible:
        return lambda cursor, values: None
    tagged = {
        each.tag: (each.name, _field_reader(each, flexible=True, tagged=True)) for each in schema.tagged
    }

    def read(cursor: Cursor, values: dict[str, Any]) -> None:
        if cursor.buffer[cursor.position]:
            _read_tagged(cursor, tagged, values)
        else:
            cursor.position += 1

    return read


Step = Callable[[Cursor, dict[str, Any]], None]


def _steps(fields: tuple[Field, ...], flexible: bool) -> list[Step]:
    """Neighbouring fixed-width fields are read as one struct."""
    steps: list[Step] = []
    run: list[Field] = []
    for field in fields:
        if _is_fixed(field):
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

    def read(cursor: Cursor, values: dict[str, Any]) -> None:
        found = layout.unpack_from(cursor.buffer, cursor.position)
        cursor.position += layout.size
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
    """KIP-893: a leading i8 says whether the struct is present."""

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
    most = STRING_MAX_BYTES if kind == "string" else NO_LIMIT

    def read(cursor: Cursor) -> Any:
        size = length(cursor)
        if size < 0:
            return _null(nullable)
        if size > most:
            raise InvalidRequest(f"a string has {size} bytes, more than {STRING_MAX_BYTES}")
        cursor.charge(1, _OBJECT_BYTES + size)
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
    cursor.charge(1, 2 * _OBJECT_BYTES)
    found = bytes(cursor.take(16))
    return UUID(bytes=found) if any(found) else None


def _array_reader(field: Field, flexible: bool) -> Read:
    begin = _array_beginning(field, flexible)
    if field.kind == "int32":

        def read_numbers(cursor: Cursor) -> Any:
            count = begin(cursor)
            return None if count is None else struct.unpack(f">{count}i", cursor.take(4 * count))

        return read_numbers
    read_item = _item_reader(field, flexible)

    def read(cursor: Cursor) -> Any:
        count = begin(cursor)
        return None if count is None else tuple([read_item(cursor) for _ in range(count)])

    return read


def _array_beginning(field: Field, flexible: bool) -> Callable[[Cursor], int | None]:
    """Return the function that reads an array's length, None for null."""
    length = _length_reader(flexible, wide=True)
    nullable, cost = field.is_nullable, 40 if field.entity is None else 8

    def read(cursor: Cursor) -> int | None:
        count = length(cursor)
        if count < 0:
            _null(nullable)
            return None
        cursor.begin_array(count, cost)
        return count

    return read


def _item_reader(field: Field, flexible: bool) -> Read:
    if field.entity is not None:
        return entity_reader(field.entity)
    return _value_reader(field.kind, flexible=flexible, nullable=False)


def _length_reader(flexible: bool, *, wide: bool) -> Callable[[Cursor], int]:
    if flexible:
        return _read_compact_length
    layout = _i32 if wide else _i16

    def read(cursor: Cursor) -> int:
        length: int = layout.unpack_from(cursor.buffer, cursor.position)[0]
        cursor.position += layout.size
        if length < -1:
            raise InvalidRequest(f"length {length} is negative")
        return length

    return read


def _read_compact_length(cursor: Cursor) -> int:
    length = cursor.buffer[cursor.position]
    if length > 0x7F:
        return cursor.varint() - 1
    cursor.position += 1
    return length - 1


def _null(nullable: bool) -> None:
    if not nullable:
        raise InvalidRequest("null for a field that is not nullable")


def _to_str(data: memoryview) -> str:
    return str(data, "utf-8")


def read_tag_count(cursor: Cursor) -> int:
    """Return how many tagged fields follow. Raise InvalidRequest for very many: each takes time, known or not."""
    count = cursor.varint()
    if count > TAGS_MAX:
        raise InvalidRequest(f"{count} tagged fields in one place, more than {TAGS_MAX}")
    cursor.charge(count, _OBJECT_BYTES)
    return count


def _read_tagged(cursor: Cursor, tagged: dict[int | None, tuple[str, Read]], values: dict[str, Any]) -> None:
    for _ in range(read_tag_count(cursor)):
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
