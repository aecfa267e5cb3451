"""Builders of messages that let one piece of code serve every version of an API.

`make = response_shapes(api_key, version)`, then `make.MetadataResponseTopic(name=..., topic_id=...)`: fields that this
version does not have are dropped. Fields not given get the schema's default (zero, empty, null). A name that no version
has is a TypeError.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from raftlog.protocol.apis import APIS
from raftlog.protocol.raftlog_fields import with_raftlog_fields
from raftlog.protocol.schema import Direction, message_type, module_of, schema_of


class MessageBuilders:
    """The entities of one message in one version, each as a function of keyword arguments.

    An entity that only other versions have builds None.
    """

    def __init__(self, api_key: int, version: int, direction: Direction) -> None:
        self._api_key, self._version, self._direction = api_key, version, direction

    def __getattr__(self, entity_name: str) -> Any:
        if entity_name.startswith("_"):
            raise AttributeError(entity_name)
        build = _builder(self._api_key, self._version, self._direction, entity_name)
        setattr(self, entity_name, build)
        return build


@cache
def response_builders(api_key: int, version: int) -> MessageBuilders:
    """Return the builders of an API's response."""
    return MessageBuilders(api_key, version, "response")


@cache
def request_builders(api_key: int, version: int) -> MessageBuilders:
    """Return the builders of an API's request."""
    return MessageBuilders(api_key, version, "request")


def build_response(api_key: int, version: int, **fields: Any) -> Any:
    """Build the response message itself from the `fields` that this version has."""
    entity = message_type(api_key, version, "response")
    return getattr(response_builders(api_key, version), entity.__name__)(**fields)


def _builder(api_key: int, version: int, direction: Direction, entity_name: str) -> Any:
    entity = getattr(module_of(api_key, version, direction), entity_name, None)
    if entity is None:
        _refuse_misspelt(api_key, direction, entity_name, frozenset())
        return lambda **_fields: None
    entity = with_raftlog_fields(entity)
    schema = schema_of(entity)
    defaults = {each.name: each.default for each in schema.fields + schema.tagged}

    def build_entity(**fields: Any) -> Any:
        if not fields.keys() <= defaults.keys():
            _refuse_misspelt(api_key, direction, entity_name, frozenset(fields.keys() - defaults.keys()))
            fields = {name: value for name, value in fields.items() if name in defaults}
        return entity(**(defaults | fields))

    return build_entity


@cache
def _refuse_misspelt(api_key: int, direction: Direction, entity_name: str, names: frozenset[str]) -> None:
    """Newer versions are searched first, and only until all names are found: importing them all takes long."""
    missing = set(names)
    entity_is_known = False
    api = APIS[api_key]
    for version in range(api.max_version, api.min_version - 1, -1):
        entity = getattr(module_of(api_key, version, direction), entity_name, None)
        if entity is not None:
            entity_is_known = True
            missing -= {each.name for each in dataclasses.fields(entity)}
            if not missing:
                return
    if not entity_is_known:
        raise AttributeError(f"{api.name} has no {entity_name} in its {direction}")
    raise TypeError(f"no version of {entity_name} has {', '.join(sorted(missing))}")
