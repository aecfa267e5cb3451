"""kio dataclass (or anything with the same attributes) → bytes, built once per entity from its schema.

Ints of milliseconds and kio's own duration, timestamp and error objects are both accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

from raftlog.protocol.schema import FIXED, Field, KioType, Schema, schema_of, to_wire

Write = Callable[[bytearray, Any], None]
"""Append one value to the output."""

IncrementalWriter = Callable[[bytearray, Any], Iterator[None]]
"""Append one value to the output, stopping at each piece."""

_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")
_TIMES = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})


class PreEncoded(bytes):
    """An encoded entity or message, accepted in place of the object."""


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@cache
def entity_writer(entity: KioType) -> Write:
    """Return the function that writes one entity."""
    schema = schema_of(entity)
    steps = _steps(schema.fields, schema.is_flexible)
    tagged = _tagged(schema)
    if not schema.is_flexible:

        def write_plain(out: bytearray, message: Any) -> None:
            if type(message) is PreEncoded:
                out += message
                return
            for step in steps:
                step(out, message)

        return write_plain

    def write(out: bytearray, message: Any) -> None:
        if type(message) is PreEncoded:
            out += message
            return
        for step in steps:
            step(out, message)
        if tagged:
            _write_tagged(out, message, tagged)
        else:
            out.append(0)

    return write


@cache
def incremental_entity_writer(entity: KioType) -> IncrementalWriter:
    """Return the function that writes the same bytes as `entity_writer`, and stops after each entity in an array.

    So a message of any size can be written in small steps. An entity without arrays of entities is one piece, however
    many strings it has; so is a nullable entity.
    """
    schema = schema_of(entity)
    steps: list[tuple[bool, Any]] = []
    for has_pieces, fields in groupby(schema.fields, _has_pieces):
        if has_pieces:
            steps += [(True, _field_pieces(field, schema.is_flexible)) for field in fields]
        else:
            steps += [(False, step) for step in _steps(tuple(fields), schema.is_flexible)]
    write_end = _end_writer(schema)

    def write(out: bytearray, message: Any) -> Iterator[None]:
        if type(message) is PreEncoded:
            out += message
            yield
            return
        for has_pieces, step in steps:
            if has_pieces:
                yield from step(out, message)
            else:
                step(out, message)
        write_end(out, message)
        yield

    return write


def _has_pieces(field: Field) -> bool:
    """Return whether a field may hold very many entities: in an array, or in an entity with an array."""
    if field.entity is None or (field.is_nullable and not field.is_array):
        return False
    return field.is_array or any(map(_has_pieces, schema_of(field.entity).fields))


def _field_pieces(field: Field, flexible: bool) -> IncrementalWriter:
    assert field.entity is not None
    get, nullable = attrgetter(field.name), field.is_nullable
    write_pieces, write_whole = incremental_entity_writer(field.entity), entity_writer(field.entity)
    if not field.is_array:
        return lambda out, message: write_pieces(out, get(message))
    write_length = _length_writer(flexible, wide=True)
    items_have_pieces = any(map(_has_pieces, schema_of(field.entity).fields))

    def write(out: bytearray, message: Any) -> Iterator[None]:
        items = get(message)
        if items is None:
            assert nullable, "null for an array that is not nullable"
            write_length(out, -1)
            return
        write_length(out, len(items))
        for item in items:
            if items_have_pieces:
                yield from write_pieces(out, item)
            else:
                write_whole(out, item)  # without a generator for each
                yield

    return write


def _end_writer(schema: Schema) -> Write:
    """Write the tagged fields after an entity's ordinary fields."""
    tagged = _tagged(schema)

    def write(out: bytearray, message: Any) -> None:
        if tagged:
            _write_tagged(out, message, tagged)
        elif schema.is_flexible:
            out.append(0)

    return write


Tagged = tuple[int, Callable[[Any], Any], Field, Write]


def _tagged(schema: Schema) -> tuple[Tagged, ...]:
    return tuple((each.tag or 0, attrgetter(each.name), each, _tagged_writer(each)) for each in schema.tagged)


def _write_tagged(out: bytearray, message: Any, tagged: tuple[Tagged, ...]) -> None:
    present: list[tuple[int, bytearray]] = []
    for tag, get, field, write in tagged:
        value = to_wire(field.kind, get(message))
        if value != field.default and (value or not field.is_array):
            data = bytearray()
            write(data, value)
            present.append((tag, data))
    write_varint(out, len(present))
    for tag, data in present:
        write_varint(out, tag)
        write_varint(out, len(data))
        out += data


def _steps(fields: tuple[Field, ...], flexible: bool) -> tuple[Write, ...]:
    """Neighbouring fixed-width fields are written as one struct."""
    steps: list[Write] = []
    run: list[Field] = []
    for field in fields:
        if field.kind in FIXED and field.kind not in _TIMES and not field.is_array:
            run.append(field)
            continue
        if run:
            steps.append(_run_step(run))
            run = []
        steps.append(_field_step(field, flexible))
    if run:
        steps.append(_run_step(run))
    return tuple(steps)


def _run_step(run: list[Field]) -> Write:
    pack = struct.Struct(">" + "".join(FIXED[field.kind] for field in run)).pack
    get = attrgetter(*(field.name for field in run))
    if len(run) == 1:

        def write_one(out: bytearray, message: Any) -> None:
            out += pack(get(message))

        return write_one

    def write(out: bytearray, message: Any) -> None:
        out += pack(*get(message))

    return write


def _field_step(field: Field, flexible: bool) -> Write:
    get = attrgetter(field.name)
    write_value = _field_writer(field, flexible=flexible)

    def write(out: bytearray, message: Any) -> None:
        write_value(out, get(message))

    return write


def _tagged_writer(field: Field) -> Write:
    if field.kind == "entity" and not field.is_array:
        assert field.entity is not None
        return entity_writer(field.entity)
    return _field_writer(field, flexible=True)


def _field_writer(field: Field, *, flexible: bool) -> Write:
    if field.is_array:
        return _array_writer(field, flexible)
    if field.kind == "entity":
        assert field.entity is not None
        write_entity = entity_writer(field.entity)
        return _nullable_entity_writer(write_entity) if field.is_nullable else write_entity
    return _value_writer(field.kind, flexible=flexible, nullable=field.is_nullable)


def _nullable_entity_writer(write_entity: Write) -> Write:
    """KIP-893: a leading i8 says whether the struct is present."""

    def write(out: bytearray, entity: Any) -> None:
        if entity is None:
            out.append(0xFF)
        else:
            out.append(1)
            write_entity(out, entity)

    return write


def _value_writer(kind: str, *, flexible: bool, nullable: bool) -> Write:
    if kind in FIXED:
        return _fixed_writer(kind)
    if kind == "uuid":
        return _write_uuid
    write_length = _length_writer(flexible, wide=kind != "string")

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            assert nullable or kind == "records", "null for a field that is not nullable"
            write_length(out, -1)
            return
        data = value.encode() if isinstance(value, str) else value
        write_length(out, len(data))
        out += data

    return write


def _fixed_writer(kind: str) -> Write:
    pack = struct.Struct(">" + FIXED[kind]).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(to_wire(kind, value))

    return write


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += bytes(16) if value is None else value.bytes


def _array_writer(field: Field, flexible: bool) -> Write:
    write_length = _length_writer(flexible, wide=True)
    if field.kind == "int32":
        return _int32_array_writer(write_length, field.is_nullable)
    write_item = (
        entity_writer(field.entity)
        if field.entity is not None
        else _value_writer(field.kind, flexible=flexible, nullable=False)
    )
    nullable = field.is_nullable

    def write(out: bytearray, items: Any) -> None:
        if items is None:
            assert nullable, "null for an array that is not nullable"
            write_length(out, -1)
            return
        write_length(out, len(items))
        for item in items:
            write_item(out, item)

    return write


def _int32_array_writer(write_length: Callable[[bytearray, int], None], nullable: bool) -> Write:
    def write(out: bytearray, items: Any) -> None:
        if items is None:
            assert nullable, "null for an array that is not nullable"
            write_length(out, -1)
            return
        write_length(out, len(items))
        out += struct.pack(f">{len(items)}i", *items)

    return write


def _write_compact_length(out: bytearray, length: int) -> None:
    if length < 0x7F:
        out.append(length + 1)
    else:
        write_varint(out, length + 1)


def _length_writer(flexible: bool, *, wide: bool) -> Callable[[bytearray, int], None]:
    if flexible:
        return _write_compact_length
    pack = _i32.pack if wide else _i16.pack

    def write(out: bytearray, length: int) -> None:
        out += pack(length)

    return write
