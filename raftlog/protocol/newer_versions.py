"""The versions of Apache Kafka 4.4 that kio lacks (`NEWER_VERSIONS`), each derived from the version before.

A row names an entity with other fields. Entities without a row only get the new version.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio.static.primitive import i16, i32


def _field(name: str, of_type: Any, kafka_type: str, **default: Any) -> tuple[str, Any, Any]:
    return name, of_type, dataclasses.field(metadata={"kafka_type": kafka_type}, **default)


_TOPIC_ID: Final = _field("topic_id", UUID | None, "uuid")

_ADDED: Final = {
    "ApiVersionsRequest": (
        _field("cluster_id", str | None, "string", default=None),
        _field("node_id", i32, "int32", default=i32(-1)),
    ),
    "DeletableGroupResult": (_field("error_message", str | None, "string", default=None),),
}
"""Fields at the end of an entity: the broker that the client means (KIP-1242), and why a group is not
deleted (KIP-1331).
"""

_REPLACED: Final = {
    "TxnOffsetCommitRequestTopic": {"name": _TOPIC_ID},
    "TxnOffsetCommitResponseTopic": {"name": _TOPIC_ID},
}
"""Fields in the place of a former field: topics are named by their ids (KIP-1319)."""


def newer_module(former: types.ModuleType, version: int) -> types.ModuleType:
    """Return the entities of a message in `version`, from kio's module of the version before."""
    module = types.ModuleType(f"{former.__name__} in version {version}")
    made: dict[Any, Any] = {}
    for name, entity in vars(former).items():
        if dataclasses.is_dataclass(entity) and entity.__module__ == former.__name__:
            made[entity] = _newer(entity, version, made)
            setattr(module, name, made[entity])
    return module


def _newer(entity: Any, version: int, made: dict[Any, Any]) -> Any:
    kept = ("__type__", "__flexible__", "__api_key__", "__header_schema__")
    namespace = {**{each: getattr(entity, each) for each in kept}, "__version__": i16(version)}
    return dataclasses.make_dataclass(
        entity.__name__, _fields(entity, made), namespace=namespace, frozen=True, slots=True, kw_only=True
    )


def _fields(entity: Any, made: dict[Any, Any]) -> Iterator[tuple[str, Any, Any]]:
    replaced = _REPLACED.get(entity.__name__, {})
    for each in dataclasses.fields(entity):
        if each.name in replaced:
            yield replaced[each.name]
            continue
        field = dataclasses.field(default=each.default, metadata=each.metadata)
        yield each.name, _newer_type(each.type, made), field
    yield from _ADDED.get(entity.__name__, ())


def _newer_type(declared: Any, made: dict[Any, Any]) -> Any:
    """Return the type of a field: arrays hold entities of the same version."""
    if get_origin(declared) is not tuple:
        return made.get(declared, declared)
    item, *rest = get_args(declared)
    return tuple[made.get(item, item), *rest]  # type: ignore[misc]
