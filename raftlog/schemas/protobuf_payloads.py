"""Reads Protobuf's wire format by files that `protobuf_schemas.parse` returned, under the names of the fields.

A field that no message knows is shown under its number. A message that no file has is shown in base64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from raftlog.schemas.payloads import Budget, Steps, Undecodable, as_base64, as_number, as_text
from raftlog.schemas.proto_model import NAME_MAX_CHARS, Field, Message, ProtoFile

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES: Final = {FIXED64: 8, FIXED32: 4}
VARINT_MAX_BYTES: Final = 10
MOST_INDEXES: Final = 64


def _signed(bits: int) -> Callable[[int], int]:
    half, whole = 1 << (bits - 1), 1 << bits
    return lambda value: (value & (whole - 1)) - (whole if value & half else 0)


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


VARINTS: Final[Mapping[str, Callable[[int], Any]]] = {
    "int32": _signed(32),
    "int64": _signed(64),
    "uint32": lambda value: value & 0xFFFFFFFF,
    "uint64": lambda value: value & 0xFFFFFFFFFFFFFFFF,
    "sint32": _zigzag,
    "sint64": _zigzag,
    "bool": bool,
}
FIXED: Final = {
    "fixed32": Struct("<I"),
    "sfixed32": Struct("<i"),
    "float": Struct("<f"),
    "fixed64": Struct("<Q"),
    "sfixed64": Struct("<q"),
    "double": Struct("<d"),
}


def _scalars(*names: tuple[str, str]) -> tuple[Field, ...]:
    return tuple(Field(number, name, "", kind, "") for number, (name, kind) in enumerate(names, 1))


_MOMENT: Final = _scalars(("seconds", "int64"), ("nanos", "int32"))
GOOGLES: Final = ProtoFile(
    "google.protobuf",
    (),
    {
        "Timestamp": Message("Timestamp", _MOMENT),
        "Duration": Message("Duration", _MOMENT),
        "Any": Message("Any", _scalars(("type_url", "string"), ("value", "bytes"))),
        **{
            f"{name}Value": Message(f"{name}Value", _scalars(("value", kind)))
            for name, kind in {
                "Double": "double",
                "Float": "float",
                "Int64": "int64",
                "UInt64": "uint64",
                "Int32": "int32",
                "UInt32": "uint32",
                "Bool": "bool",
                "String": "string",
                "Bytes": "bytes",
            }.items()
        },
    },
    {},
)
"""The messages of Google's that every registry knows."""


class Known(NamedTuple):
    """A message or the numbers of an enum, with the file that has it."""

    file: ProtoFile
    message: Message | None
    enum: Mapping[int, str] | None


class Types:
    """The messages and enums of a schema's file and of the files that it refers to."""

    def __init__(self, file: ProtoFile, others: Sequence[ProtoFile]) -> None:
        """Raises Undecodable. It is work for a thread: a file may declare thousands of types."""
        self.file = file
        self._known: dict[str, Known] = {}
        self._inside: dict[str, list[str]] = {}
        """The messages within a message, and within "" those of the file, in their order."""
        for name in file.declared:
            self._inside.setdefault(name.rpartition(".")[0], []).append(name)
        for each in (GOOGLES, *others, file):
            if len(each.package) > NAME_MAX_CHARS:
                raise Undecodable(f"the name of a package has more than {NAME_MAX_CHARS} characters")
            prefix = f"{each.package}." if each.package else ""
            for name, message in each.messages.items():
                self._known[prefix + name] = Known(each, message, None)
            for name, enum in each.enums.items():
                self._known[prefix + name] = Known(each, None, enum)

    def find(self, kind: str, within: ProtoFile) -> Known | None:
        """Return what a type of a file means; a name may leave out parts of the file's own package."""
        package = within.package
        while package:
            found = self._known.get(f"{package}.{kind}")
            if found is not None:
                return found
            package = package.rpartition(".")[0]
        return self._known.get(kind)

    def at(self, indexes: Sequence[int]) -> Known:
        """Return the message at a path of places, as Confluent's serializers write it. Raises Undecodable."""
        scope = ""
        for index in indexes:
            inside = self._inside.get(scope, [])
            if not 0 <= index < len(inside):
                raise Undecodable(f"the schema has no message at {list(indexes)[:MOST_INDEXES]}")
            scope = inside[index]
        return Known(self.file, self.file.messages.get(scope), None)


def read(payload: bytes, types: Types) -> Steps:
    """Return the name of a payload's message and the message's value. Raises Undecodable.

    A payload begins with the path to its message: the number of indexes, then each index. A zero alone is the first.
    """
    reader = _Reader(types, payload)
    count = _zigzag(reader.varint())
    if not 0 <= count <= MOST_INDEXES:
        raise Undecodable(f"the place of its message has {count} numbers")
    known = types.at([_zigzag(reader.varint()) for _ in range(count)] or [0])
    if known.message is None:
        raise Undecodable("it is an entry of a map, and no message")
    value = yield from reader.message(known, len(payload), 0)
    return known.message.name, value


class _Reader:
    """One payload, as far as it is read."""

    def __init__(self, types: Types, payload: bytes) -> None:
        self._types = types
        self._payload = payload
        self._budget = Budget()
        self._position = 0
        self._fields: dict[int, dict[int, Field]] = {}
        """The fields of messages by number, by the id of the message."""
        self._entries: dict[str, Message] = {}

    def message(self, known: Known, end: int, depth: int) -> Steps:
        """Return the fields of a message up to a position."""
        assert known.message is not None, "the caller has looked"
        fields = self._fields.get(id(known.message))
        if fields is None:
            fields = self._fields[id(known.message)] = {each.number: each for each in known.message.fields}
        found: dict[str, Any] = {}
        while self._position < end:
            key = self.varint()
            number, wire = key >> 3, key & 7
            content = self._content(wire, end)
            field = fields.get(number)
            name = f"#{number}" if field is None else field.name
            if self._budget.spend(depth):
                yield
            self._budget.spend_chars(len(name))
            if field is None:
                unknown = content if isinstance(content, int) else as_base64(content)
                self._add(found, name, unknown, repeated=False)
            else:
                yield from self._field(found, field, known.file, content, depth)
        if self._position != end:
            raise Undecodable(f"a field goes beyond its message at byte {end}")
        return found

    def _field(
        self,
        found: dict[str, Any],
        field: Field,
        file: ProtoFile,
        content: int | bytes,
        depth: int,
    ) -> Steps:
        if field.type.startswith("map<") and isinstance(content, bytes):
            pair = yield from self._within(Known(file, self._entry(field.type), None), content, depth)
            name = str(pair.get("key", ""))
            _inner(found, field.name, dict)[name] = pair.get("value")
            return
        kind = field.type
        known = None if kind in VARINTS or kind in FIXED else self._types.find(kind, file)
        packed = isinstance(content, bytes) and field.label == "repeated" and _is_packable(kind, known)
        if packed and isinstance(content, bytes):
            for each in self._unpacked(content, kind):
                if self._budget.spend(depth):
                    yield
                self._add(found, field.name, _scalar(kind, each, known), repeated=True)
            return
        if known is not None and known.message is not None and isinstance(content, bytes):
            value = yield from self._within(known, content, depth)
        else:
            value = _scalar(kind, content, known)
        self._add(found, field.name, value, repeated=field.label == "repeated")

    def _add(self, found: dict[str, Any], name: str, value: Any, *, repeated: bool) -> None:
        """Put a value under a name; the last of several counts, unless the field is repeated."""
        if isinstance(value, str):  # the name of a number has no bytes in the payload
            self._budget.spend_chars(len(value))
        if repeated:
            _inner(found, name, list).append(value)
        else:
            found[name] = value

    def _entry(self, kind: str) -> Message:
        """Return the message of a map's entries."""
        if kind not in self._entries:
            key, _, value = kind[4:-1].partition(",")
            pair = _scalars(("key", key.strip()), ("value", value.strip()))
            self._entries[kind] = Message("entry", pair)
        return self._entries[kind]

    def _within(self, known: Known, content: bytes, depth: int) -> Steps:
        """Return a message in bytes that were just passed."""
        end, self._position = self._position, self._position - len(content)
        return (yield from self.message(known, end, depth + 1))

    def _content(self, wire: int, end: int) -> int | bytes:
        """Return the content of the next field: a number or bytes."""
        if wire == VARINT:
            return self.varint()
        size = self.varint() if wire == BYTES else SIZES.get(wire)
        if size is None:
            raise Undecodable(f"wire type {wire} is not read, at byte {self._position}")
        found = self._payload[self._position : self._position + size]
        self._position += size
        if self._position > end:
            raise Undecodable(f"a field of {size} bytes goes beyond byte {end}")
        return found

    def _unpacked(self, content: bytes, kind: str) -> Any:
        """Yield the numbers of a packed field."""
        if kind in FIXED:
            size = FIXED[kind].size
            if len(content) % size:
                raise Undecodable(f"{len(content)} bytes are no list of {kind}")
            for start in range(0, len(content), size):
                yield content[start : start + size]
            return
        inner = _Reader(self._types, content)
        while inner._position < len(content):
            yield inner.varint()

    def varint(self) -> int:
        """Return the next number."""
        found = 0
        for shift in range(0, 7 * VARINT_MAX_BYTES, 7):
            if self._position >= len(self._payload):
                raise Undecodable(f"it ends within a number at byte {self._position}")
            byte = self._payload[self._position]
            self._position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise Undecodable(f"a number has no end at byte {self._position}")


def _is_packable(kind: str, known: Known | None) -> bool:
    return kind in VARINTS or kind in FIXED or (known is not None and known.enum is not None)


def _scalar(kind: str, content: int | bytes, known: Known | None) -> Any:
    """Return a value without fields. Raises Undecodable if the bytes are of another type."""
    if isinstance(content, int):
        if kind in VARINTS:
            return VARINTS[kind](content)
        number = _signed(32)(content)
        if known is not None and known.enum is not None:
            return known.enum.get(number, number)
        if known is None and kind not in FIXED and kind not in ("string", "bytes"):
            return number  # an enum of a file that is not there
    elif kind == "string":
        return as_text(content)
    elif kind in FIXED and len(content) == FIXED[kind].size:
        value = FIXED[kind].unpack(content)[0]
        return as_number(value) if isinstance(value, float) else value
    elif kind == "bytes" or (known is None and kind not in VARINTS and kind not in FIXED):
        return as_base64(content)
    raise Undecodable(f"a field of type {kind[:100]} has the wire type of another")


def _inner(found: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """Return the list or the dict under a name. Raises Undecodable if two fields have the name."""
    there = found.setdefault(name, kind())
    if not isinstance(there, kind):
        raise Undecodable(f"two fields are called {name[:100]}")
    return there
