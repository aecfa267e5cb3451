"""Kafka's message schemas, derived from kio's dataclasses, for building readers and writers.

kio modules are imported when first asked for, one API version at a time, since importing all takes seconds.
Values here are the wire's: durations and timestamps are ints of milliseconds, error codes are ints.
"""

from __future__ import annotations

import dataclasses
import datetime
import threading
import types
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from raftlog.protocol.apis import APIS, NEWER_VERSIONS
from raftlog.protocol.raftlog_fields import with_raftlog_fields

Direction = Literal["request", "response"]

KioType = Any
"""A kio dataclass. (mypy does not consider `type[Any]` hashable, which caches require.)"""

FIXED: Final[dict[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Fixed-width kinds and their struct codes."""

_ZERO: Final[dict[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
}


class Field(NamedTuple):
    """One field of an entity. `kind` is a wire type or "entity"; `tag` None means an ordinary field.

    `default` is omitted on the wire for a tagged field, and filled in by `message_builders`.
    """

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    entity: KioType | None
    tag: int | None
    default: Any


class Schema(NamedTuple):
    """An entity: its kio class, ordinary fields in wire order, and tagged fields by tag."""

    entity: KioType
    is_flexible: bool
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]


_importing = threading.Lock()
"""kio's packages import their modules, and we its modules, so two threads could deadlock: CPython detects that, and
fails one import.
"""


@cache
def message_type(api_key: int, version: int, direction: Direction) -> KioType:
    """Return kio's class of a whole message. Raise KeyError for an API or version without schema."""
    api = APIS[api_key]
    if not api.handles(version):
        raise KeyError(f"{api.name} has no version {version}")
    module = module_of(api_key, version, direction)
    return with_raftlog_fields(
        next(each for each in vars(module).values() if _entity_role(each) == direction)
    )


def module_of(api_key: int, version: int, direction: Direction) -> types.ModuleType:
    """Import kio's module of one message, or make one of a version that kio lacks; any thread may."""
    if (api_key, version) in NEWER_VERSIONS:
        return _newer_module(api_key, version, direction)
    with _importing:
        return import_module(f"kio.schema.{APIS[api_key].name}.v{version}.{direction}")


@cache
def _newer_module(api_key: int, version: int, direction: Direction) -> types.ModuleType:
    from raftlog.protocol.newer_versions import newer_module  # most clients ask for older versions

    return newer_module(module_of(api_key, version - 1, direction), version)


def _entity_role(candidate: object) -> str | None:
    role = getattr(candidate, "__type__", None)
    return role.name if isinstance(role, Enum) else None


@cache
def schema_of(entity: KioType) -> Schema:
    """Return the schema of a kio dataclass."""
    fields = [_field(each) for each in dataclasses.fields(entity)]
    return Schema(
        entity,
        bool(entity.__flexible__),
        tuple(each for each in fields if each.tag is None),
        tuple(sorted((each for each in fields if each.tag is not None), key=lambda each: each.tag or 0)),
    )


def _field(field: dataclasses.Field[Any]) -> Field:
    declared, is_nullable = _without_none(field.type)
    is_array = get_origin(declared) is tuple
    if is_array:
        declared, _ = _without_none(get_args(declared)[0])
    is_entity = dataclasses.is_dataclass(declared)
    kind = "entity" if is_entity else field.metadata["kafka_type"]
    if kind == "uuid":
        is_nullable = is_nullable and is_array  # a null uuid is the zero uuid on the wire
    entity = declared if is_entity else None
    default = _default(field, kind=kind, is_array=is_array, entity=entity)
    return Field(field.name, kind, is_array, is_nullable, entity, field.metadata.get("tag"), default)


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) is types.UnionType:
        inner = [each for each in get_args(declared) if each is not type(None)]
        assert len(inner) == 1, declared
        return inner[0], True
    return declared, False


def _default(field: dataclasses.Field[Any], *, kind: str, is_array: bool, entity: KioType | None) -> Any:
    if field.default is not dataclasses.MISSING:
        return to_wire(kind, field.default)
    if is_array:
        return ()
    if entity is not None:
        schema = schema_of(entity)
        return entity(**{each.name: each.default for each in schema.fields + schema.tagged})
    return _ZERO.get(kind, 0)


_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def to_wire(kind: str, value: Any) -> Any:
    """Return milliseconds for a duration or timestamp (-1 if missing), any other value unchanged."""
    if isinstance(value, datetime.timedelta):
        return round(value / _MILLISECOND)
    if isinstance(value, datetime.datetime):
        return round((value - _EPOCH) / _MILLISECOND)
    if value is None and kind == "datetime_i64":
        return -1
    return value
