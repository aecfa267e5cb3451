"""Keys, values and headers of records as JSON: their bytes as they are, or decoded by a format that says what it is."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from raftlog.admin.route import Call
from raftlog.base.turns import run_steps
from raftlog.records.batch import Record, name_bytes, name_text
from raftlog.schemas.payloads import (
    MAX_CHARS,
    SCHEMA_HEADERS,
    Budget,
    Undecodable,
    UsedSchema,
    check_json,
    is_framed,
    plain,
)

if TYPE_CHECKING:
    from raftlog.admin.schema_registry.payloads import PayloadReader

Decoder = Literal["auto", "registry", "json", "msgpack", "text", "hex"]
"""`auto` takes the first of them that fits: the registry, JSON objects and arrays, text, MessagePack, bytes."""
DECODED_MAX_BYTES: Final = 256 << 10
"""A larger key or value is not decoded: its first bytes are shown."""
HEADER_MAX_BYTES: Final = 4 << 10
"""Of a header's value, where contents are decoded."""
MAX_HEADERS: Final = 1_000
"""Of a record, where contents are decoded."""
BRACKETS: Final = (b"{", b"[")


class Content(msgspec.Struct, omit_defaults=True):
    """Bytes: as STRING where they are UTF-8, else as BINARY in base64; as JSON where they were decoded.

    With `decode` also the decoder, the size of the whole, and why a decoder that was tried does not fit.
    """

    type: str
    data: str
    decoder: str = ""
    size: int = -1
    schema: UsedSchema | None = None
    problem: str = ""
    is_cut: bool = False
    """Only the first bytes are shown."""


class ReadHeader(msgspec.Struct, omit_defaults=True):
    """A header. `name_data`: the bytes of a name that is not UTF-8, in base64."""

    name: str
    value: Content | None
    name_data: str = ""

    @classmethod
    def of(cls, name: str, value: Content | None) -> ReadHeader:
        """Return a header of a record."""
        try:
            name.encode()
        except UnicodeEncodeError:
            return cls(name_text(name), value, base64.b64encode(name_bytes(name)).decode())
        return cls(name, value)


class ReadRecord(msgspec.Struct):
    """One record. `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int
    key: Content | None
    value: Content | None
    headers: list[ReadHeader]


def size_of(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    size = sum(len(each or b"") for each in (record.key, record.value))
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


def as_read(record: Record) -> ReadRecord:
    """Return a record with its contents as they are."""
    return ReadRecord(
        record.offset,
        record.timestamp,
        _content(record.key),
        _content(record.value),
        [ReadHeader.of(name, _content(value)) for name, value in record.headers],
    )


def _content(data: bytes | None) -> Content | None:
    if data is None:
        return None
    try:
        return Content("STRING", bytes(data).decode())
    except UnicodeDecodeError:
        return Content("BINARY", base64.b64encode(data).decode())


class Choices(NamedTuple):
    """The decoders of keys and of values that a request names."""

    key: Decoder
    value: Decoder


class Contents:
    """Decodes the records of one request, in turns of the loop."""

    def __init__(
        self, call: Call, topic: str, choices: Choices, *, max_bytes: int = DECODED_MAX_BYTES
    ) -> None:
        """`max_bytes`: of a key or a value that is shown."""
        self._call = call
        self._topic = topic
        self.choices = choices
        self._max_bytes = max_bytes
        self._payloads: PayloadReader | None = None

    async def record(self, record: Record) -> ReadRecord:
        """Return a record with its contents decoded."""
        headers = dict(record.headers)
        return ReadRecord(
            record.offset,
            record.timestamp,
            await self._checked(record.key, self.choices.key, headers.get(SCHEMA_HEADERS["key"])),
            await self._checked(record.value, self.choices.value, headers.get(SCHEMA_HEADERS["value"])),
            [
                ReadHeader.of(name, None if value is None else _shown(value, HEADER_MAX_BYTES))
                for name, value in record.headers[:MAX_HEADERS]
            ],
        )

    async def content(
        self, data: bytes | None, choice: Decoder, prefix: bytes | None = None
    ) -> Content | None:
        """Return a key or a value; `prefix`: the schema's id, if a header has it."""
        if data is None:
            return None
        data = bytes(data)
        if len(data) > DECODED_MAX_BYTES:
            found = _shown(data, self._max_bytes)
            found.problem = f"it has {len(data)} bytes, of which at most {DECODED_MAX_BYTES} are decoded"
            return found
        try:
            return await self._decoded(data, choice, prefix)
        except Undecodable as error:
            found = _shown(data, DECODED_MAX_BYTES)
            found.problem = str(error)
            return found

    async def _checked(self, data: bytes | None, choice: Decoder, prefix: bytes | None) -> Content | None:
        """Return a key or a value with what it breaks of its JSON Schema; a search needs the text alone."""
        found = await self.content(data, choice, prefix)
        if found is not None and found.schema is not None and found.schema.type == "JSON":
            found.schema = await (await self._opened()).checked(found.schema, found.data.encode())
        return found

    def changes(self, data: bytes, choice: Decoder, prefix: bytes | None) -> bool:
        """Return whether decoding shows texts that the bytes may lack."""
        size_fits = len(data) <= DECODED_MAX_BYTES
        return size_fits and (
            choice in ("registry", "msgpack") or (choice == "auto" and _is_framed(data, prefix))
        )

    async def _decoded(self, data: bytes, choice: Decoder, prefix: bytes | None) -> Content:
        match choice:
            case "registry":
                return await self._by_registry(data, prefix)
            case "json":
                check_json(data)
                return _json(data, "json", len(data))
            case "msgpack":
                return await self._msgpack(data)
            case "text":
                return Content("STRING", data.decode("utf-8", "replace"), "text", len(data))
            case "hex":
                return _hex(data)
        return await self._guessed(data, prefix)

    async def _guessed(self, data: bytes, prefix: bytes | None) -> Content:
        if _is_framed(data, prefix):
            return await self._by_registry(data, prefix)
        if data.lstrip()[:1] in BRACKETS:
            try:
                check_json(data)
            except Undecodable:
                pass
            else:
                return _json(data, "json", len(data))
        found = _shown(data, len(data))
        if found.decoder == "text":
            return found
        try:
            return await self._msgpack(data, only_containers=True)
        except Undecodable:
            return found

    async def _by_registry(self, data: bytes, prefix: bytes | None) -> Content:
        if not _is_framed(data, prefix):
            raise Undecodable("it does not begin with the id of a schema")
        reader = await self._opened()
        value, schema = await reader.read(data if prefix is None else prefix + data)
        found = _json(_encoded(value), "registry", len(data))
        found.schema = schema
        return found

    async def _opened(self) -> PayloadReader:
        """Return what reads payloads by schemas. Raises Undecodable without a registry on this node."""
        if self._payloads is None:
            opens = self._call.node.open_registry
            registry = None if opens is None else await opens()
            if registry is None:
                raise Undecodable(
                    "it begins like the id of a schema, and this node serves no schema registry"
                )
            from raftlog.admin.schema_registry.payloads import PayloadReader

            subjects = (f"{self._topic}-value", f"{self._topic}-key")
            self._payloads = PayloadReader(self._call, registry, subjects)
        return self._payloads

    async def _msgpack(self, data: bytes, *, only_containers: bool = False) -> Content:
        try:
            value = msgspec.msgpack.decode(data)
        except (ValueError, RecursionError, TypeError) as error:
            raise Undecodable(f"it is not MessagePack: {error}") from None
        if only_containers and not isinstance(value, dict | list):
            raise Undecodable("a single value of MessagePack may be anything")
        value = await run_steps(self._call, plain(value, Budget()))
        return _json(_encoded(value), "msgpack", len(data))


def _is_framed(data: bytes, prefix: bytes | None) -> bool:
    """Return whether a payload has the id of a schema at its beginning, or in a header."""
    return is_framed(prefix if prefix is not None else data)


def _encoded(value: Any) -> bytes:
    """Return a value as JSON. Raises Undecodable."""
    try:
        found = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Undecodable(f"JSON has no such value: {error}") from None
    if len(found) > 2 * MAX_CHARS:
        raise Undecodable(f"it has {len(found)} bytes of JSON")
    return found


def _json(text: bytes, decoder: str, size: int) -> Content:
    return Content("JSON", text.decode(), decoder, size)


def _hex(data: bytes) -> Content:
    return Content("BINARY", base64.b64encode(data).decode(), "hex", len(data))


def _shown(data: bytes, most: int) -> Content:
    """Return the first bytes as text if they are UTF-8 without a zero byte, else as they are."""
    first = data[:most]
    is_cut = len(data) > most
    text = None if b"\0" in first else _text(first, is_cut=is_cut)
    if text is not None:
        return Content("STRING", text, "text", len(data), is_cut=is_cut)
    found = _hex(first)
    found.size, found.is_cut = len(data), is_cut
    return found


def _text(first: bytes, *, is_cut: bool) -> str | None:
    try:
        return first.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.end == len(first) and error.start > len(first) - 4:
            return first[: error.start].decode()  # the cut is within a character
        return None
