"""Zigzag varints as records carry them (Protocol Buffers' sint32 and sint64)."""

from __future__ import annotations

from raftlog.base.errors import CorruptMessage

Buffer = bytes | bytearray | memoryview

MAX_VARINT_BYTES = 10


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value of at most 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position after it). CorruptMessage when it is cut off or longer than 64 bits."""
    try:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        high = buffer[position + 1]
        if high < 0x80:
            byte = byte & 0x7F | high << 7
            return (byte >> 1) ^ -(byte & 1), position + 2
    except IndexError as error:
        raise CorruptMessage("a varint is cut off") from error
    return _read_long_varint(buffer, position)


def _read_long_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    result = shift = 0
    for index in range(position, min(position + MAX_VARINT_BYTES, len(buffer))):
        byte = buffer[index]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >> 64:
                break
            return (result >> 1) ^ -(result & 1), index + 1
        shift += 7
    raise CorruptMessage("a varint is cut off or too long")
