"""Kafka's primitive types for the hand-written codecs: positions in, positions out, no objects in between.

Readers raise IndexError or struct.error beyond the end of the buffer; the bounds of a slice are checked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import InvalidRequest
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.protocol.codec import skip_tagged
from raftlog.protocol.reader import TAGS_MAX, TooManyElements
from raftlog.protocol.writer import write_varint

_i16 = Struct(">h")
_i32 = Struct(">i")
_LEADER = Struct(">ii")
_LONGEST_VARINT_SHIFT: Final = 28
_UUIDS_MAX: Final = 4096

MULTIBYTE: Final = 0x7F
"""A compact length of this and above takes more than one byte."""

MAX_PRODUCE_ELEMENTS: Final = 20_000
"""Topics and partitions that one Produce or Fetch request may name together: ten thousand topics of one partition each,
say. They are decoded in one step of the event loop, a microsecond or two each.
"""

_uuids: dict[bytes, UUID] = {}


class Endpoint(NamedTuple):
    """A broker that a response points at (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def cut_off_error(what: str) -> InvalidRequest:
    return InvalidRequest(f"{what} is cut off or malformed")


def too_long_error(length: int, longest: int) -> InvalidRequest:
    return InvalidRequest(f"a name has {length} bytes, more than {longest}")


TAGS_MAX_BYTES: Final = 16 * 1024
"""Bytes of the tagged fields of all topics and partitions of a request; brokers and clients send none."""


def check_element_count(count: int, parts_max: int) -> None:
    """Raise TooManyElements when a request names more topics and partitions than it may."""
    if count > parts_max:
        raise TooManyElements(f"a request may name at most {parts_max} topics and partitions")


def skip_tagged_fields(buffer: memoryview, position: int, tags_left: list[int]) -> int:
    """Return the position behind the tagged fields of a topic or partition. Raise TooManyElements.

    `tags_left`: the bytes left for tagged fields of the request, counted down.
    """
    end = skip_tagged(buffer, position)
    tags_left[0] -= end - position
    if tags_left[0] < 0:
        raise TooManyElements(
            f"the tagged fields of a request's parts may have at most {TAGS_MAX_BYTES} bytes"
        )
    return end


def read_tag_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return how many tagged fields follow, and the position behind that."""
    count, position = read_varint(buffer, position)
    if count > TAGS_MAX:
        raise InvalidRequest(f"{count} tagged fields in one place, more than {TAGS_MAX}")
    return count, position


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes and the position behind it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _LONGEST_VARINT_SHIFT:
            raise InvalidRequest("a varint is longer than five bytes")


def read_compact_length(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return a compact length or count (-1 is null) and the position behind it."""
    byte = buffer[position]
    position += 1
    value, shift = byte & 0x7F, 0
    while byte > 0x7F:
        shift += 7
        if shift > _LONGEST_VARINT_SHIFT:
            raise InvalidRequest("a varint is longer than five bytes")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
    return value - 1, position


def read_compact_string(
    buffer: memoryview, position: int, longest: int = NAME_MAX_CHARS
) -> tuple[str | None, int]:
    """Return a string, None for null, and the position behind it. InvalidRequest if it exceeds `longest` bytes.

    No topic has a longer name than the default, so such a name is refused before it is stored or repeated.
    """
    length = buffer[position] - 1
    position += 1
    if length >= MULTIBYTE:
        length, position = read_compact_length(buffer, position - 1)
    if length < 0:
        return None, position
    end = position + length
    if length > longest:
        raise too_long_error(length, longest)
    if end > len(buffer):
        raise cut_off_error("a string")
    return str(buffer[position:end], "utf-8"), end


def read_legacy_string(
    buffer: memoryview, position: int, longest: int = NAME_MAX_CHARS
) -> tuple[str | None, int]:
    """Read as `read_compact_string` does."""
    length = _i16.unpack_from(buffer, position)[0]
    position += 2
    if length < 0:
        return None, position
    end = position + length
    if length > longest:
        raise too_long_error(length, longest)
    if end > len(buffer):
        raise cut_off_error("a string")
    return str(buffer[position:end], "utf-8"), end


def read_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return a legacy array's count (negative for null) and the position behind it."""
    count: int = _i32.unpack_from(buffer, position)[0]
    return count, position + 4


def read_uuid(buffer: memoryview, position: int) -> tuple[UUID, int]:
    """Return a uuid, as the same object for the last few thousand different values."""
    end = position + 16
    raw = bytes(buffer[position:end])
    found = _uuids.get(raw)
    if found is None:
        if len(raw) != 16:
            raise cut_off_error("a uuid")
        if len(_uuids) >= _UUIDS_MAX:
            _uuids.clear()
        found = _uuids[raw] = UUID(bytes=raw)
    return found, end


def write_length(out: bytearray, length: int) -> None:
    """Append a compact length or count."""
    length += 1
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    if len(data) < MULTIBYTE:
        out.append(len(data) + 1)
    else:
        write_varint(out, len(data) + 1)
    out += data


def write_legacy_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    out += _i16.pack(len(data))
    out += data


def write_tag(out: bytearray, tag: int, data: bytes | bytearray) -> None:
    write_varint(out, tag)
    write_varint(out, len(data))
    out += data


def write_leader(leader: tuple[int, int]) -> bytes:
    """Return a LeaderIdAndEpoch struct."""
    return _LEADER.pack(*leader) + b"\x00"


def write_endpoints(out: bytearray, endpoints: Sequence[Endpoint]) -> None:
    """Append the tagged fields of a response with only NodeEndpoints, tag 0."""
    data = bytearray()
    write_length(data, len(endpoints))
    for node_id, host, port, rack in endpoints:
        data += _i32.pack(node_id)
        write_compact_string(data, host)
        data += _i32.pack(port)
        write_compact_string(data, rack)
        data.append(0)
    out.append(1)
    write_tag(out, 0, data)
