"""Kafka's messages as plain dicts with the field names of kio's schemas, in any version of any API.

A field that is not given has the schema's default. A field that only other versions have is left out, so one table can
ask all versions. Durations are ints of milliseconds, `records` are bytes, and error codes are read as Kafka's names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import ERRORS
from raftlog.protocol.apis import APIS
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import Field, KioType, message_type, schema_of

Message = dict[str, Any]
"""A message: fields by name, nested messages as dicts and lists of dicts."""

_KEYS: Final = {api.name.replace("_", ""): key for key, api in APIS.items()}
_OTHER_NAMES: Final = {"InvalidTopic": "INVALID_TOPIC_EXCEPTION", "Network": "NETWORK_EXCEPTION"}


@cache
def api_key(name: str) -> int:
    """Return the key of an API by its name in Kafka's schemas, such as "ListOffsets". Raises ValueError."""
    found = _KEYS.get(name.lower())
    if found is None:
        raise ValueError(f"Kafka 4.3 has no API {name!r}")
    return found


@cache
def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    if not code:
        return "NONE"
    if code not in ERRORS:
        return f"UNKNOWN({code})"
    name = ERRORS[code].__name__
    return _OTHER_NAMES.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def build_request(key: int, version: int, fields: Mapping[str, Any]) -> Any:
    """Return kio's message of a request. Raises TypeError for a field that no version has."""
    return _build(key, version, entity=message_type(key, version, "request"), fields=fields)


def _build(key: int, version: int, *, entity: KioType, fields: Mapping[str, Any]) -> Any:
    schema = schema_of(entity)
    known = {each.name: each for each in schema.fields + schema.tagged}
    built = {
        name: _build_value(key, version, field=known[name], value=value) if name in known else value
        for name, value in fields.items()
    }
    return getattr(request_builders(key, version), entity.__name__)(**built)


def _build_value(key: int, version: int, *, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        one = field._replace(is_array=False)
        return tuple(_build_value(key, version, field=one, value=each) for each in value)
    if field.entity is not None:
        return _build(key, version, entity=field.entity, fields=value)
    return UUID(value) if field.kind == "uuid" and isinstance(value, str) else value


def as_message(entity: Any, *, omit_defaults: bool = False) -> Message:
    """Return a message as a dict. `omit_defaults` leaves out fields with the schema's default, but no error code."""
    kind: KioType = type(entity)
    schema = schema_of(kind)
    found: Message = {}
    for field in schema.fields + schema.tagged:
        value = getattr(entity, field.name)
        if not omit_defaults or field.kind == "error_code" or value != field.default:
            found[field.name] = _plain(field, value, omit_defaults=omit_defaults)
    return found


def _plain(field: Field, value: Any, *, omit_defaults: bool) -> Any:
    if value is None:
        return None
    if field.is_array:
        one = field._replace(is_array=False)
        return [_plain(one, each, omit_defaults=omit_defaults) for each in value]
    if field.entity is not None:
        return as_message(value, omit_defaults=omit_defaults)
    if field.kind == "error_code":
        return error_name(int(value))
    if field.kind in ("bytes", "records"):
        return bytes(value)
    return str(value) if isinstance(value, UUID) else value
