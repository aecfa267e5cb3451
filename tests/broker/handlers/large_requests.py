"""Requests with very many parts, made from the schemas: each array of each request, filled with one thing or many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.codec import RequestHeader, encode_request, request_type
from raftlog.protocol.schema import Field, KioType, schema_of

REQUEST_BYTES = 2 * 1024 * 1024
TOPIC = "t"
GROUP = "g"
TOPIC_ID = UUID(int=4711)

PLAIN: dict[str, Any] = {
    "acks": 1,
    "client_software_name": "a",
    "client_software_version": "1",
    "consumer_group_id": GROUP,
    "coordinator_key": GROUP,
    "group_id": GROUP,
    "key": GROUP,
    "max_bytes": 1 << 20,
    "member_epoch": 1,
    "member_id": "m",
    "partition_max_bytes": 1000,
    "producer_id": 1,
    "protocol_type": "consumer",
    "rebalance_timeout": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "num_partitions": 1,
    "resource_type": 2,
    "response_partition_limit": 2000,
    "session_timeout": 10_000,
    "timeout": 5_000,
    "transaction_timeout": 10_000,
    "transactional_id": "x",
    "v3_and_below_producer_id": 1,
    "v3_and_below_transactional_id": "x",
    "validate_only": True,
    "version_and_below": 0,
}
"""Values of fields that are not about parts; the others have their schema's default."""

NOT_IN_ALL: dict[int, dict[str, Any]] = {
    ApiKey.FETCH: {"session_epoch": -1, "timeout": 0},
    ApiKey.PRODUCE: {"transactional_id": None},
    ApiKey.CREATE_TOPICS: {"assignments": (), "configs": ()},
    ApiKey.DELETE_TOPICS: {"topic_id": None},
}
"""The exceptions, by API."""


class Case(NamedTuple):
    """One array of a request, by the names that lead to it."""

    api_key: int
    version: int
    path: tuple[str, ...]
    is_repeated: bool
    """Whether all elements are the same."""

    def __str__(self) -> str:
        kind = "repeated" if self.is_repeated else "distinct"
        return f"{APIS[self.api_key].name}-v{self.version}-{'.'.join(self.path)}-{kind}"


def cases(api_key: int, version: int) -> Iterator[Case]:
    """Yield each array of a request, once with the same element many times, and once with different elements."""
    for path in _arrays(request_type(api_key, version)):
        for is_repeated in (False, True):
            yield Case(api_key, version, path, is_repeated)


def _arrays(entity: KioType, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in schema_of(entity).fields:
        path = (*before, field.name)
        if field.is_array:
            yield path
        if field.entity is not None:
            yield from _arrays(field.entity, path)


def frame_of(case: Case, parts: int) -> bytes:
    """Return the request's whole frame, with fewer parts where REQUEST_BYTES do not hold as many."""
    header = RequestHeader(case.api_key, case.version, 1, "large")
    frame = encode_request(header, _message(case, parts))
    if len(frame) > REQUEST_BYTES:
        frame = encode_request(header, _message(case, parts * REQUEST_BYTES // len(frame)))
    return frame


def _message(case: Case, parts: int) -> Any:
    return _entity(request_type(case.api_key, case.version), case, case.path, parts=parts, number=0)


def _entity(entity: KioType, case: Case, path: tuple[str, ...], *, parts: int, number: int) -> Any:
    """`path` leads from here to the array that is large; empty: it is elsewhere. `number`: which of many this is."""
    schema, own = schema_of(entity), NOT_IN_ALL.get(case.api_key, {})
    values = {each.name: each.default for each in schema.tagged}
    for field in schema.fields:
        is_on_path = bool(path) and field.name == path[0]
        below = path[1:] if is_on_path else ()
        if not field.is_array:
            if field.entity is not None and is_on_path:
                values[field.name] = _entity(field.entity, case, below, parts=parts, number=number)
            else:
                values[field.name] = _value(field, case.api_key, number)
            continue
        count = parts if is_on_path and not below else 1 if is_on_path or not path else 0
        if field.name in own and not is_on_path:
            values[field.name] = own[field.name]
        elif case.is_repeated and count:
            values[field.name] = (_element(field, case, below, parts=parts, number=0),) * count
        else:
            values[field.name] = tuple(
                _element(field, case, below, parts=parts, number=each) for each in range(count)
            )
    return entity(**values)


def _element(field: Field, case: Case, below: tuple[str, ...], *, parts: int, number: int) -> Any:
    if field.entity is not None:
        return _entity(field.entity, case, below, parts=parts, number=number)
    return _numbered(field, number)


def _value(field: Field, api_key: int, number: int) -> Any:
    own = NOT_IN_ALL.get(api_key, {})
    if field.name in own:
        return own[field.name]
    if number and field.kind in ("string", "uuid"):
        return _numbered(field, number)
    if number and field.name in ("partition", "partition_index", "index"):
        return number
    if field.name in PLAIN:
        return PLAIN[field.name]
    return _numbered(field, 0) if field.kind in ("string", "uuid") else field.default


def _numbered(field: Field, number: int) -> Any:
    if field.kind == "string":
        return f"n{number}" if number else TOPIC
    if field.kind == "uuid":
        return UUID(int=TOPIC_ID.int + number)
    if field.kind == "bytes":
        return b""
    return number % {"int8": 128, "int16": 1 << 15}.get(field.kind, number + 1)
