"""The client's end of Produce by hand, version 9, one batch for one partition: equal to kio byte by byte."""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from raftlog.protocol.codec import skip_tagged
from raftlog.protocol.primitives import (
    cut_off_error,
    read_compact_length,
    read_compact_string,
    write_compact_string,
    write_length,
)

VERSION: Final = 9

_HEADER = Struct(">ihhih")
_ACKS = Struct(">hi")
_i32 = Struct(">i")
_RESULT = Struct(">ihqqq")
_LENGTH_BYTES: Final = 4
_PRODUCE: Final = 0


class Answer(NamedTuple):
    """The response of one partition."""

    error_code: int
    base_offset: int


def encode_produce(
    number: int, client_id: str, where: tuple[str, int], batch: bytes, *, acks: int, timeout_ms: int
) -> bytes:
    """Return the whole frame of request `number`."""
    topic, index = where
    name = client_id.encode()
    out = bytearray(_HEADER.pack(0, _PRODUCE, VERSION, number, len(name)))
    out += name
    out += b"\x00\x00"  # no tagged fields, no transactional id
    out += _ACKS.pack(acks, timeout_ms)
    write_length(out, 1)
    write_compact_string(out, topic)
    write_length(out, 1)
    out += _i32.pack(index)
    write_length(out, len(batch))
    out += batch
    out += b"\x00\x00\x00"  # nowhere tagged fields
    _i32.pack_into(out, 0, len(out) - _LENGTH_BYTES)
    return bytes(out)


def decode_produced(frame: memoryview) -> Answer:
    """Decode a response frame, without its length prefix. Raises InvalidRequest when the bytes lie."""
    try:
        position = skip_tagged(frame, 4)
        topics, position = read_compact_length(frame, position)
        _, position = read_compact_string(frame, position)
        partitions, position = read_compact_length(frame, position)
        _, error_code, base_offset, _, _ = _RESULT.unpack_from(frame, position)
    except (IndexError, struct_error):
        raise cut_off_error("ProduceResponse") from None
    if (topics, partitions) != (1, 1):
        raise cut_off_error("ProduceResponse")
    return Answer(error_code, base_offset)
