"""Kafka's schemas as a grammar: for each message a function that writes a request's bytes, drawing every value.

Lengths pass through one place, which can falsify one of them. Written for speed: tens of thousands a second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Final

from raftlog.protocol.apis import APIS, is_flexible
from raftlog.protocol.reader import entity_reader
from raftlog.protocol.schema import FIXED, Field, KioType, message_type, schema_of
from raftlog.protocol.writer import entity_writer, write_varint
from raftlog_chaos.fuzz.batches import draw_records
from raftlog_chaos.fuzz.draw import NO_LIE, Draw

Write = Callable[[bytearray, Draw], None]

_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
NULL: Final = -1


def draw_request(draw: Draw, api_key: int, version: int, correlation_id: int) -> bytearray:
    """Return the frame of a request, its length in front."""
    out = bytearray(_LENGTH.size)
    out += _HEADER.pack(api_key, version, correlation_id, 4)
    out += b"fuzz"
    if is_flexible(api_key, version):
        _write_tags(out, draw)
    body_writer(api_key, version)(out, draw)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return out


@cache
def body_writer(api_key: int, version: int) -> Write:
    """Return the function that draws the body of a request."""
    return _entity_writer(message_type(api_key, version, "request"))


VERSIONS: Final = tuple(
    (api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
)
"""Every API and version that has a schema."""


def load_schemas() -> None:
    """Load all schemas, so that no frame pays for loading on first use."""
    for key, version in VERSIONS:
        body_writer(key, version)
        entity_reader(message_type(key, version, "request"))
        entity_writer(message_type(key, version, "response"))


@cache
def _entity_writer(entity: KioType) -> Write:
    schema = schema_of(entity)
    flexible = schema.is_flexible
    steps = tuple(_field_writer(each, flexible) for each in schema.fields)
    tagged = tuple((each.tag or 0, _field_writer(each, True)) for each in schema.tagged)

    def write(out: bytearray, draw: Draw) -> None:
        for step in steps:
            step(out, draw)
        if flexible:
            _write_tagged(out, draw, tagged)

    return write


def _write_tags(out: bytearray, draw: Draw) -> None:
    _write_tagged(out, draw, ())


def _write_tagged(out: bytearray, draw: Draw, tagged: tuple[tuple[int, Write], ...]) -> None:
    chance = draw.random()
    if chance < 0.9 and draw.lie_in == NO_LIE and not (tagged and chance < 0.5):
        out.append(0)
        return
    fields = []
    for tag, write in tagged:
        if draw.random() < 0.7:
            data = bytearray()
            write(data, draw)
            fields.append((tag, data))
    if chance > 0.96:  # unknown tags, also repeated, and in any order
        fields += [(draw.pick((7, 7, 99, 10_000, 2**31)), bytearray(draw.pick((b"", b"abc"))))] * draw.pick(
            (1, 2, 9)
        )
    _write_length(
        out, len(fields) - 1, draw, flexible=True, wide=True
    )  # it is no compact length: no 1 is added
    for tag, data in fields:
        write_varint(out, tag)
        _write_length(out, len(data) - 1, draw, flexible=True, wide=True)
        out += data


def _write_length(out: bytearray, length: int, draw: Draw, *, flexible: bool, wide: bool) -> None:
    if draw.lie_in != NO_LIE:
        draw.lie_in -= 1
        if draw.lie_in == NO_LIE:
            length = draw.pick(
                (length + 1, length - 1, 0, -1, -2, 127, 32767, 2**31 - 1, length * 100 + 5, -(2**31))
            )
    if flexible:
        write_varint(out, (length + 1) & 0xFFFFFFFF)
    elif wide:
        out += _i32.pack(max(-(2**31), min(length, 2**31 - 1)))
    else:
        out += _i16.pack(max(-(2**15), min(length, 2**15 - 1)))


def _field_writer(field: Field, flexible: bool) -> Write:
    if field.is_array:
        return _array_writer(field, flexible)
    return _value_writer(field, flexible, nullable=field.is_nullable)


def _array_writer(field: Field, flexible: bool) -> Write:
    item = _value_writer(field, flexible, nullable=False)
    nullable = field.is_nullable

    def write(out: bytearray, draw: Draw) -> None:
        if nullable and draw.random() < 0.2:
            _write_length(out, NULL, draw, flexible=flexible, wide=True)
            return
        count = draw.count()
        _write_length(out, count, draw, flexible=flexible, wide=True)
        if count and draw.random() < 0.1:  # the same element again and again
            one = bytearray()
            item(one, draw)
            out += one * count
            return
        for _ in range(count):
            item(out, draw)

    return write


def _value_writer(field: Field, flexible: bool, *, nullable: bool) -> Write:
    if field.entity is not None:
        write_entity = _entity_writer(field.entity)
        return _nullable_entity(write_entity) if nullable and field.tag is None else write_entity
    if field.kind in FIXED:
        return _fixed_writer(field.name, FIXED[field.kind])
    if field.kind == "uuid":
        return _write_uuid
    if field.kind == "string":
        return _string_writer(field.name, flexible, nullable)
    return _bytes_writer(field.kind, flexible, nullable)


def _nullable_entity(write_entity: Write) -> Write:
    def write(out: bytearray, draw: Draw) -> None:
        if draw.random() < 0.5:
            out.append(0xFF)
            return
        out.append(1)
        write_entity(out, draw)

    return write


def _fixed_writer(name: str, code: str) -> Write:
    if code == "d":
        pack_double = struct.Struct(">d").pack
        return lambda out, draw: out.extend(
            pack_double(draw.pick((0.0, 1.5, -1.0, float("nan"), float("inf"))))
        )
    if code == "?":
        return lambda out, draw: out.append(draw.integer(name, "?") & 0xFF)
    pack = struct.Struct(">" + code).pack

    def write(out: bytearray, draw: Draw) -> None:
        out += pack(draw.integer(name, code))

    return write


def _write_uuid(out: bytearray, draw: Draw) -> None:
    out += draw.uuid()


def _string_writer(name: str, flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, draw: Draw) -> None:
        if nullable and draw.random() < 0.3:
            _write_length(out, NULL, draw, flexible=flexible, wide=False)
            return
        data = draw.text(name).encode("utf-8", "surrogatepass")
        if not flexible:
            data = data[:32767]
        _write_length(out, len(data), draw, flexible=flexible, wide=False)
        out += data

    return write


def _bytes_writer(kind: str, flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, draw: Draw) -> None:
        if nullable and draw.random() < 0.1:
            _write_length(out, NULL, draw, flexible=flexible, wide=True)
            return
        if kind == "records":
            data = draw_records(draw) if draw.batch is None else draw.batch
        else:
            data = draw.data()
        _write_length(out, len(data), draw, flexible=flexible, wide=True)
        out += data

    return write
