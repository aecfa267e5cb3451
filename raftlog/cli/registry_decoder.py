"""Keys and values of records as JSON, by the schemas of a registry, for `raftlog consume`.

What cannot be decoded keeps its bytes, and a line on standard error says why. While the registry does not answer, one
line does for all records: known schemas still decode.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Collection, Generator
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import SCHEMA_REGISTRY
from raftlog.cli.http_command import api_of
from raftlog.cli.kcat.format import BY_GUID_ALONE, Record
from raftlog.cli.printable import printable
from raftlog.cli.target import Target
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import demand_package, format_of
from raftlog.schemas.payloads import BY_GUID, FRAMES, SCHEMA_HEADERS, Undecodable, check_json, is_framed
from raftlog.schemas.registered import NotARegistry, RegisteredSchema, read_registered, schema_in
from raftlog.schemas.schema import KINDS

Result = TypeVar("Result")
NOT_FOUND: Final = 404
RETRY_S: Final = 5.0
"""How long a registry that did not answer, and an id that it did not know, are not asked for again."""
LOOKUP_S: Final = 5.0
"""How long the requests for a schema may take, with those for its references. A member of a group sends no heartbeats
meanwhile, so this is far below a usual session timeout."""
MAX_ANSWER_BYTES: Final = 4 << 20
"""Bytes of a response: a schema's characters may be escaped."""
MAX_SCHEMAS: Final = 1_000
"""Schemas, and unknown ids, that are kept: producers choose the ids."""


class _Reader(NamedTuple):
    """A schema in the form that payloads are read by, or why there is none; `until` it is looked up again."""

    schema_id: int
    read: Callable[[bytes], Generator[None, None, Any]] | None
    problem: str = ""
    until: float = float("inf")


class RegistryDecoder:
    """Decodes the `fields` ("key", "value") of records. `ask` returns the body for a path of the registry, in seconds.

    `ask` returns None for a schema that is not there, and raises Failure: UNREACHABLE if the registry does not answer.
    """

    def __init__(self, ask: Callable[[str, float], Any], fields: Collection[str]) -> None:
        self._ask, self._fields = ask, fields
        self._readers: dict[bytes, _Reader] = {}
        self._away_until = 0.0
        self.code = exits.OK
        """The exit code: FAILED once a key or value was not decoded."""

    def decoded(self, record: Record) -> Record:
        """Return a record with its key and value as JSON, as far as they can be decoded."""
        for field in self._fields:
            content = getattr(record, field)
            if content is None:
                continue
            try:
                schema_id, text = self._decode(bytes(content), self._prefix(record, field))
            except _Away:
                self.code = exits.FAILED
            except Undecodable as error:
                self.code = exits.FAILED
                where = f"{record.topic.decode()} {record.partition} at offset {record.offset}"
                _say(f"{where}: the {field} is printed as it is: {printable(str(error))}")
            else:
                if field == "key":
                    record = record._replace(key=text, key_schema_id=schema_id)
                else:
                    record = record._replace(value=text, value_schema_id=schema_id)
        return record

    def _prefix(self, record: Record, field: str) -> bytes | None:
        """Return the guid of a schema that a header has; of several headers the last counts."""
        found = [value for name, value in record.headers if name == SCHEMA_HEADERS[field]]
        return bytes(found[-1]) if found and found[-1] is not None else None

    def _decode(self, content: bytes, prefix: bytes | None) -> tuple[int, bytes]:
        """Return the id of a schema, and a payload as JSON. Raise Undecodable, _Away."""
        whole = content if prefix is None else prefix + content
        if not is_framed(content if prefix is None else prefix):
            raise Undecodable("it does not begin with the id of a schema")
        size = FRAMES[whole[0]]
        reader = self._reader(whole[:size])
        if reader.read is None:
            raise Undecodable(reader.problem)
        try:
            value = _finished(reader.read(whole[size:]))
            text = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
            return reader.schema_id, msgspec.json.format(text, indent=-1)
        except (Undecodable, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Undecodable(f"it is not of its schema {_name_of(whole[:size])}: {error}") from None

    def _reader(self, prefix: bytes) -> _Reader:
        """Return what reads payloads that begin so. Raise _Away."""
        found = self._readers.get(prefix)
        if found is None or time.monotonic() >= found.until:
            found = self._look_up(prefix)
            if len(self._readers) >= MAX_SCHEMAS:
                self._readers.clear()
            self._readers[prefix] = found
        return found

    def _look_up(self, prefix: bytes) -> _Reader:
        by_guid = prefix[0] == BY_GUID
        schema_id = BY_GUID_ALONE if by_guid else int.from_bytes(prefix[1:], "big")
        path = f"guids/{uuid.UUID(bytes=prefix[1:])}" if by_guid else f"ids/{schema_id}"
        begun_at = time.monotonic()
        again_at = begun_at + RETRY_S
        ask = partial(self._asked, deadline=begun_at + LOOKUP_S)
        try:
            found = ask(f"/schemas/{path}")
            if found is None:
                problem = f"the registry has no schema with {_name_of(prefix)}"
                return _Reader(schema_id, None, problem, again_at)
            schema = read_registered(found, ask)
            return _Reader(schema_id, _reading(schema))
        except (SchemaError, Undecodable, ImportError) as error:
            problem = str(error)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            problem = "what the registry returned is no schema"
        return _Reader(schema_id, None, f"schema {_name_of(prefix)} cannot be used: {problem}", again_at)

    def _asked(self, path: str, *, deadline: float) -> Any:
        """Return a response of the registry. Raise Undecodable if it refuses, _Away if it does not answer.

        A line says that it does not, once until it answers again.
        """
        now = time.monotonic()
        if now < self._away_until:
            raise _Away
        try:
            if now >= deadline:
                raise Failure(
                    f"the registry takes more than {LOOKUP_S:.0f} s for a schema", exits.UNREACHABLE
                )
            found = self._ask(path, deadline - now)
        except Failure as failure:
            if failure.code != exits.UNREACHABLE:
                self._away_until = 0.0
                raise Undecodable(str(failure)) from None
            if not self._away_until:
                why = printable(str(failure))
                _say(f"{why}; keys and values without a known schema are printed as they are meanwhile")
            self._away_until = time.monotonic() + RETRY_S
            raise _Away from None
        self._away_until = 0.0
        return found


class _Away(Exception):
    """The registry does not answer."""


def decoder_of(target: Target, url: str, fields: Collection[str]) -> RegistryDecoder:
    """Return a decoder by a registry: at a URL, which may have a login, or of the context or the brokers.

    Raise Failure.
    """
    api = api_of(target, target.timeout_s, service=SCHEMA_REGISTRY, url=url)
    api.max_bytes = MAX_ANSWER_BYTES
    if api.url:
        api.check_tls(api.url)

    def ask(path: str, timeout_s: float) -> Any:
        api.timeout_s = min(timeout_s, target.timeout_s)
        try:
            api.located()
        except Failure as failure:  # which concerns all schemas
            raise Failure(str(failure), exits.UNREACHABLE) from None
        try:
            return schema_in(api.ask("GET", path, accepted=NOT_FOUND), path)
        except NotARegistry as error:
            api.check_service(api.located(), path)
            raise Failure(f"the schema registry returns no schemas: {error}") from None

    return RegistryDecoder(ask, fields)


def _reading(schema: RegisteredSchema) -> Callable[[bytes], Generator[None, None, Any]]:
    """Return what reads payloads of a schema. Raise SchemaError, Undecodable."""
    kind = next((each for each in KINDS if each == schema.kind), None)
    if kind is None:
        raise Undecodable(f"it is of the type {schema.kind[:100]}")
    if kind == "JSON":
        return _read_json
    demand_package(kind)
    references = schema.references
    parsed = format_of(kind).parse(schema.text, references)
    payloads: Any = import_module(f"raftlog.schemas.{kind.lower()}_payloads")
    if kind == "PROTOBUF":
        others = [format_of(kind).parse(each.text, references) for each in references]
        return partial(_read_message, payloads, payloads.Types(parsed, others))
    return partial(payloads.read, schema=parsed)


def _read_message(payloads: Any, types: Any, payload: bytes) -> Generator[None, None, Any]:
    _, value = yield from payloads.read(payload, types)
    return value


def _read_json(payload: bytes) -> Generator[None, None, Any]:
    check_json(payload)
    return msgspec.Raw(payload)
    yield  # a generator, as the readers of the other types


def _finished(steps: Generator[None, None, Result]) -> Result:
    """Do all the steps of a reader, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def _name_of(prefix: bytes) -> str:
    if prefix[0] == BY_GUID:
        return f"guid {uuid.UUID(bytes=prefix[1:])}"
    return f"id {int.from_bytes(prefix[1:], 'big')}"


def _say(line: str) -> None:
    sys.stdout.buffer.flush()
    print(f"raftlog: {line}", file=sys.stderr)
