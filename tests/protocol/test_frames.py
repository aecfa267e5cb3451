"""The ends of frames, and bytes that are no frame."""

from __future__ import annotations

import struct

import pytest

from raftlog.protocol.frames import FramingLost, frame_length

MAX_BYTES = 100 << 20


@pytest.mark.parametrize("length", [1, 10, MAX_BYTES])
def test_lengths_up_to_the_limit_are_taken(length: int) -> None:
    """socket.request.max.bytes is inclusive."""
    assert frame_length(b"xx" + struct.pack(">i", length), 2, MAX_BYTES) == length


@pytest.mark.parametrize(
    "start,reason",
    [
        (struct.pack(">i", 0), "not positive"),
        (struct.pack(">i", -1), "not positive"),
        (struct.pack(">i", MAX_BYTES + 1), "socket.request.max.bytes"),
        (b"GET / HTTP/1.1", "HTTP"),
        (b"POST /topics", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x16\x03\x03\x00\xff\x01", "TLS"),
    ],
)
def test_what_is_no_frame_is_named(start: bytes, reason: str) -> None:
    """The reason shows an operator which protocol was spoken on the port."""
    with pytest.raises(FramingLost, match=reason):
        frame_length(start, 0, MAX_BYTES)


def test_foreign_protocols_are_seen_below_any_limit() -> None:
    """Letters of HTTP are no length even when the limit would allow it."""
    with pytest.raises(FramingLost, match="HTTP"):
        frame_length(b"GET /", 0, 0x7FFFFFFF)
