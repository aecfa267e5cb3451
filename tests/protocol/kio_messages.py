"""Hypothesis strategies for kio messages of any version, and kio's own codec as the yardstick."""

from __future__ import annotations

import datetime
import io
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS
from raftlog.protocol.schema import Field, message_type, schema_of, to_wire

_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


def built_versions(direction: str) -> list[tuple[int, int, str]]:
    """Every served API in every version that kio knows."""
    return [
        (key, version, direction)
        for key in sorted(served())
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]


def every_version(direction: str) -> list[tuple[int, int, str]]:
    """Every API of the schema in every version."""
    return [
        (key, version, direction)
        for key in APIS
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]


def messages(api_key: int, version: int, direction: str) -> st.SearchStrategy[Any]:
    """Valid messages of one version, as kio wants them."""
    return entities(message_type(api_key, version, direction))


def entities(entity: type[Any]) -> st.SearchStrategy[Any]:
    schema = schema_of(entity)
    return st.builds(entity, **{each.name: _values(each) for each in schema.fields + schema.tagged})


def _values(field: Field) -> st.SearchStrategy[Any]:
    if field.is_array:
        items = entities(field.entity) if field.entity else _scalars(field.kind)
        values: st.SearchStrategy[Any] = st.lists(items, max_size=2).map(tuple)
    else:
        values = entities(field.entity) if field.entity else _scalars(field.kind)
    null_is_said_by_absence = field.tag is not None and field.default is None
    return st.none() | values if field.is_nullable and not null_is_said_by_absence else values


def _scalars(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind.startswith("timedelta"):
        return st.integers(0, 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms))
    if kind == "datetime_i64":
        return st.integers(0, 2**31).map(lambda s: _EPOCH + datetime.timedelta(seconds=s))
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False, allow_infinity=False),
        "string": st.text(max_size=6),
        "bytes": st.binary(max_size=6),
        "records": st.binary(max_size=6).map(Records),
        "uuid": st.integers(1, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
        "error_code": st.sampled_from(ErrorCode),
    }[kind]


def kio_encode(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def kio_decode(entity: type[Any], data: bytes) -> Any:
    message, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    return message


def plain(message: Any) -> Any:
    """A message as tuples of (field, wire value), for comparing."""
    if not is_dataclass(message):
        return message
    kinds = {
        each.name: each.kind for each in schema_of(type(message)).fields + schema_of(type(message)).tagged
    }
    result = []
    for each in fields(message):
        value = getattr(message, each.name)
        if isinstance(value, tuple):
            value = tuple(map(plain, value))
        result.append((each.name, to_wire(kinds[each.name], plain(value))))
    return tuple(result)
