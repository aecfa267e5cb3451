"""The fields in keys and values of a coordinator's records: Kafka's primitive types, both encodings.

Functions write; `FieldReader` reads, within bounds. `compact_*` are the flexible versions' (KIP-482).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar
from uuid import UUID

from raftlog.base.errors import CorruptMessage

I8: Final = Struct(">b")
I16: Final = Struct(">h")
I32: Final = Struct(">i")
I64: Final = Struct(">q")

Element = TypeVar("Element")
Tags = dict[int, bytes]

KeyValue = tuple[bytes, bytes | None]
"""A record's key and value; the value None is a tombstone."""


class FieldReader:
    """Reads fields in order; `flexible` fields have compact lengths and tagged fields (KIP-482)."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptMessage("a group record is cut off")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _number(self, layout: Struct) -> int:
        try:
            number: int = layout.unpack_from(self._data, self._position)[0]
        except StructError as error:
            raise CorruptMessage("a group record is cut off") from error
        self._position += layout.size
        return number

    def int8(self) -> int:
        return self._number(I8)

    def int16(self) -> int:
        return self._number(I16)

    def int32(self) -> int:
        return self._number(I32)

    def int64(self) -> int:
        return self._number(I64)

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
            if shift > 28:
                raise CorruptMessage("a length in a group record is too long")

    def _length(self, layout: Struct) -> int:
        return self.varint() - 1 if self.flexible else self._number(layout)

    def nullable_string(self) -> str | None:
        size = self._length(I16)
        try:
            return None if size < 0 else self._take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptMessage("a string in a group record is not UTF-8") from error

    def string(self) -> str:
        return self.nullable_string() or ""

    def raw_bytes(self) -> bytes:
        return self._take(self._length(I32))

    def nullable_bytes(self) -> bytes | None:
        size = self._length(I32)
        return None if size < 0 else self._take(size)

    def count(self) -> int:
        """Read an array's length; every element takes at least one byte."""
        size = self._length(I32)
        if size > len(self._data) - self._position:
            raise CorruptMessage("a group record is cut off")
        return max(size, 0)

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def strings(self) -> tuple[str, ...]:
        return tuple(self.string() for _ in range(self.count()))

    def tagged(self) -> Tags:
        """Return the tagged fields by number, undecoded; there are none unless `flexible`."""
        count = self.varint() if self.flexible else 0
        return {self.varint(): self._take(self.varint()) for _ in range(count)}


def string(text: str | None) -> bytes:
    if text is None:
        return I16.pack(-1)
    encoded = text.encode()
    return I16.pack(len(encoded)) + encoded


def raw_bytes(content: bytes) -> bytes:
    return I32.pack(len(content)) + content


def varint(number: int) -> bytes:
    """Encode an unsigned number, seven bits a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    encoded = text.encode()
    return varint(len(encoded) + 1) + encoded


def compact_bytes(content: bytes) -> bytes:
    return varint(len(content) + 1) + content


def compact_array(elements: Iterable[Element], encode: Callable[[Element], bytes]) -> bytes:
    encoded = [encode(each) for each in elements]
    return varint(len(encoded) + 1) + b"".join(encoded)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """Encode tagged fields by number, without empty fields; every flexible structure ends with them."""
    present = {tag: content for tag, content in fields.items() if content}
    return varint(len(present)) + b"".join(
        varint(tag) + varint(len(content)) + content for tag, content in sorted(present.items())
    )


NO_TAGS: Final = tagged({})
