"""Fetch of one partition, the usual message of a follower: one struct call for each message.

Only layouts, for `fetch` and `fetch_client`: other messages return None here, and use their general codecs. Topics are
ids.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from raftlog.protocol.primitives import MULTIBYTE

FIRST_REQUEST_VERSION: Final = 15
"""Since then a replica's id and epoch are a tagged field."""


_BODY: Final = "iiibii B 16s B iiqiqi 7B iqB"
_REQUEST: Final = Struct(f">{_BODY}")
_HEADER: Final = "ihhih"
_AROUND: Final = (2, 2, 0, 0, 1, 1, 1, 1, 13, 0)
"""One topic, one partition, without tags; no forgotten topics, no rack; one tag, 1, of 13 bytes that end with 0."""
_RESULT: Final = "i B4x hi B 16s B ihqqq B i"
"""The throttle time, always 0, is ignored."""
_FRAME: Final = Struct(f">i {_RESULT}")
_RESPONSE: Final = Struct(f">{_RESULT}")
_RESPONSE_BYTES: Final = _RESPONSE.size
_LENGTH: Final = Struct(">i")
_END: Final = b"\0\0\0"
_END_BYTES: Final = len(_END)
_SHORT: Final = tuple(bytes((size + 1,)) for size in range(MULTIBYTE))
"""The compact length of this many bytes."""
_LONGEST: Final = 0x3FFE
"""The compact length of more bytes takes more than two bytes."""
_requests: dict[bytes, Struct] = {}


def pack_request(version: int, correlation_id: int, name: bytes, *, asked: tuple[Any, ...]) -> bytes:
    """Return the whole frame of a client of that name.

    `asked`: the fields from max_wait_ms to session_epoch; topic; partition; the replica's id and broker epoch.
    """
    head, topic, partition, replica = asked
    layout = _requests.get(name)
    if layout is None:
        layout = _requests[name] = Struct(f">{_HEADER} {len(name)}s B {_BODY}")
    size = layout.size - _LENGTH.size
    start = (size, 1, version, correlation_id, len(name), name, 0)
    return layout.pack(*start, *head, 2, topic, 2, *partition, 0, 0, 1, 1, 1, 1, 13, *replica, 0)


def unpack_request(buffer: memoryview, position: int) -> tuple[Any, ...] | None:
    """Return the `asked` of `pack_request`."""
    if len(buffer) - position != _REQUEST.size:
        return None
    found = _REQUEST.unpack_from(buffer, position)
    if (found[6], found[8], *found[15:22], found[24]) != _AROUND:
        return None
    return found[:6], found[7], found[9:15], found[22:24]


def pack_response(
    correlation_id: int, error_code: int, session_id: int, *, topic: bytes, result: tuple[Any, ...]
) -> bytes | None:
    """Return the whole frame of a response with a `result` that has records, few bytes, and no rare fields."""
    index, code, high_watermark, stable, start, records, aborted, preferred, diverging, leader = result
    if records is None or aborted is not None or diverging is not None or leader is not None:
        return None
    size = len(records)
    if size > _LONGEST:
        return None
    length = _SHORT[size] if size < MULTIBYTE else bytes(((size + 1 & 0x7F) | 0x80, size + 1 >> 7))
    head = _FRAME.pack(
        _RESPONSE_BYTES + len(length) + size + _END_BYTES,
        correlation_id,
        0,
        error_code,
        session_id,
        2,
        topic,
        2,
        index,
        code,
        high_watermark,
        stable,
        start,
        0,
        preferred,
    )
    return b"".join((head, length, records, _END))


def unpack_response(frame: memoryview) -> tuple[Any, ...] | None:
    """Return (correlation id, error code, session id, topic, result) of a frame without its length."""
    end = len(frame) - _END_BYTES
    if end <= _RESPONSE_BYTES:
        return None
    (
        correlation_id,
        tags,
        error_code,
        session_id,
        topics,
        topic,
        partitions,
        index,
        code,
        high_watermark,
        stable,
        start,
        aborted,
        preferred,
    ) = _RESPONSE.unpack_from(frame)
    at = _RESPONSE_BYTES + 1
    length = frame[at - 1] - 1
    if length >= MULTIBYTE:
        length += (frame[at] << 7) - 0x80
        at += 1
    if topics != 2 or partitions != 2 or tags or aborted:
        return None
    if length < 0 or at + length != end or any(frame[end:]):
        return None
    fetched = (index, code, high_watermark, stable, start, frame[at:end], None, preferred, None, None)
    return correlation_id, error_code, session_id, topic, fetched
